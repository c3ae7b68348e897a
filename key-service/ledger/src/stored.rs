//! Stored records. The comment of each record says in which set and under which name it is stored. The space is an
//! account's, unless the comment names another space. [`shared::stored`] defines their encoding and how it may change.

mod accounts;
mod alerts;
mod books;
mod groups;
mod keys;
mod members;
mod payers;
mod secret;
mod webhooks;

use std::time::Duration;

use domain::ledger::{Account, EntriesBefore, Entry, Settlement};
use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{ids::GenerationId, money::NanoUsd, time::Timestamp};

pub use self::{accounts::*, alerts::*, books::*, groups::*, keys::*, members::*, payers::*, webhooks::*};

/// Entries from earlier versions of the program are out of order by at most this much time.
const MOST_DISORDER: Duration = Duration::from_hours(2);

/// Money of an account, with numbers that only the store needs. Set `money`, name `a`. Every commit of commands has a
/// guard on this record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct AccountRecord {
    #[n(0)]
    pub money: Account,
    /// Number of the last journal entry.
    #[n(1)]
    pub entries: u64,
    /// Number of the last event.
    #[n(2)]
    pub events: u64,
    /// When a hold last expired.
    #[n(3)]
    pub last_expiry: Option<Timestamp>,
    /// Entries since this time are in order. Earlier entries were written by earlier versions of the program.
    #[n(4)]
    pub ordered_since: Option<Timestamp>,
    /// Number of the last entry that has an earlier time than the entry before it, because a clock had been far ahead;
    /// zero if there is none.
    #[n(5)]
    pub went_back: u64,
}

impl AccountRecord {
    /// Returns whether bills of expiries may still be remembered.
    pub(crate) fn remembers_expiries(&self, kept: Duration, now: Timestamp) -> bool {
        self.last_expiry.is_some_and(|last| last.plus(kept) > now)
    }

    /// Returns how far out of order entries around this time may be: zero if no earlier version of the program wrote
    /// them.
    pub fn disorder(&self, at: Timestamp) -> Duration {
        let is_ordered = self.ordered_since.is_none_or(|since| at > since.plus(MOST_DISORDER));
        if self.money.billed_at.is_some() && is_ordered { Duration::ZERO } else { MOST_DISORDER }
    }
}

/// A balance, with the number of the entry that changed it last. Set `money`, names `k` and a key's id, and `g` and a
/// group's id. Also the sets of daily sums for payers (`sums`, `p` and the payer), models (`spend`, `m` and the model),
/// groups (`group_spend`, `g` and the group) and users (`users`, `u` and the part's number).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Balance<T> {
    #[n(0)]
    pub of: T,
    #[n(1)]
    pub last_entry: u64,
}

/// Which events an account keeps. Set `money`, name `e`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct EventsKept {
    /// Number of the oldest event, or of the next event if none is kept.
    #[n(0)]
    pub first: u64,
    #[n(1)]
    pub bytes: i64,
}

impl Default for EventsKept {
    fn default() -> Self {
        Self { first: 1, bytes: 0 }
    }
}

/// The turn of a key-service whose commits have lost to others. Set `money`, name `t`. Every commit of a lane has a
/// guard on this record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Turn {
    /// Random number that identifies the owner of the turn.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub of: [u8; 8],
}

/// A reported threshold. Set `told`, name: whose limit, which limit, percent, beginning and amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Told {
    /// Number of the event that reported the threshold.
    #[n(0)]
    pub event: u64,
}

/// An entry of the journal. Log `journal`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct EntryRecord<B = Settlement> {
    #[n(0)]
    pub generation: GenerationId,
    /// The bill after this entry.
    #[n(1)]
    pub bill: B,
    /// Amount by which the entry changes the amount billed for the generation.
    #[n(2)]
    pub delta: NanoUsd,
    /// The key's `used` after this entry.
    #[n(3)]
    pub used_after: NanoUsd,
    /// Numbers of the previous entries of the same key, group and parent group; 0 for none.
    #[n(4)]
    pub before: EntriesBefore,
    /// Set only for an entry that has an earlier time than the entry before it: number of the previous such entry, or 0
    /// for none.
    #[n(5)]
    pub went_back: u64,
}

impl<'a> EntryRecord<&'a Settlement> {
    pub(crate) const fn of(generation: GenerationId, entry: &'a Entry, before: EntriesBefore) -> Self {
        let Entry { settlement: bill, delta, used_after } = entry;
        Self { generation, bill, delta: *delta, used_after: *used_after, before, went_back: 0 }
    }
}

/// Sets of an account that were dropped because their records were old. Set `house`, name `h`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct House {
    /// First part of the set `generations` that may still exist.
    #[n(0)]
    pub generations: u32,
    /// Earlier parts that were not dropped because they had open holds.
    #[n(1)]
    pub held: Vec<HeldPart>,
    /// First day of the set `expired` that may still exist.
    #[n(2)]
    pub expired: u32,
    /// First day of the daily sums that may still exist.
    #[n(3)]
    pub sums: u32,
    /// Number of the first journal entry if the account was copied from a store that drops old entries; otherwise zero.
    #[n(4)]
    pub journal: u64,
}

/// A part of the set `generations` that has, or recently had, open holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct HeldPart {
    #[n(0)]
    pub part: u32,
    /// Last time at which the part was seen with an open hold.
    #[n(1)]
    pub held_at: Timestamp,
}
