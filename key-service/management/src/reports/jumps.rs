//! Keys that suddenly spend many times more than usual.
//!
//! The largest payers among the account's latest bills are compared with their own past week, so the cost is bounded
//! for accounts of any size. In an account with more bills per hour than are read, a key that has just begun to spend
//! is found once it dominates the latest bills.

use std::collections::BTreeMap;

use shared::{
    ids::{AccountId, KeyId},
    money::NanoUsd,
};

use crate::management::Management;
use domain::usage::{Day, Hour, Jump, SpendHistory, Sums, jump, ranked};
use key_service_store::store::{AccountDay, OtherSums, StoreError, UsageLine};

/// Number of latest bills among which the largest payers are found: a few milliseconds of work.
const BILLS: usize = 500;
/// Number of largest payers that are compared with their past.
const COMPARED: usize = 4;
/// Number of days that define the usual spend.
const DAYS: i64 = 7;
const MILLIS_OF_A_MINUTE: i64 = 60_000;

/// A key that suddenly spends more than usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpendJump {
    pub key: KeyId,
    pub jump: Jump,
}

impl Management {
    /// Finds the keys that suddenly spend many times more than usual, highest spend first.
    pub async fn spend_jumps(&self, account: AccountId) -> Result<Vec<SpendJump>, StoreError> {
        let _permit = self.read_permit(account).await?;
        let now = self.clock.now();
        // Recent spend covers the last full hour and the current hour, because sums are kept by hour.
        let begin = Hour(Hour::of(now).0 - 1);
        let minutes = (now.millis() - begin.begins().millis()) / MILLIS_OF_A_MINUTE;
        let minutes = u32::try_from(minutes).unwrap_or(u32::MAX);
        let latest = self.store.latest_entries(account, None, BILLS).await?;
        let lately = latest.iter().filter(|found| found.entry.settlement.at >= begin.begins()).map(|found| {
            let sums = Sums { charged: found.entry.delta, ..Sums::default() };
            (found.entry.settlement.payer.key, sums)
        });
        let largest = ranked(lately, |sums| sums.charged.nanos());
        let keys: Vec<KeyId> = largest.into_iter().take(COMPARED).map(|(key, _)| key).collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let today = Day::of(now);
        let past = today.plus(-DAYS)..=today.plus(-1);
        let before = self.store.account_days(account, past, OtherSums::default()).await?;
        let charged = |day: &AccountDay| {
            let models = day.models.values().map(|total| total.of.sums.charged.nanos());
            models.fold(0, i64::saturating_add)
        };
        let of_days: Vec<i64> = before.iter().map(charged).filter(|day| *day > 0).collect();
        let sum = of_days.iter().copied().fold(0, i64::saturating_add);
        let usual_day = sum / i64::try_from(of_days.len().max(1)).unwrap_or(1);
        let lines = self.store.usage(account, today.plus(-DAYS)..=today, Some(&keys)).await?;
        let mut jumps: Vec<SpendJump> = keys
            .into_iter()
            .filter_map(|key| {
                let of = spend_history(lines.iter().filter(|line| line.payer.key == key), begin, minutes);
                Some(SpendJump { key, jump: jump(&of, NanoUsd::from_nanos(usual_day))? })
            })
            .collect();
        jumps.sort_by_key(|found| std::cmp::Reverse(found.jump.spent));
        Ok(jumps)
    }
}

/// Sums a key's spend since the hour `begin`, and in each hour before it.
fn spend_history<'a>(lines: impl Iterator<Item = &'a UsageLine>, begin: Hour, minutes: u32) -> SpendHistory {
    let (mut spent, mut hours) = (0_i64, BTreeMap::<Hour, i64>::new());
    for line in lines {
        for (hour, counts) in line.counts.hours.iter() {
            let hour = Hour::in_day(line.day, hour);
            let sum = if hour >= begin { &mut spent } else { hours.entry(hour).or_default() };
            *sum = sum.saturating_add(counts.charged.nanos());
        }
    }
    let hours = hours.into_values().filter(|hour| *hour > 0).map(NanoUsd::from_nanos).collect();
    SpendHistory { spent: NanoUsd::from_nanos(spent), minutes, hours }
}
