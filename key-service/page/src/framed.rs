//! What surrounds the content of every page, and of failures.

pub mod frame;
pub mod layout;
