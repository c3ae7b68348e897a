//! Formatting of amounts, times and keys on pages and in files, and charts.

pub mod chart;
pub mod csv;
pub mod show;
