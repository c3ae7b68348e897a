//! Days of a reader's time zone, and the sums that belong to them.

use std::ops::RangeInclusive;

use domain::usage::{Day, Hour, HoursOfDay, LocalHours, Sums};
use key_service_store::store::UsageLine;

/// Days of a reader's time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalDays {
    pub days: RangeInclusive<Day>,
    pub hours: LocalHours,
}

impl LocalDays {
    /// Returns these days as days in UTC.
    pub const fn utc(days: RangeInclusive<Day>) -> Self {
        Self { days, hours: LocalHours::UTC }
    }

    /// Returns the days in UTC that contain all hours of these days.
    pub fn utc_days(&self) -> RangeInclusive<Day> {
        self.hours.utc_days(&self.days)
    }

    /// Splits the sums of a day in UTC into hours of the zone, and leaves out hours of other days. Counts whose hour is
    /// unknown are put into the first hour of the day in UTC.
    pub(super) fn hours_of(&self, day: Day, whole: Sums, hours: &HoursOfDay) -> Vec<(Hour, Sums)> {
        let left = whole.less(hours.total().into());
        let unknown = (left != Sums::default()).then_some((Hour::in_day(day, 0), left));
        let known = hours.iter().map(|(hour, counts)| (Hour::in_day(day, hour), counts.into()));
        let local = known.chain(unknown).map(|(hour, sums)| (self.hours.of(hour), sums));
        local.filter(|(hour, _)| self.days.contains(&hour.day())).collect()
    }

    /// Splits the sums of a day in UTC into days of the zone, at most two, each under its first hour.
    pub(super) fn days_of(&self, day: Day, whole: Sums, hours: &HoursOfDay) -> Vec<(Hour, Sums)> {
        let mut days: Vec<(Hour, Sums)> = Vec::with_capacity(2);
        for (hour, sums) in self.hours_of(day, whole, hours) {
            match days.iter_mut().find(|(first, _)| *first == hour.midnight()) {
                Some((_, of_day)) => *of_day = of_day.plus(sums),
                None => days.push((hour.midnight(), sums)),
            }
        }
        days
    }

    /// Returns the part of a line's sums that belongs to these days.
    pub(super) fn sums_of(&self, UsageLine { day, counts, .. }: &UsageLine) -> Sums {
        let whole = counts.of.into();
        if self.hours.are_utc() {
            return whole;
        }
        let hours = self.hours_of(*day, whole, &counts.hours);
        hours.into_iter().fold(Sums::default(), |all, (_, sums)| all.plus(sums))
    }
}
