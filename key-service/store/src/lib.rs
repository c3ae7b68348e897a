//! Accounts, keys, groups, members and other nouns, over records and the ledger.

mod data;
mod error;
#[cfg(test)]
mod fuzz;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod suite;
