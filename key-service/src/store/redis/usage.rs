//! Counters by day and payer.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::RangeInclusive,
};

use redis::{cmd, pipe};
use shared::ids::{AccountId, GroupId, KeyId};

use super::{
    Redis,
    records::{self, Reader, Scanned, damaged},
};
use crate::store::{StoreError, UsageLine};
use domain::{
    ledger::{GroupChain, Payer},
    usage::{Counts, Day},
};

/// Counters read in a round trip.
const COUNTERS_AT_ONCE: usize = 1000;

impl Redis {
    /// Reads counters. A counter may come twice while others are added; the later reading is the current value.
    pub(super) async fn read_counters(
        &self,
        account: AccountId,
        day: Day,
    ) -> Result<BTreeMap<Payer, Counts>, StoreError> {
        let (mut counters, mut cursor) = (BTreeMap::new(), "0".to_owned());
        loop {
            let mut scan = cmd("HSCAN");
            scan.arg(self.key_space.counters(account, day)).arg(&cursor).arg("COUNT").arg(COUNTERS_AT_ONCE);
            let (next, found): Scanned = self.client.ask(&scan).await?;
            for (counter, sums) in found {
                let parsed = Reader(&counter).payer().zip(records::read_counts(&sums));
                let (counter, counts) = parsed.ok_or_else(|| damaged("a counter"))?;
                counters.insert(counter, counts);
            }
            if next == "0" {
                return Ok(counters);
            }
            cursor = next;
        }
    }

    /// The counters of keys, for the models that the account has used on each of the days, and for every chain of groups
    /// that each key may have had.
    pub(super) async fn usage_of(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        keys: &[KeyId],
    ) -> Result<Vec<UsageLine>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let chains = self.chains_of(account, keys).await?;
        let (mut read, mut wanted, mut lines) = (pipe(), Vec::new(), Vec::new());
        for spend in self.added_up(account, days, false).await? {
            let day = spend.day;
            if !spend.has_every_model() {
                let counters = self.read_counters(account, day).await?;
                let of_keys = counters.into_iter().filter(|(payer, _)| keys.contains(&payer.key));
                lines.extend(of_keys.map(|(payer, counts)| UsageLine { day, payer, counts }));
                continue;
            }
            let payers = |model: &String| {
                let payer = |(key, groups): &(KeyId, GroupChain)| Payer {
                    key: *key,
                    model: model.clone(),
                    groups: *groups,
                };
                chains.iter().map(payer).collect::<Vec<_>>()
            };
            let payers: Vec<Payer> = spend.models.keys().flat_map(payers).collect();
            if !payers.is_empty() {
                let counters = payers.iter().map(records::write_payer).collect::<Vec<_>>();
                read.cmd("HMGET").arg(self.key_space.counters(account, day)).arg(counters);
                wanted.push((day, payers));
            }
        }
        if !wanted.is_empty() {
            let found: Vec<Vec<Option<Vec<u8>>>> = self.client.ask_all(&read).await?;
            for ((day, payers), found) in wanted.into_iter().zip(found) {
                for (payer, sums) in payers.into_iter().zip(found) {
                    let Some(sums) = sums else { continue };
                    let counts = records::read_counts(&sums).ok_or_else(|| damaged("a counter"))?;
                    lines.push(UsageLine { day, payer, counts });
                }
            }
        }
        lines.sort_by(|a, b| (a.day, &a.payer).cmp(&(b.day, &b.payer)));
        Ok(lines)
    }

    /// The chains of groups that keys may have had: none, and their groups before and now with the parents before and now.
    async fn chains_of(
        &self,
        account: AccountId,
        keys: &[KeyId],
    ) -> Result<BTreeSet<(KeyId, GroupChain)>, StoreError> {
        let mut chains: BTreeSet<_> = keys.iter().map(|key| (*key, [None, None])).collect();
        let texts = keys.iter().map(|key| self.key_space.key(account, *key));
        let past = keys.iter().zip(self.past(texts, "past_groups").await?);
        let past = past.flat_map(|(key, groups)| groups.into_iter().map(|group| (*key, group)));
        let mut members: BTreeSet<(KeyId, GroupId)> = past.collect();
        let found = self.keys_of(account, keys).await?;
        members.extend(found.iter().filter_map(|key| Some((key.id, key.spend.group?))));
        let groups: BTreeSet<GroupId> = members.iter().map(|(_, group)| *group).collect();
        let groups: Vec<GroupId> = groups.into_iter().collect();
        let texts = groups.iter().map(|group| self.key_space.group(account, *group));
        let mut parents: HashMap<_, _> =
            groups.iter().copied().zip(self.past(texts, "past_parents").await?).collect();
        for group in self.groups_of(account, &groups).await? {
            parents.entry(group.id).or_default().extend(group.spend.parent);
        }
        for (key, group) in members {
            chains.insert((key, [Some(group), None]));
            let parents = parents.get(&group).into_iter().flatten();
            chains.extend(parents.map(|parent| (key, [Some(group), Some(*parent)])));
        }
        Ok(chains)
    }

    /// Former groups, as a field of each of these hashes names them.
    async fn past(
        &self,
        names: impl Iterator<Item = String>,
        field: &str,
    ) -> Result<Vec<Vec<GroupId>>, StoreError> {
        let mut read = pipe();
        for name in names {
            read.cmd("HGET").arg(name).arg(field);
        }
        if read.is_empty() {
            return Ok(Vec::new());
        }
        let found: Vec<Option<String>> = self.client.ask_all(&read).await?;
        let ids = |past: Option<String>| {
            let past = past.unwrap_or_default();
            let ids = past.split_whitespace().map(|id| id.parse().map_err(|_| damaged("past groups")));
            ids.collect::<Result<Vec<_>, _>>()
        };
        found.into_iter().map(ids).collect()
    }
}
