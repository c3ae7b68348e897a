//! Rates: token buckets that refill evenly, and the return of tokens that a request did not use.
//!
//! A request first takes its maximum number of tokens and later returns what it did not use. Meanwhile the bucket
//! refills, and the refilled tokens admit other requests. Returning the refilled tokens as well would let a caller save
//! up tokens with waiting requests, so only tokens that are still missing are returned. All missing tokens refill
//! alike, whichever request took them: one fraction per bucket ([`Missing`]) shows how much of any request is still
//! missing.

use std::time::Duration;

use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{rates::RateLimit, time::Timestamp};

/// Number of units that one request or token takes from a rate's bucket. With this number, a limit of N per minute
/// refills N units per millisecond.
pub const RATE_UNITS: i64 = 60_000;

/// Maximum number of tokens of a request that count towards a rate. With [`MOST_TAKEN`], no sum overflows.
pub const MOST_TOKENS: u64 = 50_000_000_000;

/// Maximum number of taken units that a rate remembers.
pub const MOST_TAKEN: i64 = 6_000_000_000_000_000;

/// Units that remain because of rounding, but that callers see as free: a thousandth of a token.
const ROUNDING: i64 = RATE_UNITS / 1_000;

/// Maximum lead of a bucket's time over our clock. If the clocks of key-services differ by less, nothing is refilled
/// twice.
const BUCKET_LEAD: Duration = Duration::from_secs(1);

/// A bucket of `per_minute` requests or tokens that refills evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Rate {
    /// Requests or tokens allowed per minute; above zero.
    #[n(0)]
    pub per_minute: u64,
    /// Units missing from the bucket at the time `at`. Requests that used more tokens than expected may have taken more
    /// than the bucket holds.
    #[n(1)]
    pub taken: i64,
    #[n(2)]
    pub at: Timestamp,
    /// Share of the taken units that is missing at the time `at`.
    #[n(3)]
    pub missing: Missing,
}

/// How much of what was taken since a given time has not refilled yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Missing {
    /// When the bucket was last counted as full. Everything taken before has refilled.
    #[n(0)]
    pub since: Timestamp,
    /// Numerator over `u32::MAX`.
    #[n(1)]
    pub part: u32,
}

/// Returns the state of the tightest of several rates.
pub fn tightest(rates: impl Iterator<Item = Rate>, now: Timestamp) -> Option<RateLimit> {
    rates.map(|rate| rate.status(now)).min_by_key(|limit| (limit.remaining, limit.limit))
}

impl Rate {
    /// Returns a full bucket, which allows `per_minute` requests or tokens at once.
    pub const fn new(per_minute: u64, now: Timestamp) -> Self {
        Self { per_minute, taken: 0, at: now, missing: Missing::all(now) }
    }

    pub(super) fn changed(rate: Option<Self>, per_minute: Option<u64>, now: Timestamp) -> Option<Self> {
        let per_minute = per_minute?;
        let rate = rate.map_or(Self::new(per_minute, now), |rate| rate.at(now));
        Some(Self { per_minute, ..rate })
    }

    /// Returns the bucket as of this time. A clock that steps back refills nothing. If it steps back by more than a
    /// second, the bucket continues from now with what was taken, so that nobody waits for the clock to catch up.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Self {
        if self.at > now.plus(BUCKET_LEAD) {
            return Self { at: now, ..self };
        }
        let passed = now.millis().saturating_sub(self.at.millis()).max(0);
        let refilled = passed.saturating_mul(self.units_per_milli());
        let (taken, at) = (self.taken.saturating_sub(refilled).max(0), self.at.max(now));
        let missing = if passed > 0 { self.missing.refilled(self.taken, taken, at) } else { self.missing };
        Self { taken, at, missing, ..self }
    }

    /// Returns the time to wait for this many requests or tokens; `None` if there is room now.
    pub fn wait_for(self, count: u64, now: Timestamp) -> Option<Duration> {
        let missing = self.at(now).taken + units(count) - self.capacity();
        (missing > 0).then(|| self.time_of(missing))
    }

    /// Returns the bucket's state as callers see it.
    pub fn status(self, now: Timestamp) -> RateLimit {
        let taken = self.at(now).taken;
        let free = (self.capacity() - taken.saturating_sub(ROUNDING).max(0)).max(0);
        RateLimit {
            limit: self.per_minute,
            remaining: free.unsigned_abs() / RATE_UNITS.unsigned_abs(),
            reset: self.time_of(taken),
        }
    }

    /// Takes this many requests or tokens. Returns the share that is missing now, for [`Rate::replace`].
    pub(super) fn take(&mut self, count: u64, now: Timestamp) -> Missing {
        *self = self.at(now);
        self.change(units(count));
        self.missing
    }

    /// Replaces a count that was taken when the share `then` was missing. If the new count is smaller, only what is
    /// still missing is returned. If the bucket did not count the request (`then` is absent), nothing is returned.
    pub(super) fn replace(&mut self, counted: u64, then: Option<Missing>, by: u64, now: Timestamp) {
        *self = self.at(now);
        let returnable = then.map_or(0, |then| self.missing.of(units(counted), then));
        self.change((units(by) - units(counted)).max(-returnable));
    }

    fn change(&mut self, units: i64) {
        self.taken = (self.taken + units).clamp(0, MOST_TAKEN);
    }

    fn capacity(self) -> i64 {
        self.units_per_milli().saturating_mul(RATE_UNITS)
    }

    fn units_per_milli(self) -> i64 {
        i64::try_from(self.per_minute).unwrap_or(i64::MAX).max(1)
    }

    /// Returns how long this many units take to refill, rounded up.
    fn time_of(self, units: i64) -> Duration {
        Duration::from_millis(units.unsigned_abs().div_ceil(self.units_per_milli().unsigned_abs()))
    }
}

impl Missing {
    /// Everything that was taken is missing.
    const ALL: u32 = u32::MAX;
    /// Minimum share that is tracked, one in 65,536. Below it, rounding to milliseconds would show.
    const LEAST: u32 = 1 << 16;

    pub const fn all(since: Timestamp) -> Self {
        Self { since, part: Self::ALL }
    }

    /// Returns the share after a refill at this time that left `after` of `before` units taken, rounded down.
    fn refilled(self, before: i64, after: i64, at: Timestamp) -> Self {
        let part = i128::from(self.part) * i128::from(after) / i128::from(before.max(1));
        match u32::try_from(part) {
            Ok(part) if part >= Self::LEAST => Self { part, ..self },
            Ok(_) | Err(_) => Self::all(at),
        }
    }

    /// Returns how many of these units, taken when `then` was missing, are missing now, rounded down.
    fn of(self, units: i64, then: Self) -> i64 {
        if self.since != then.since {
            return 0;
        }
        let missing = i128::from(units) * i128::from(self.part) / i128::from(then.part.max(1));
        i64::try_from(missing).unwrap_or(units).min(units)
    }
}

fn units(count: u64) -> i64 {
    count.min(MOST_TOKENS).cast_signed() * RATE_UNITS
}
