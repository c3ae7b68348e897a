//! Amounts, times and keys, as text, as a chart, and in files.

pub mod chart;
pub mod csv;
pub mod show;
