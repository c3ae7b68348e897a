//! Decodes journal entries from the values of the log.

use domain::ledger::{EntriesBefore, Entry};
use shared::{ids::GenerationId, stored};

use crate::stored::EntryRecord;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Number of the entry: one more than that of the account's previous entry.
    pub number: u64,
    pub generation: GenerationId,
    /// The generation's bill and its effect on the key's balance.
    pub entry: Entry,
    pub before: EntriesBefore,
}

/// Decodes an entry from the log; `None` if no version of the program writes such a value.
pub fn read_entry(number: u64, value: &[u8]) -> Option<JournalEntry> {
    let read: EntryRecord = stored::read(value).ok()?;
    let EntryRecord { generation, bill: settlement, delta, used_after, before, went_back: _ } = read;
    Some(JournalEntry { number, generation, entry: Entry { settlement, delta, used_after }, before })
}
