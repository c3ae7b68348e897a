//! The books as an operator reads them: the journal, the counters of usage, and the audit.

use std::ops::RangeInclusive;

use shared::ids::{AccountId, KeyId};

use super::Management;
use crate::{
    domain::{audit::Audit, usage::Day},
    store::{JournalEntry, JournalPage, Unavailable, UsageLine},
};

impl Management {
    /// Entries of the account's journal behind this number, at most `limit`.
    pub async fn journal(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Result<JournalPage, Unavailable> {
        self.store.journal(account, after, limit).await
    }

    /// The latest entries of the account's journal, or those before a number; newest first.
    pub async fn latest_entries(
        &self,
        account: AccountId,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, Unavailable> {
        self.store.latest_entries(account, before, limit).await
    }

    /// The counters of these days, of all of the account's keys or of one.
    pub async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        key: Option<KeyId>,
    ) -> Result<Vec<UsageLine>, Unavailable> {
        self.store.usage(account, days, key).await
    }

    /// Audits the account's books. `None` where there is no such account.
    pub async fn audit(&self, account: AccountId) -> Result<Option<Audit>, Unavailable> {
        self.store.audit(account).await
    }

    /// Today, in UTC.
    pub fn today(&self) -> Day {
        Day::of(self.clock.now())
    }
}
