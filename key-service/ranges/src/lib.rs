//! The range of days that a page shows, and what was spent in it.

pub mod file;
mod line;
pub mod list;
mod names;
pub mod range;
pub mod spend;
