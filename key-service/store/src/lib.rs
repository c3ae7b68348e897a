//! Backends that compare and write records, and the ledger over them.

pub mod ledger;
#[cfg(any(test, feature = "maps"))]
pub mod maps;
/// Messages generated from `proto/store/v1`, and documented there. `tests/generated.rs` writes them anew.
#[allow(missing_docs, clippy::pedantic, reason = "generated code")]
#[rustfmt::skip]
pub mod messages;
pub mod records;
pub mod redis;
pub mod sqlite;
#[cfg(test)]
mod suite;
