//! Re-exports the names of the nouns' records, and an account's space.

pub(crate) use key_service_ledger::names::{nouns::*, space};
