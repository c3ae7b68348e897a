//! Days and hours of a reader's time zone, from counters that are kept by hours in UTC.

use std::ops::RangeInclusive;

use super::days::{Day, Hour};

/// How far a time zone is ahead of UTC, in whole hours, from each of some hours on. Counters have no finer steps, so
/// in a zone with half hours, a day begins with its first full hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalHours(Vec<(Hour, i64)>);

impl LocalHours {
    /// Hours in UTC.
    pub const UTC: Self = Self(Vec::new());

    /// Returns the hours of a zone. `offsets` are hours in UTC, in order, each with the offset from then on. The first
    /// offset also applies to all earlier hours.
    pub const fn new(offsets: Vec<(Hour, i64)>) -> Self {
        Self(offsets)
    }

    /// Returns whether days and hours are those of UTC.
    pub fn are_utc(&self) -> bool {
        self.0.iter().all(|(_, offset)| *offset == 0)
    }

    /// Returns the hour of the zone that an hour in UTC belongs to.
    #[must_use]
    pub fn of(&self, utc: Hour) -> Hour {
        let since = self.0.iter().rev().find(|(since, _)| *since <= utc).or(self.0.first());
        Hour(utc.0 + since.map_or(0, |(_, offset)| *offset))
    }

    /// Returns the days in UTC that contain all hours of these days of the zone.
    pub fn utc_days(&self, days: &RangeInclusive<Day>) -> RangeInclusive<Day> {
        let is_ahead = self.0.iter().any(|(_, offset)| *offset > 0);
        let is_behind = self.0.iter().any(|(_, offset)| *offset < 0);
        days.start().plus(-i64::from(is_ahead))..=days.end().plus(i64::from(is_behind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_belongs_to_the_day_of_the_zone() {
        let day = |date: &str| Day::parse(date).unwrap();
        let hour = |date: &str, hour| Hour::in_day(day(date), hour);
        // Summer time in Zurich ends on 2026-10-25 at 01:00 UTC.
        let zurich = LocalHours::new(vec![(hour("2026-10-01", 0), 2), (hour("2026-10-25", 1), 1)]);
        for (utc, local) in [
            (hour("2026-09-01", 21), hour("2026-09-01", 23)),
            (hour("2026-10-24", 22), hour("2026-10-25", 0)),
            (hour("2026-10-25", 0), hour("2026-10-25", 2)),
            (hour("2026-10-25", 1), hour("2026-10-25", 2)),
            (hour("2026-10-25", 22), hour("2026-10-25", 23)),
            (hour("2026-10-25", 23), hour("2026-10-26", 0)),
        ] {
            assert_eq!(zurich.of(utc), local);
        }
        let days = day("2026-10-25")..=day("2026-10-26");
        assert_eq!(zurich.utc_days(&days), day("2026-10-24")..=day("2026-10-26"));
        let adak = LocalHours::new(vec![(hour("2026-10-01", 0), -10)]);
        assert_eq!(adak.utc_days(&days), day("2026-10-25")..=day("2026-10-27"));
        assert_eq!(adak.of(hour("2026-10-25", 9)), hour("2026-10-24", 23));
        assert!(LocalHours::UTC.are_utc() && !adak.are_utc());
        assert_eq!((LocalHours::UTC.of(Hour(7)), LocalHours::UTC.utc_days(&days)), (Hour(7), days));
    }
}
