//! A run's randomness and time, both determined by its seed.

pub(crate) mod clock;
pub(crate) mod dice;
pub(crate) mod poll;
