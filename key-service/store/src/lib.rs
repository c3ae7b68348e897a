//! Backends that compare and write records, and the ledger over them.

#[cfg(any(test, feature = "maps"))]
pub mod maps;
pub mod records;
pub mod redis;
pub mod sqlite;
#[cfg(test)]
mod suite;
