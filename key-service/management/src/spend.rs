//! Sums of days by model, and the keys that spent most.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use super::{
    Management,
    usage::{Grouping, MAX_DAYS, UsageSearch},
};
use domain::{
    key::ApiKey,
    search::EntrySearch,
    usage::{Day, Sums},
};
use key_service_store::store::StoreError;

/// Days added up unless others are requested.
pub const DAYS: i64 = 30;

/// Sums by day and model.
pub type Spend = BTreeMap<Day, BTreeMap<String, Sums>>;

/// Sums of the entries of a search.
#[derive(Clone, Debug)]
pub struct EntrySums {
    /// Days that are added up: those of the search, or the last [`DAYS`]; at most [`MAX_DAYS`].
    pub days: RangeInclusive<Day>,
    pub sums: Sums,
}

impl Management {
    /// The sums of the account on these days.
    pub async fn spend(&self, account: AccountId, days: RangeInclusive<Day>) -> Result<Spend, StoreError> {
        let mut spend = Spend::new();
        for line in self.store.spend(account, days).await? {
            spend.entry(line.day).or_default().insert(line.model, line.sums);
        }
        Ok(spend)
    }

    /// The sums of a key on these days.
    pub async fn spend_of(
        &self,
        account: AccountId,
        key: KeyId,
        days: RangeInclusive<Day>,
    ) -> Result<Spend, StoreError> {
        let mut spend = Spend::new();
        let _permit = self.read_permit(account).await?;
        for line in self.store.usage(account, days, Some(&[key])).await? {
            // A key that moved between groups has a line for each group.
            let sums = spend.entry(line.day).or_default().entry(line.payer.model).or_default();
            *sums = sums.plus(Sums::from(line.counts));
        }
        Ok(spend)
    }

    /// Adds up the counters of the days, the key, the group and the model of a search. Counters are kept by whole days in UTC: those
    /// that a search for other times touches count whole. `None` for an outcome, a user or an upstream, by which no counters are
    /// kept, and where no day is searched.
    pub async fn sums_of_entries(
        &self,
        account: AccountId,
        search: &EntrySearch,
    ) -> Result<Option<EntrySums>, StoreError> {
        let last = search.ends.map(|ends| Day::of(Timestamp::from_millis(ends.millis() - 1)));
        let last = last.map_or(self.today(), |last| last.min(self.today()));
        let first = search.begins.map_or_else(|| last.plus(1 - DAYS), Day::of).max(last.plus(1 - MAX_DAYS));
        let is_counted = search.outcome.is_none()
            && search.ending.is_none()
            && search.user.is_none()
            && search.upstream.is_none();
        if !is_counted || first > last {
            return Ok(None);
        }
        if let Some(group) = search.group {
            return self.sums_of_group(account, search, group, first..=last).await.map(Some);
        }
        let spend = match search.key {
            Some(key) => self.spend_of(account, key, first..=last).await?,
            None => self.spend(account, first..=last).await?,
        };
        let models = spend.into_values().flatten();
        let wanted = models.filter(|(model, _)| search.model.as_ref().is_none_or(|wanted| wanted == model));
        let sums = wanted.fold(Sums::default(), |all, (_, sums)| all.plus(sums));
        Ok(Some(EntrySums { days: first..=last, sums }))
    }

    async fn sums_of_group(
        &self,
        account: AccountId,
        search: &EntrySearch,
        group: GroupId,
        days: RangeInclusive<Day>,
    ) -> Result<EntrySums, StoreError> {
        let by = BTreeSet::from([Grouping::Model]);
        let usage = UsageSearch { days: days.clone(), key: search.key, group: Some(group), within: None, by };
        let parts = self.sums_of_usage(account, &usage).await?.into_iter();
        let wanted = parts.filter(|(parts, _)| search.model.is_none() || search.model == parts.model);
        let sums = wanted.fold(Sums::default(), |all, (_, counts)| all.plus(Sums::from(counts)));
        Ok(EntrySums { days, sums })
    }

    /// The keys of the account that spent most, largest spend first.
    pub async fn top_keys(&self, account: AccountId, limit: usize) -> Result<Vec<ApiKey>, StoreError> {
        self.store.top_spending(account, None, limit).await
    }
}

/// Returns for how many whole days the credit lasts at the rate of the last [`DAYS`]; `None` if nothing was spent.
pub fn days_left(credit: NanoUsd, spent: NanoUsd) -> Option<i64> {
    let days = i128::from(credit.nanos()) * i128::from(DAYS) / i128::from(spent.nanos().max(1));
    (spent > NanoUsd::ZERO).then(|| i64::try_from(days).unwrap_or(i64::MAX))
}
