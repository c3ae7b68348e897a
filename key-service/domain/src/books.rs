//! Counters of billed and refused calls, filters, and the audit of the books.

pub mod audit;
pub mod refused;
pub mod search;
pub mod sequence;
pub mod upstream_calls;
pub mod usage;
