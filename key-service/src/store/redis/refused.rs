//! Counts of refused calls: a hash for each day, with the counts of all keys, and one for each day of a key; and a sorted set for
//! each day, which orders the keys by their counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use async_trait::async_trait;
use redis::{cmd, pipe};
use shared::ids::{AccountId, KeyId};

use super::{Redis, records::damaged};
use crate::store::{Hour, REFUSED_KEPT_DAYS, RefusedCalls, RefusedLine, StoreError, refused::by_reason};
use domain::usage::Day;

/// Seconds for which the counts of a day are kept.
const KEPT_SECONDS: i64 = (REFUSED_KEPT_DAYS + 1) * 24 * 3600;

#[async_trait]
impl RefusedCalls for Redis {
    async fn add_refused(&self, account: AccountId, lines: Vec<RefusedLine>) -> Result<(), StoreError> {
        let (mut add, mut names) = (pipe(), BTreeSet::new());
        add.atomic();
        for RefusedLine { key, hour, reason, count } in &lines {
            for key in [Some(*key), None] {
                let name = self.key_space.refused(account, hour.day(), key);
                add.cmd("HINCRBY").arg(&name).arg(field(*hour, reason)).arg(*count).ignore();
                names.insert(name);
            }
            let name = self.key_space.refused_keys(account, hour.day());
            add.cmd("ZINCRBY").arg(&name).arg(*count).arg(key.as_bytes()).ignore();
            names.insert(name);
        }
        for name in names {
            add.cmd("EXPIRE").arg(name).arg(KEPT_SECONDS).ignore();
        }
        Ok(self.client.ask_all::<()>(&add).await?)
    }

    async fn refused(
        &self,
        account: AccountId,
        hours: RangeInclusive<Hour>,
        key: Option<KeyId>,
    ) -> Result<Vec<(String, u64)>, StoreError> {
        let mut read = pipe();
        for day in hours.start().day()..=hours.end().day() {
            read.cmd("HGETALL").arg(self.key_space.refused(account, day, key));
        }
        let days: Vec<BTreeMap<String, u64>> = self.client.ask_all(&read).await?;
        let mut counts = Vec::new();
        for (field, count) in days.into_iter().flatten() {
            let (hour, reason) = field.split_once(' ').ok_or_else(|| damaged("a count of refused calls"))?;
            let hour = hour.parse().map_err(|_| damaged("a count of refused calls"))?;
            if hours.contains(&Hour(hour)) {
                counts.push((reason.to_owned(), count));
            }
        }
        Ok(by_reason(counts.into_iter()))
    }

    async fn refused_keys(
        &self,
        account: AccountId,
        day: Day,
        limit: usize,
    ) -> Result<Vec<(KeyId, u64)>, StoreError> {
        let mut read = cmd("ZREVRANGE");
        read.arg(self.key_space.refused_keys(account, day.number())).arg(0).arg(limit).arg("WITHSCORES");
        let mut keys: Vec<(Vec<u8>, u64)> = self.client.ask(&read).await?;
        keys.truncate(limit);
        let key = |(id, count): (Vec<u8>, u64)| {
            KeyId::from_slice(&id).map(|id| (id, count)).ok_or_else(|| damaged("a key with refused calls"))
        };
        keys.into_iter().map(key).collect()
    }
}

/// Field of an hour and a reason.
fn field(hour: Hour, reason: &str) -> String {
    format!("{} {reason}", hour.0)
}
