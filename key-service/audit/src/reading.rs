//! Reads the books of a store.

use key_service_ledger::{
    StoreError,
    journal::{JournalEntry, read_entry},
    reading::SpaceReader,
};
use records::Records;
use shared::clock::Clock;

/// The books of all accounts of a store.
#[derive(Clone, Copy)]
pub struct Books<'a> {
    pub records: &'a dyn Records,
    pub clock: &'a dyn Clock,
    /// Maximum number of journal entries that the store keeps for an account; `None` for all.
    pub journal_entries: Option<u64>,
}

impl Books<'_> {
    pub(crate) const fn read(&self) -> SpaceReader<'_> {
        SpaceReader(self.records)
    }
}

/// Decodes a journal entry from its log value.
pub(crate) fn journal_entry(number: u64, value: &[u8]) -> Result<JournalEntry, StoreError> {
    read_entry(number, value).ok_or_else(|| StoreError::Damaged(format!("entry {number} of the journal")))
}

/// Returns the error for a record that no version of this program writes.
pub(crate) fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(format!("{what} cannot be read"))
}
