//! Days and hours in UTC.

use std::{fmt, time::Duration};

use shared::time::Timestamp;

/// For this long after midnight, the previous day's counters may still change. Key-service clocks differ by seconds at
/// most.
const LATE: Duration = Duration::from_mins(10);

const HOUR: i64 = 60 * 60 * 1000;
const DAY: i64 = 24 * HOUR;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(i64);

/// An hour in UTC: the number of hours since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour(pub i64);

impl Day {
    pub const fn of(at: Timestamp) -> Self {
        Self(at.millis().div_euclid(DAY))
    }

    /// Returns the day this many days after 1970-01-01.
    pub const fn from_number(number: i64) -> Self {
        Self::of(Timestamp::from_millis(number.saturating_mul(DAY)))
    }

    pub const fn number(self) -> i64 {
        self.0
    }

    /// Returns the last day whose counters can no longer change.
    pub fn closed(now: Timestamp) -> Self {
        Self::of(now.minus(LATE)).plus(-1)
    }

    /// Returns the first and the last millisecond of the day.
    pub const fn millis(self) -> (i64, i64) {
        let begins = self.0.saturating_mul(DAY);
        (begins, begins.saturating_add(DAY - 1))
    }

    #[must_use]
    pub const fn plus(self, days: i64) -> Self {
        Self::from_number(self.0.saturating_add(days))
    }

    /// Returns whether the day begins a week.
    pub const fn is_monday(self) -> bool {
        // Day 0, 1970-01-01, was a Thursday, so Monday is four days later.
        (self.0 + 3).rem_euclid(7) == 0
    }

    /// Parses a date like `2026-11-21`.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 10 {
            return None;
        }
        Timestamp::parse(&format!("{text}T00:00Z")).map(Self::of)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let midnight = Timestamp::from_millis(self.0.saturating_mul(DAY)).to_string();
        f.write_str(midnight.split('T').next().unwrap_or_default())
    }
}

impl Hour {
    /// Returns the hour that contains an instant.
    pub const fn of(at: Timestamp) -> Self {
        Self(at.millis().div_euclid(HOUR))
    }

    /// Returns the hour that begins this many hours after a day's midnight.
    pub fn in_day(day: Day, hour: u8) -> Self {
        Self(day.0.saturating_mul(24).saturating_add(hour.into()))
    }

    /// Returns the first hour of the same day.
    #[must_use]
    pub const fn midnight(self) -> Self {
        Self(self.day().0 * 24)
    }

    pub const fn day(self) -> Day {
        Day(self.0.div_euclid(24))
    }

    /// Returns the hour's number within its day, from 0 to 23.
    pub const fn of_day(self) -> u8 {
        let [hour, ..] = self.0.rem_euclid(24).to_le_bytes();
        hour
    }

    /// Returns the instant at which the hour begins.
    pub const fn begins(self) -> Timestamp {
        Timestamp::from_millis(self.0.saturating_mul(HOUR))
    }
}
