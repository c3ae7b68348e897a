//! Runs of the journal. Within a run, entries are ordered by time.

use std::time::Duration;

use key_service_ledger::{
    StoreError, names,
    stored::{AccountRecord, EntryRecord},
};
use records::Order;
use shared::{ids::AccountId, time::Timestamp};

use crate::store::base::Store;

/// An instant is located to within this many entries.
pub(super) const CLOSE: u64 = 64;

/// The entries between two positions at which the journal's time went back. It goes back only after a clock was far
/// ahead, so nearly every journal is a single run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Number of the first entry.
    pub(super) first: u64,
    /// Number of the first entry of the next run; `None` for the last run.
    pub(super) next: Option<u64>,
}

impl Run {
    /// Finds the run that contains the entry before a position; without a position, the journal's last run.
    pub(super) async fn before(
        store: &Store,
        account: AccountId,
        place: Option<u64>,
    ) -> Result<Self, StoreError> {
        let mut run = Self { first: store.money(account).await?.went_back.max(1), next: None };
        while place.is_some_and(|place| place <= run.first)
            && let Some(earlier) = run.earlier(store, account).await?
        {
            run = earlier;
        }
        Ok(run)
    }

    /// Returns the run before this one.
    pub(super) async fn earlier(self, store: &Store, account: AccountId) -> Result<Option<Self>, StoreError> {
        if self.first <= 1 {
            return Ok(None);
        }
        let space = names::space(account);
        let first =
            store.read().values(&space, names::JOURNAL, self.first..=self.first, Order::Ascending, 1).await?;
        let entry = first.first().and_then(|(_, value)| shared::stored::read::<EntryRecord>(value).ok());
        // Dropped or unreadable entries do not show an earlier run.
        let before = entry.map(|entry| entry.went_back).filter(|before| *before < self.first);
        Ok(Some(Self { first: before.unwrap_or_default().max(1), next: Some(self.first) }))
    }

    /// Finds by binary search the number of an entry in the run, at or shortly after the last entry before a time.
    pub(super) async fn end_before(
        self,
        store: &Store,
        account: AccountId,
        end: Timestamp,
    ) -> Result<u64, StoreError> {
        let newest = store.latest_entries(account, self.next, 1).await?.pop();
        let Some(newest) = newest.filter(|newest| newest.number >= self.first) else { return Ok(self.first) };
        let (mut is_before, mut is_behind) = (self.first - 1, newest.number + 1);
        while is_behind - is_before > CLOSE {
            let middle = u64::midpoint(is_before, is_behind);
            match store.latest_entries(account, Some(middle + 1), 1).await?.pop() {
                Some(entry) if entry.entry.settlement.at >= end => is_behind = entry.number,
                Some(_) | None => is_before = middle,
            }
        }
        Ok(is_behind)
    }
}

impl Store {
    /// Returns how far out of order entries around a time may be.
    pub async fn disorder(&self, account: AccountId, at: Timestamp) -> Result<Duration, StoreError> {
        Ok(self.money(account).await?.disorder(at))
    }

    async fn money(&self, account: AccountId) -> Result<AccountRecord, StoreError> {
        let found = self.read().get::<AccountRecord>(&names::space(account), names::account()).await;
        match found {
            // Pages show whatever can be read.
            Err(StoreError::Damaged(_)) => Ok(AccountRecord::default()),
            found => Ok(found?.unwrap_or_default()),
        }
    }
}
