//! Hostile, damaged and oversized requests.

pub(crate) mod attacks;
pub(crate) mod bad_input;
pub(crate) mod fuzz;
pub(crate) mod sizes;
