//! The books of a store, read without changing them.

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
    /// Most entries of a journal that the store keeps; `None` for all.
    pub journal_entries: Option<u64>,
}

impl Books<'_> {
    /// Reads what a space has.
    pub(crate) const fn read(&self) -> SpaceReader<'_> {
        SpaceReader(self.records)
    }
}

/// An entry of the journal as the log keeps it.
pub(crate) fn journal_entry(number: u64, value: &[u8]) -> Result<JournalEntry, StoreError> {
    read_entry(number, value).ok_or_else(|| StoreError::Damaged(format!("entry {number} of the journal")))
}

/// Error of a record that no program writes.
pub(crate) fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(format!("{what} cannot be read"))
}
