//! The nouns, once, over records and the ledger.

mod data;
pub mod store;
