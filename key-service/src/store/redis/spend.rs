//! Charges by day and model, which the ledger adds up.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use redis::pipe;
use shared::ids::{AccountId, GroupId, KeyId};

use super::{
    Redis,
    records::{self, damaged},
};
use crate::store::{Groups, Keys, StoreError, UsageLine};
use domain::{
    ledger::{GroupChain, Payer},
    usage::{Counts, Day},
};

/// The field of a day's spend that marks the spend of a whole day.
const WHOLE: &str = "";

/// Charges of a day by model.
pub(super) struct DaySpend {
    pub(super) day: Day,
    pub(super) charged: BTreeMap<String, i64>,
    /// True if nothing of the day is missing; a day begun by a version that did not add up is incomplete.
    pub(super) is_whole: bool,
}

impl Redis {
    /// Spend as added up by the ledger's script.
    pub(super) async fn added_up(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<Vec<DaySpend>, StoreError> {
        let days: Vec<Day> = (days.start().number()..=days.end().number()).map(Day::from_number).collect();
        let mut read = pipe();
        for day in &days {
            read.cmd("HGETALL").arg(self.key_space.spend(account, *day));
            read.cmd("EXISTS").arg(self.key_space.counters(account, *day));
        }
        let found: Vec<redis::Value> = self.client.ask_all(&read).await?;
        let read = |(day, pair): (Day, &[redis::Value])| {
            let [charged, exists] = pair else { return Err(damaged("spend")) };
            let mut charged: BTreeMap<String, i64> = redis::from_redis_value_ref(charged)?;
            let exists: bool = redis::from_redis_value_ref(exists)?;
            let is_whole = charged.remove(WHOLE).is_some() || !exists;
            Ok(DaySpend { day, charged, is_whole })
        };
        days.into_iter().zip(found.chunks(2)).map(read).collect()
    }

    /// Adds up the counters of all keys.
    pub(super) async fn add_up(
        &self,
        account: AccountId,
        day: Day,
    ) -> Result<BTreeMap<String, i64>, StoreError> {
        let mut charged: BTreeMap<String, i64> = BTreeMap::new();
        for (payer, counts) in self.read_counters(account, day, None).await? {
            let sum = charged.entry(payer.model).or_default();
            *sum = sum.saturating_add(counts.charged.nanos());
        }
        if day <= Day::closed(self.clock.now()) {
            let (spend, counters) =
                (self.key_space.spend(account, day), self.key_space.counters(account, day));
            let left: i64 = self.client.ask(redis::cmd("TTL").arg(&counters)).await?;
            let mut keep = pipe();
            keep.cmd("HSET").arg(&spend).arg(WHOLE).arg(1).arg(&charged).ignore();
            if left > 0 {
                keep.cmd("EXPIRE").arg(&spend).arg(left).ignore();
            }
            self.client.ask_all::<()>(&keep).await?;
        }
        Ok(charged)
    }

    /// The counters of a key, for the models that the account has used on each of the days, and for every chain of groups
    /// that the key may have had.
    pub(super) async fn usage_of(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        key: KeyId,
    ) -> Result<Vec<UsageLine>, StoreError> {
        let chains = self.chains_of(account, key).await?;
        let mut lines = Vec::new();
        let (mut read, mut wanted) = (pipe(), Vec::new());
        for DaySpend { day, charged, is_whole } in self.added_up(account, days).await? {
            if !is_whole {
                let counters = self.read_counters(account, day, Some(key)).await?;
                lines.extend(counters.into_iter().map(|(payer, counts)| UsageLine { day, payer, counts }));
            }
            for model in charged.into_keys().filter(|_| is_whole) {
                for groups in &chains {
                    let payer = Payer { key, model: model.clone(), groups: *groups };
                    let counter = records::write_payer(&payer);
                    read.cmd("HGET").arg(self.key_space.counters(account, day)).arg(counter);
                    wanted.push((day, payer));
                }
            }
        }
        if !wanted.is_empty() {
            let found: Vec<Option<Vec<u8>>> = self.client.ask_all(&read).await?;
            for ((day, payer), sums) in wanted.into_iter().zip(found) {
                let Some(sums) = sums else { continue };
                let counts: Counts = records::read_counts(&sums).ok_or_else(|| damaged("a counter"))?;
                lines.push(UsageLine { day, payer, counts });
            }
        }
        lines.sort_by(|a, b| (a.day, &a.payer).cmp(&(b.day, &b.payer)));
        Ok(lines)
    }

    /// The chains of groups that a key may have had: none, and its groups before and now with their parents before and
    /// now.
    async fn chains_of(&self, account: AccountId, key: KeyId) -> Result<BTreeSet<GroupChain>, StoreError> {
        let mut chains = BTreeSet::from([[None, None]]);
        let Some(found) = self.key(account, key).await? else { return Ok(chains) };
        let past = self.revision(&self.key_space.key(account, key), "past_groups").await?.past;
        let now = found.spend.group.map(|group| group.to_string());
        for group in past.split_whitespace().chain(now.as_deref()) {
            let group: GroupId = group.parse().map_err(|_| damaged("the groups of a key"))?;
            let parents = self.revision(&self.key_space.group(account, group), "past_parents").await?.past;
            chains.insert([Some(group), None]);
            for parent in parents.split_whitespace() {
                let parent = parent.parse().map_err(|_| damaged("the parents of a group"))?;
                chains.insert([Some(group), Some(parent)]);
            }
            if let Some(group) = self.group(account, group).await? {
                chains.insert([Some(group.id), group.spend.parent]);
            }
        }
        Ok(chains)
    }
}
