//! Requests that are hostile, damaged or too large.

pub(crate) mod attacks;
pub(crate) mod bad_input;
pub(crate) mod fuzz;
pub(crate) mod sizes;
