//! Sums by day and model, which the ledger adds up.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use redis::pipe;
use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
};

use super::{
    Redis,
    records::{self, damaged},
};
use crate::store::{Groups, Keys, StoreError, UsageLine};
use domain::{
    ledger::{GroupChain, Payer},
    usage::{COUNTED, Counts, Day, Sums},
};

/// The field of a day's spend that marks the sums of a whole day, and the mark of a day of which nothing is missing.
const WHOLE: &str = "";
const ALL_SUMS: i64 = 2;
/// Ends of the fields of requests and of tokens, behind the model.
const REQUESTS: &str = "\0r";
const TOKENS: &str = "\0t";

/// Sums of a day by model.
pub(super) struct DaySpend {
    pub(super) day: Day,
    pub(super) sums: BTreeMap<String, Sums>,
    /// True if every model of the day is there; a day begun by a version that did not add up lacks some.
    pub(super) has_every_model: bool,
    /// True if nothing of the day is missing; a day begun by an earlier version lacks requests and tokens.
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
            let mut fields: BTreeMap<String, i64> = redis::from_redis_value_ref(charged)?;
            let exists: bool = redis::from_redis_value_ref(exists)?;
            let mark = fields.remove(WHOLE);
            let has_every_model = mark.is_some() || !exists;
            let is_whole = mark == Some(ALL_SUMS) || !exists;
            Ok(DaySpend { day, sums: read_sums(fields), has_every_model, is_whole })
        };
        days.into_iter().zip(found.chunks(2)).map(read).collect()
    }

    /// Adds up the counters of all keys.
    pub(super) async fn add_up(
        &self,
        account: AccountId,
        day: Day,
    ) -> Result<BTreeMap<String, Sums>, StoreError> {
        let mut sums: BTreeMap<String, Sums> = BTreeMap::new();
        for (payer, counts) in self.read_counters(account, day, None).await? {
            let sum = sums.entry(payer.model).or_default();
            *sum = sum.plus(Sums::from(counts));
        }
        if day <= Day::closed(self.clock.now()) {
            let (spend, counters) =
                (self.key_space.spend(account, day), self.key_space.counters(account, day));
            let left: i64 = self.client.ask(redis::cmd("TTL").arg(&counters)).await?;
            let mut keep = pipe();
            keep.cmd("HSET").arg(&spend).arg(WHOLE).arg(ALL_SUMS).arg(write_sums(&sums)).ignore();
            if left > 0 {
                keep.cmd("EXPIRE").arg(&spend).arg(left).ignore();
            }
            self.client.ask_all::<()>(&keep).await?;
        }
        Ok(sums)
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
        for DaySpend { day, sums, has_every_model, .. } in self.added_up(account, days).await? {
            if !has_every_model {
                let counters = self.read_counters(account, day, Some(key)).await?;
                lines.extend(counters.into_iter().map(|(payer, counts)| UsageLine { day, payer, counts }));
            }
            for model in sums.into_keys().filter(|_| has_every_model) {
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

/// Reads the fields of a day's sums.
fn read_sums(fields: BTreeMap<String, i64>) -> BTreeMap<String, Sums> {
    let mut sums: BTreeMap<String, Sums> = BTreeMap::new();
    for (field, sum) in fields {
        let count = u64::try_from(sum).unwrap_or_default().min(COUNTED);
        if let Some(model) = field.strip_suffix(REQUESTS) {
            sums.entry(model.to_owned()).or_default().requests = count;
        } else if let Some(model) = field.strip_suffix(TOKENS) {
            sums.entry(model.to_owned()).or_default().tokens = count;
        } else {
            sums.entry(field).or_default().charged = NanoUsd::from_nanos(sum);
        }
    }
    sums
}

/// The fields of a day's sums.
fn write_sums(sums: &BTreeMap<String, Sums>) -> Vec<(String, String)> {
    let fields = |(model, sums): (&String, &Sums)| {
        [
            (model.clone(), sums.charged.nanos().to_string()),
            (format!("{model}{REQUESTS}"), sums.requests.to_string()),
            (format!("{model}{TOKENS}"), sums.tokens.to_string()),
        ]
    };
    sums.iter().flat_map(fields).collect()
}
