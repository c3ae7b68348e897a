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

use crate::{
    management::Management,
    reports::usage::{Grouping, MAX_DAYS, Parts, UsageSearch},
};
use domain::{
    key::ApiKey,
    search::EntrySearch,
    usage::{Day, Sums},
};
use key_service_store::store::StoreError;

/// Days added up unless others are requested.
pub const DAYS: i64 = 30;

/// Keys whose sums are kept apart; those of all other keys are one part.
const TOP_KEYS: usize = 5;

/// Part of a spend for which sums are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpendBy {
    Model,
    Key,
    /// The group that the key was in.
    Group,
}

/// What a part of a spend belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpendPart {
    /// Id of a model in the catalogue.
    Model(String),
    Key(KeyId),
    /// A group; `None` stands for keys without a group.
    Group(Option<GroupId>),
    /// All keys but the ones that have spent most.
    OtherKeys,
}

/// Sums by part and day.
pub type SpendParts = BTreeMap<SpendPart, BTreeMap<Day, Sums>>;

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

    /// Returns the sums of the account on these days, apart for each model, key or group. Those by key are apart for the
    /// keys that have spent most, since the others may be very many.
    pub async fn spend_parts(
        &self,
        account: AccountId,
        by: SpendBy,
        days: RangeInclusive<Day>,
    ) -> Result<SpendParts, StoreError> {
        match by {
            SpendBy::Model => Ok(of_models(self.spend(account, days).await?)),
            SpendBy::Key => self.spend_of_top_keys(account, days).await,
            SpendBy::Group => {
                let _permit = self.read_permit(account).await?;
                let mut parts = SpendParts::new();
                for (day, group, sums) in self.store.spend_by_group(account, days).await? {
                    add(&mut parts, SpendPart::Group(group), day, sums);
                }
                Ok(parts)
            }
        }
    }

    /// Returns the sums of a group and of its child groups on these days, apart for each model, and for each key.
    pub async fn spend_of_group(
        &self,
        account: AccountId,
        group: GroupId,
        days: RangeInclusive<Day>,
    ) -> Result<[SpendParts; 2], StoreError> {
        let by = BTreeSet::from([Grouping::Day, Grouping::Model, Grouping::Key]);
        let search = UsageSearch { days, key: None, group: Some(group), within: None, by };
        let (mut models, mut keys) = (SpendParts::new(), SpendParts::new());
        for (of, counts) in self.sums_of_usage(account, &search).await? {
            if let Parts { day: Some(day), model: Some(model), key: Some(key), .. } = of {
                add(&mut models, SpendPart::Model(model), day, Sums::from(counts));
                add(&mut keys, SpendPart::Key(key), day, Sums::from(counts));
            }
        }
        Ok([models, keys])
    }

    async fn spend_of_top_keys(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<SpendParts, StoreError> {
        let keys: Vec<KeyId> =
            self.top_keys(account, TOP_KEYS).await?.into_iter().map(|key| key.id).collect();
        let (mut parts, mut others) = (SpendParts::new(), BTreeMap::<Day, Sums>::new());
        for (day, models) in self.spend(account, days.clone()).await? {
            others.insert(day, models.into_values().fold(Sums::default(), Sums::plus));
        }
        let _permit = self.read_permit(account).await?;
        for line in self.store.usage(account, days, Some(&keys)).await? {
            let sums = Sums::from(line.counts);
            others.entry(line.day).and_modify(|left| *left = left.less(sums));
            add(&mut parts, SpendPart::Key(line.payer.key), line.day, sums);
        }
        others.retain(|_, left| *left != Sums::default());
        if !others.is_empty() {
            parts.insert(SpendPart::OtherKeys, others);
        }
        Ok(parts)
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

/// Returns the parts by model.
pub fn of_models(spend: Spend) -> SpendParts {
    let mut parts = SpendParts::new();
    for (day, models) in spend {
        for (model, sums) in models {
            add(&mut parts, SpendPart::Model(model), day, sums);
        }
    }
    parts
}

fn add(parts: &mut SpendParts, part: SpendPart, day: Day, sums: Sums) {
    let sum = parts.entry(part).or_default().entry(day).or_default();
    *sum = sum.plus(sums);
}
