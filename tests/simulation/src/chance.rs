//! The random numbers and the times of a run. The seed determines both.

pub(crate) mod clock;
pub(crate) mod dice;
pub(crate) mod poll;
