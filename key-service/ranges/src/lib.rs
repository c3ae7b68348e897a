//! A range of days that a page is about, and what was spent on them.

pub mod file;
mod line;
pub mod list;
mod names;
pub mod range;
pub mod spend;
