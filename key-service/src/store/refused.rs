//! Counts of refused calls.

use std::{cmp::Reverse, collections::BTreeMap, ops::RangeInclusive};

use async_trait::async_trait;
use shared::{
    ids::{AccountId, KeyId},
    time::Timestamp,
};

use super::StoreError;
use domain::usage::Day;

/// Days for which counts of refused calls are kept.
pub(crate) const REFUSED_KEPT_DAYS: i64 = 31;
/// Milliseconds of an hour.
const HOUR: i64 = 3_600_000;

/// An hour in UTC: the number of hours since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour(pub i64);

impl Hour {
    /// The hour of an instant.
    pub const fn of(at: Timestamp) -> Self {
        Self(at.millis().div_euclid(HOUR))
    }

    /// The first hour of the day.
    #[must_use]
    pub const fn midnight(self) -> Self {
        Self(self.day() * 24)
    }

    /// The day of the hour, in days since 1970.
    pub(crate) const fn day(self) -> i64 {
        self.0.div_euclid(24)
    }
}

/// Number of calls of a key that were refused within an hour for a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedLine {
    /// The key.
    pub key: KeyId,
    /// The hour.
    pub hour: Hour,
    /// Error code in the public API.
    pub reason: &'static str,
    /// Number of calls.
    pub count: u64,
}

/// Counts of refused calls by key, hour and reason.
#[async_trait]
pub trait RefusedCalls: Send + Sync + 'static {
    /// Adds to the counts of the account, at once for all lines. Counts that are older than [`REFUSED_KEPT_DAYS`] are dropped.
    async fn add_refused(&self, account: AccountId, lines: Vec<RefusedLine>) -> Result<(), StoreError>;

    /// Counts of these hours by reason, of one key or of the whole account; most first.
    async fn refused(
        &self,
        account: AccountId,
        hours: RangeInclusive<Hour>,
        key: Option<KeyId>,
    ) -> Result<Vec<(String, u64)>, StoreError>;

    /// The keys of the account with the most refused calls on a day, most first, at most `limit`.
    async fn refused_keys(
        &self,
        account: AccountId,
        day: Day,
        limit: usize,
    ) -> Result<Vec<(KeyId, u64)>, StoreError>;
}

/// The sums by reason, most first.
pub(super) fn by_reason(counts: impl Iterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (reason, count) in counts {
        let sum = sums.entry(reason).or_default();
        *sum = sum.saturating_add(count);
    }
    let mut sums: Vec<(String, u64)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, count)| Reverse(*count));
    sums
}
