//! The books for an operator: the journal, the counters of usage, and the audit.

use std::ops::RangeInclusive;

use shared::ids::{AccountId, KeyId};

use super::Management;
use crate::store::{Hour, JournalEntry, JournalPage, StoreError, UsageLine};
use domain::{audit::Audit, usage::Day};

impl Management {
    /// Entries of the account's journal after this number, at most `limit`.
    pub async fn journal(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Result<JournalPage, StoreError> {
        self.store.journal(account, after, limit).await
    }

    /// The latest entries of the account's journal, or the latest before a number; newest first.
    pub async fn latest_entries(
        &self,
        account: AccountId,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, StoreError> {
        self.store.latest_entries(account, before, limit).await
    }

    /// Counters of these days, of a key or of all keys of the account.
    pub async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        key: Option<KeyId>,
    ) -> Result<Vec<UsageLine>, StoreError> {
        self.store.usage(account, days, key.as_ref().map(std::slice::from_ref)).await
    }

    /// Audits the account's books. Returns `None` if the account does not exist.
    pub async fn audit(&self, account: AccountId) -> Result<Option<Audit>, StoreError> {
        self.store.audit(account).await
    }

    /// Calls of the account or of one of its keys that were refused today, by error code. A key-service tells the store once
    /// a minute.
    pub async fn refused_today(
        &self,
        account: AccountId,
        key: Option<KeyId>,
    ) -> Result<Vec<(String, u64)>, StoreError> {
        let now = Hour::of(self.clock.now());
        self.store.refused(account, now.midnight()..=now, key).await
    }

    /// Today, in UTC.
    pub fn today(&self) -> Day {
        Day::of(self.clock.now())
    }
}
