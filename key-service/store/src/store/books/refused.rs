//! Counts refused calls, by hour and reason.

use std::{cmp::Reverse, collections::BTreeMap, ops::RangeInclusive};

use key_service_ledger::{
    StoreError,
    names::RecordName,
    stored::{RefusedCount, RefusedDay, RefusedDays},
    view::View,
};
use records::{Answer, Question, Set};
use shared::{
    ids::{AccountId, KeyId},
    time::Timestamp,
};

use crate::store::{
    base::{Store, no_answer, value},
    layout,
};
use domain::usage::{Day, Hour};

/// Number of days for which counts of refused calls are kept.
pub const REFUSED_KEPT_DAYS: i64 = 31;
/// Maximum number of records that a commit updates. With a guard and a write each, they stay far below the limit on a
/// commit's words.
const RECORDS_AT_ONCE: usize = 200;

/// Number of a key's calls refused within an hour for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedLine {
    pub key: KeyId,
    pub hour: Hour,
    /// Error code in the public API.
    pub reason: &'static str,
    pub count: u64,
}

/// A day, and a key or the whole account.
type DayOfKey = (u32, Option<KeyId>);
/// Counts to add, by day and key.
type Additions = BTreeMap<DayOfKey, Vec<RefusedCount>>;

impl Store {
    /// Adds to the account's counts, in one commit per few hundred keys. Counts older than [`REFUSED_KEPT_DAYS`] are
    /// dropped.
    pub async fn add_refused(&self, account: AccountId, lines: Vec<RefusedLine>) -> Result<(), StoreError> {
        let Some(last) = lines.iter().map(|line| line.hour.day().number()).max() else { return Ok(()) };
        let first = part(last.saturating_sub(REFUSED_KEPT_DAYS));
        let mut additions = Additions::new();
        for RefusedLine { key, hour, reason, count } in lines {
            let day = part(hour.day().number());
            let hour = u32::from(hour.of_day());
            for key in [Some(key), None] {
                let added = RefusedCount { hour, reason: reason.to_owned(), count };
                additions.entry((day, key)).or_default().push(added);
            }
        }
        additions.retain(|(day, _), _| *day >= first);
        let additions: Vec<_> = additions.into_iter().collect();
        for some in additions.chunks(RECORDS_AT_ONCE) {
            self.note(&layout::space(account), |view| add(view, some, first)).await?;
        }
        Ok(())
    }

    /// Reads the counts of these hours by reason, for one key or the whole account, largest first.
    pub async fn refused(
        &self,
        account: AccountId,
        hours: RangeInclusive<Hour>,
        key: Option<KeyId>,
    ) -> Result<Vec<(String, u64)>, StoreError> {
        let space = layout::space(account);
        let kept = self.read().get::<RefusedDays>(&space, days()).await?.unwrap_or_default();
        let wanted = part(hours.start().day().number())..=part(hours.end().day().number());
        let days: Vec<u32> = kept.days.into_iter().filter(|day| wanted.contains(day)).collect();
        let names = days.iter().map(|day| of_key(*day, key)).collect();
        let found = self.read().get_all::<RefusedDay>(&space, names).await?;
        let mut counts = Vec::new();
        for (day, found) in days.into_iter().zip(found) {
            let is_wanted =
                |count: &RefusedCount| hours.contains(&Hour(i64::from(day) * 24 + i64::from(count.hour)));
            let found = found.unwrap_or_default().counts.into_iter().filter(is_wanted);
            counts.extend(found.map(|RefusedCount { reason, count, .. }| (reason, count)));
        }
        Ok(by_reason(counts.into_iter()))
    }

    /// Lists at most `limit` keys of the account with the most refused calls on a day, largest first.
    pub async fn refused_keys(
        &self,
        account: AccountId,
        day: Day,
        limit: usize,
    ) -> Result<Vec<(KeyId, u64)>, StoreError> {
        let (set, space) = (Set { table: layout::REFUSED, part: part(day.number()) }, layout::space(account));
        // A key may appear on several pages.
        let (mut keys, mut place) = (BTreeMap::new(), None);
        loop {
            let page = self.read().ask(&space, vec![Question::Set(set, place)]).await?.pop();
            let Some(Answer::Set(records, next)) = page else { return Err(no_answer()) };
            for (name, record) in records {
                let key = name.split_first().filter(|(tag, _)| **tag == b'k');
                let Some(key) = key.and_then(|(_, id)| KeyId::from_slice(id)) else { continue };
                let counts = value::<RefusedDay>(&record)?.counts;
                let sum = counts.iter().fold(0, |sum: u64, of| sum.saturating_add(of.count));
                keys.insert(key, sum);
            }
            place = next;
            if place.is_none() {
                break;
            }
        }
        let mut keys: Vec<(KeyId, u64)> = keys.into_iter().collect();
        keys.sort_by_key(|(_, count)| Reverse(*count));
        keys.truncate(limit);
        Ok(keys)
    }
}

/// Adds to the counts, and drops counts for days before `first`.
fn add(view: &mut View, additions: &[(DayOfKey, Vec<RefusedCount>)], first: u32) -> Result<(), StoreError> {
    let mut kept: RefusedDays = view.get(&days())?.unwrap_or_default();
    for ((number, key), added) in additions {
        let name = of_key(*number, *key);
        let mut day = view.get(&name)?.unwrap_or_default();
        for RefusedCount { hour, reason, count } in added {
            let before = day.counts.iter_mut().find(|of| of.hour == *hour && of.reason == *reason);
            match before {
                Some(before) => before.count = before.count.saturating_add(*count),
                None => {
                    day.counts.push(RefusedCount { hour: *hour, reason: reason.clone(), count: *count });
                }
            }
        }
        view.put(&name, day);
        if let Err(place) = kept.days.binary_search(number) {
            kept.days.insert(place, *number);
        }
    }
    let ended = kept.days.partition_point(|day| *day < first);
    for day in kept.days.drain(..ended) {
        view.drop_set(Set { table: layout::REFUSED, part: day });
    }
    view.put(&days(), kept);
    Ok(())
}

/// Names the counts for a day, of one key or the whole account.
fn of_key(day: u32, key: Option<KeyId>) -> RecordName<RefusedDay> {
    let key = key.map_or_else(|| b"a".to_vec(), |key| layout::tagged(b'k', key.as_bytes()));
    layout::of_part(layout::REFUSED, day, key)
}

/// Names the counts of the whole account for today.
pub(crate) fn of_today(now: Timestamp) -> RecordName<RefusedDay> {
    of_key(part(Hour::of(now).day().number()), None)
}

/// Names the list of days that have counts.
fn days() -> RecordName<RefusedDays> {
    layout::name(layout::HOUSE, *b"r")
}

/// Returns the number of the part that contains a day. Days before 1970 are in the first part.
fn part(day: i64) -> u32 {
    u32::try_from(day).unwrap_or_default()
}

/// Adds up the counts by reason, largest first.
fn by_reason(counts: impl Iterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (reason, count) in counts {
        let sum = sums.entry(reason).or_default();
        *sum = sum.saturating_add(count);
    }
    let mut sums: Vec<(String, u64)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, count)| Reverse(*count));
    sums
}
