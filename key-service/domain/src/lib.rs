//! Pure rules of the key-service: no clock, no randomness, no I/O.

pub mod alarm;
pub mod alert;
/// Counters of billed calls, refused calls, filters for both, and the audit of the books.
mod books {
    pub mod audit;
    pub mod refused;
    pub mod search;
    pub mod sequence;
    pub mod upstream_calls;
    pub mod usage;
}
/// The stored form of credentials, and the rights of management keys, members and operator keys.
mod credentials {
    pub mod access;
    pub mod digest;
    pub mod pepper_record;
    pub mod second_factor;
}
pub mod event;
pub mod governed;
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
