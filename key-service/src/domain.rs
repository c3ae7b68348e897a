//! Pure rules of the key-service: no clock, no randomness, no I/O.

pub(crate) mod audit;
pub(crate) mod comparison;
pub(crate) mod key;
pub(crate) mod lease_clock;
pub(crate) mod ledger;
pub(crate) mod member;
pub(crate) mod pricing;
pub(crate) mod search;
pub(crate) mod usage;
