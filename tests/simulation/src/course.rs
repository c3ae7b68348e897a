//! The course of a run: its load, its faults, and how it is judged.

pub(crate) mod faults;
pub(crate) mod judge;
pub(crate) mod load;
pub(crate) mod owner;
pub(crate) mod run;
pub(crate) mod seeds;
