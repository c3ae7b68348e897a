//! Settings of keys and groups on a page: their form, their limits, their use as bars, and what changed in words.

pub mod budget;
pub mod key_line;
pub mod limits;
mod models;
pub mod settings_form;
pub mod words;
