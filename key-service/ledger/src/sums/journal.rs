//! Entries of the journal, read from the values of its log.

use domain::ledger::{EntriesBefore, Entry, Record};
use prost::Message;
use shared::ids::GenerationId;

use crate::{
    codec::{read_generation, usd},
    messages,
};

/// An entry of the journal with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Number of the entry: one more than the account's previous entry.
    pub number: u64,
    pub generation: GenerationId,
    /// The generation's bill and its effect on the key's balance.
    pub entry: Entry,
    pub before: EntriesBefore,
}

/// Decodes an entry from the log; `None` if no program writes such a value.
pub fn read_entry(number: u64, value: &[u8]) -> Option<JournalEntry> {
    let read = messages::Entry::decode(value).ok()?;
    let Record::Closed(settlement) = read_generation(read.bill?)? else { return None };
    let (delta, used_after) = (usd(read.delta), usd(read.used_after));
    Some(JournalEntry {
        number,
        generation: GenerationId::from_slice(&read.generation)?,
        entry: Entry { settlement, delta, used_after },
        before: EntriesBefore {
            key: read.before_of_key,
            groups: [read.before_of_group, read.before_of_parent],
        },
    })
}
