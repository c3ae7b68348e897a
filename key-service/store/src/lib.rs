//! The nouns, written once over records and the ledger.

mod data;
pub mod store;
