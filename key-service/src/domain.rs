//! The rules, pure: no clock, no randomness, no I/O.

pub mod audit;
pub mod key;
pub mod ledger;
pub mod pricing;
pub mod usage;
