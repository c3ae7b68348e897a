//! Settings of keys and groups on pages: forms, limits, bars that show their use, and descriptions of changes.

pub mod budget;
pub mod key_line;
pub mod limits;
mod models;
pub mod settings_form;
pub mod words;
