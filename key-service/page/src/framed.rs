//! Pages in their frame, failures among them.

pub mod failure_page;
pub mod frame;
pub mod layout;
