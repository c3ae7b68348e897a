//! The books for operators: journal, usage counters and audit.

use std::ops::RangeInclusive;

use futures_util::future::try_join;
use shared::ids::{AccountId, KeyId};

use crate::{management::Management, reports::local_days::LocalDays};
use domain::{audit::Audit, sequence::Sequence, usage::Day};
use key_service_store::store::{Hour, JournalEntry, JournalPage, REFUSED_KEPT_DAYS, StoreError, UsageLine};

/// Number of days before today whose refused calls are shown; counts are kept longer.
pub const REFUSED_DAYS: i64 = 7;

/// Refused calls by error code, the most frequent first.
#[derive(Clone, Debug, Default)]
pub struct RefusedLately {
    /// Calls refused today, a day in UTC.
    pub today: Vec<(String, u64)>,
    /// Calls refused in the [`REFUSED_DAYS`] days before today.
    pub before: Vec<(String, u64)>,
}

impl Management {
    /// Returns the exported numbers of the account's journal entries and events.
    pub async fn sequences(&self, account: AccountId) -> Result<(Sequence, Sequence), StoreError> {
        self.store.sequences(account).await
    }

    /// Returns at most `limit` entries of the account's journal after this number.
    pub async fn journal(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Result<JournalPage, StoreError> {
        self.store.journal(account, after, limit).await
    }

    /// Returns the latest entries of the account's journal, or the latest before a number; newest first.
    pub async fn latest_entries(
        &self,
        account: AccountId,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, StoreError> {
        self.store.latest_entries(account, before, limit).await
    }

    /// Returns the counters for these days, of one key or of all keys of the account.
    pub async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        key: Option<KeyId>,
    ) -> Result<Vec<UsageLine>, StoreError> {
        self.store.usage(account, days, key.as_ref().map(std::slice::from_ref)).await
    }

    /// Lists the ids and names of the accounts to audit, including accounts whose records were lost.
    pub async fn audited_accounts(&self) -> Result<Vec<(AccountId, String)>, StoreError> {
        self.store.audited_accounts().await
    }

    /// Audits the account's books; `None` if the account does not exist.
    pub async fn audit(&self, account: AccountId) -> Result<Option<Audit>, StoreError> {
        self.store.audit(account).await
    }

    /// Returns the refused calls of the account or of one of its keys, today and in the [`REFUSED_DAYS`] days before.
    /// Key-services add them to the store every ten seconds.
    pub async fn refused_lately(
        &self,
        account: AccountId,
        key: Option<KeyId>,
    ) -> Result<RefusedLately, StoreError> {
        let now = Hour::of(self.clock.now());
        let midnight = now.midnight();
        let before = Hour(midnight.0 - 24 * REFUSED_DAYS)..=Hour(midnight.0 - 1);
        let (today, before) = try_join(
            self.store.refused(account, midnight..=now, key),
            self.store.refused(account, before, key),
        )
        .await?;
        Ok(RefusedLately { today, before })
    }

    /// Returns the account's calls refused on these days; `None` if counts for some of the days are no longer kept.
    pub async fn refused_on(
        &self,
        account: AccountId,
        LocalDays { days, hours }: &LocalDays,
    ) -> Result<Option<u64>, StoreError> {
        if *days.start() < self.today().plus(1 - REFUSED_KEPT_DAYS) {
            return Ok(None);
        }
        let utc = hours.utc_days(days);
        let utc = (Hour::in_day(*utc.start(), 0).0..=Hour::in_day(*utc.end(), 23).0).map(Hour);
        let is_wanted = |hour: &Hour| days.contains(&hours.of(*hour).day());
        let mut wanted = utc.filter(is_wanted);
        let Some(first) = wanted.next() else { return Ok(Some(0)) };
        let last = wanted.next_back().unwrap_or(first);
        let reasons = self.store.refused(account, first..=last, None).await?;
        Ok(Some(reasons.into_iter().fold(0, |sum, (_, count)| sum.saturating_add(count))))
    }

    pub fn today(&self) -> Day {
        Day::of(self.clock.now())
    }
}
