//! A model call: its origin and course, reasons to refuse it, and the state of its rate bounds.

pub mod generation;
pub mod rates;
pub mod refusal;
