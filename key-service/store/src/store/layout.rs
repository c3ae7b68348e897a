//! Names of the nouns' records, and the space of an account.

pub(crate) use key_service_ledger::names::{nouns::*, space};
