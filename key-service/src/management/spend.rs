//! Sums of days by model, and the keys that spent most.

use std::{collections::BTreeMap, ops::RangeInclusive};

use shared::ids::{AccountId, KeyId};

use super::{Management, usage::MAX_DAYS};
use crate::store::StoreError;
use domain::{
    key::ApiKey,
    search::EntrySearch,
    usage::{Day, Sums},
};

/// Days that are added up unless others are asked for.
pub const DAYS: i64 = 30;

/// Sums by day and model.
pub type Spend = BTreeMap<Day, BTreeMap<String, Sums>>;

/// Sums of the entries of a search.
#[derive(Clone, Debug)]
pub struct EntrySums {
    /// Days that are added up: those of the search, or the last [`DAYS`]; [`MAX_DAYS`] at most.
    pub days: RangeInclusive<Day>,
    /// The sums.
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
            // A key that moved to another group has a line for each group.
            let sums = spend.entry(line.day).or_default().entry(line.payer.model).or_default();
            *sums = sums.plus(Sums::from(line.counts));
        }
        Ok(spend)
    }

    /// Adds up the counters of the days, the key and the model of a search. `None` for an outcome or a group, by which no
    /// counters are kept.
    pub async fn sums_of_entries(
        &self,
        account: AccountId,
        search: &EntrySearch,
    ) -> Result<Option<EntrySums>, StoreError> {
        if search.outcome.is_some() || search.group.is_some() {
            return Ok(None);
        }
        let last = search.to.map_or(self.today(), |to| to.min(self.today()));
        let first = search.from.unwrap_or_else(|| last.plus(1 - DAYS)).max(last.plus(1 - MAX_DAYS));
        if first > last {
            return Ok(None);
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

    /// The keys of the account that spent most, largest spend first.
    pub async fn top_keys(&self, account: AccountId, limit: usize) -> Result<Vec<ApiKey>, StoreError> {
        self.store.top_spending(account, None, limit).await
    }
}
