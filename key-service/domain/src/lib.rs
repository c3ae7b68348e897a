//! Pure rules of the key-service: no clock, no randomness, no I/O.

pub mod access;
pub mod audit;
pub mod comparison;
pub mod digest;
pub mod event;
pub mod group;
pub mod key;
pub mod lease_clock;
pub mod ledger;
pub mod member;
pub mod payment;
pub mod pepper_record;
pub mod pricing;
pub mod refused;
pub mod search;
pub mod second_factor;
pub mod settings;
pub mod upstream_calls;
pub mod usage;
pub mod webhook;

#[cfg(test)]
mod fuzz;
