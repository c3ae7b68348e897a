//! Pure rules of the key-service: no clock, no randomness, no I/O.

pub mod alarm;
mod books;
mod credentials;
pub mod event;
pub mod group;
pub mod key;
pub mod lease_clock;
pub mod ledger;
pub mod member;
pub mod payment;
pub mod pricing;
pub mod settings;
pub mod webhook;

pub use self::{
    books::{audit, refused, search, sequence, upstream_calls, usage},
    credentials::{access, digest, pepper_record, second_factor},
};

#[cfg(test)]
mod fuzz;
