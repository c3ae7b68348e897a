//! A run's randomness and time. The seed determines both.

pub(crate) mod clock;
pub(crate) mod dice;
pub(crate) mod poll;
