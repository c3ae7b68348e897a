//! The nouns, once, and the ledger, over backends that compare and write records.

pub mod copy;
mod data;
mod latency;
pub mod ledger;
#[cfg(any(test, feature = "testing"))]
pub mod maps;
/// Messages generated from `proto/store/v1`, and documented there. `tests/generated.rs` writes them anew.
#[allow(missing_docs, clippy::pedantic, reason = "generated code")]
#[rustfmt::skip]
pub mod messages;
pub mod records;
pub mod redis;
#[cfg(any(test, feature = "testing"))]
pub mod servers;
mod show;
pub mod sqlite;
pub mod store;
#[cfg(test)]
mod suite;
mod view;
