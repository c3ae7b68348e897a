//! Chance and time of a run, both determined by its seed.

pub(crate) mod clock;
pub(crate) mod dice;
pub(crate) mod poll;
