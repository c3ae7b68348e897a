//! The store, and what all nouns need to read and change its records.

use std::{sync::Arc, time::Duration};

pub(crate) use key_service_ledger::reading::{no_answer, value};
use key_service_ledger::{
    EventBounds, Lanes, Retention, StoreError, change_space, reading::SpaceReader, view::View,
};
use quick_cache::sync::Cache;
use records::{Answer, Durability, Question, Record, Records, Set, Space};
use shared::{clock::Clock, ids::AccountId};
use tokio::time::Instant;

/// How long bills of expired holds are kept. During this time, a capture replaces such a bill.
const EXPIRED_KEPT: Duration = Duration::from_hours(30 * 24);

/// Maximum number of accounts for which a process remembers when it last listed them. Other accounts are listed again.
const REMEMBERED: usize = 65_536;
/// For each account, when this process last listed it in the index of accounts with open holds.
pub(crate) struct Listings(pub(crate) Cache<AccountId, Instant>);

impl Default for Listings {
    fn default() -> Self {
        Self(Cache::new(REMEMBERED))
    }
}

/// How much history a store keeps.
#[derive(Clone, Copy, Debug)]
pub struct StoreRetention {
    /// Maximum number of an account's journal entries; `None` for all.
    pub journal_entries: Option<u64>,
    /// Number of days for which usage counters are kept; `None` for all.
    pub usage_days: Option<u32>,
    /// Limits on an account's events.
    pub events: EventBounds,
}

impl StoreRetention {
    /// Returns the settings with which everything is kept, except for events beyond these limits.
    pub const fn all(events: EventBounds) -> Self {
        Self { journal_entries: None, usage_days: None, events }
    }
}

pub struct Store {
    pub(crate) records: Arc<dyn Records>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) kept: StoreRetention,
    pub(crate) lanes: Lanes,
    pub(crate) listings: Listings,
}

impl Store {
    /// Creates a store on top of these records.
    pub fn new(records: Arc<dyn Records>, clock: Arc<dyn Clock>, kept: StoreRetention) -> Self {
        let journal_entries = kept.journal_entries.unwrap_or(u64::MAX);
        let StoreRetention { usage_days, events, .. } = kept;
        let of_ledger = Retention { journal_entries, events, expired: EXPIRED_KEPT, usage_days };
        let lanes = Lanes::new(Arc::clone(&records), Arc::clone(&clock), of_ledger);
        Self { records, clock, kept, lanes, listings: Listings::default() }
    }

    /// Changes records that spending does not read. `decide` may run several times.
    pub(crate) async fn change<T>(
        &self,
        space: &Space,
        decide: impl FnMut(&mut View) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        change_space(&self.records, &*self.clock, space, decide).await
    }

    /// Changes records like [`Self::change`], but does not wait until the change is durable. Use it only if the loss of
    /// the change does no harm, or if the change is made again.
    pub(crate) async fn note<T>(
        &self,
        space: &Space,
        mut decide: impl FnMut(&mut View) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        let note = |view: &mut View| {
            view.survive(Durability::Volatile);
            decide(view)
        };
        self.change(space, note).await
    }

    /// Returns a reader of spaces.
    pub(crate) fn read(&self) -> SpaceReader<'_> {
        SpaceReader(&*self.records)
    }

    /// Reads all records, with their names, of a set that is not divided into parts. They are read page by page, so a
    /// record that is written in the meantime may appear twice.
    pub(crate) async fn all_of_set(
        &self,
        space: &Space,
        table: u8,
    ) -> Result<Vec<(Vec<u8>, Record)>, StoreError> {
        let (mut all, mut place) = (Vec::new(), None);
        loop {
            let page = Question::Set(Set { table, part: 0 }, place);
            let Some(Answer::Set(records, next)) = self.read().ask(space, vec![page]).await?.pop() else {
                return Err(no_answer());
            };
            all.extend(records);
            if next.is_none() {
                return Ok(all);
            }
            place = next;
        }
    }
}

/// Returns the error for a record that no version of the program writes.
pub(crate) fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(what.to_owned())
}
