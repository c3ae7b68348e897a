//! What was billed and refused: counters, filters, and the proof that the books add up.

pub mod audit;
pub mod refused;
pub mod search;
pub mod sequence;
pub mod upstream_calls;
pub mod usage;
