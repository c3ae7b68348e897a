//! The time zone that a reader chose for times, days and sums.

use std::ops::{Range, RangeInclusive};

use jiff::{
    civil::DateTime,
    tz::{TimeZone, db},
};
use shared::time::Timestamp;

use domain::usage::{Day, Hour, LocalHours};
use key_service_management::local_days::LocalDays;

const UTC: &str = "UTC";
/// Prefixes of names that are only aliases of other zones.
const ALIASES: [&str; 6] = ["Etc/", "US/", "Canada/", "Brazil/", "Chile/", "Mexico/"];

/// A zone of the IANA database, which a browser's cookie names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

/// The current day in a zone.
#[derive(Clone, Debug)]
pub struct Today {
    pub day: Day,
    pub zone: Zone,
}

impl Zone {
    pub fn utc() -> Self {
        Self { name: UTC.into(), zone: TimeZone::UTC }
    }

    /// Finds a zone, such as `Europe/Zurich`. `None` if there is no such zone.
    pub fn named(name: &str) -> Option<Self> {
        if [UTC, "Etc/UTC"].contains(&name) {
            return Some(Self::utc());
        }
        let zone = TimeZone::get(name).ok()?;
        let name = zone.iana_name()?.to_owned();
        Some(Self { name, zone })
    }

    /// Lists the names of all zones to choose from.
    pub fn names() -> Vec<String> {
        let names = db().available().map(|name| name.as_str().to_owned());
        let is_offered =
            |name: &String| name.contains('/') && ALIASES.iter().all(|prefix| !name.starts_with(prefix));
        let mut names: Vec<String> = names.filter(is_offered).collect();
        names.sort_unstable();
        names.insert(0, UTC.into());
        names
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the zone's name for headings: its city.
    pub fn title(&self) -> String {
        self.name.rsplit('/').next().unwrap_or(UTC).replace('_', " ")
    }

    pub fn is_utc(&self) -> bool {
        self.name == UTC
    }

    /// Returns whether the zone's offset from UTC was a whole number of hours at an instant, so that its days begin
    /// with an hour that is counted.
    pub fn has_full_hours(&self, at: Timestamp) -> bool {
        self.offset(at) % 3_600 == 0
    }

    pub fn today(&self, now: Timestamp) -> Today {
        Today { day: self.day_of(now), zone: self.clone() }
    }

    /// Returns the day of the zone at an instant.
    pub fn day_of(&self, at: Timestamp) -> Day {
        Day::of(Timestamp::from_millis(at.millis().saturating_add(self.offset(at) * 1_000)))
    }

    /// Returns the first instant of some days, and the first instant after them.
    pub fn bounds(&self, days: &RangeInclusive<Day>) -> Range<Timestamp> {
        self.begins(*days.start())..self.begins(days.end().plus(1))
    }

    /// Returns the first instant of a day.
    pub fn begins(&self, day: Day) -> Timestamp {
        let midnight = format!("{day}T00:00");
        self.instant(&midnight).unwrap_or_else(|| Timestamp::from_millis(day.millis().0))
    }

    /// Returns the hours in UTC that belong to these days.
    pub fn days(&self, days: RangeInclusive<Day>) -> LocalDays {
        if self.is_utc() {
            return LocalDays::utc(days);
        }
        let first = Timestamp::from_millis(days.start().plus(-2).millis().0);
        let end = Timestamp::from_millis(days.end().plus(2).millis().1);
        let mut offsets = vec![(Hour::of(first), self.offset(first).div_euclid(3_600))];
        if let Some(first) = of(first) {
            let changes = self.zone.following(first);
            let changes =
                changes.map(|change| (change.timestamp().as_millisecond(), change.offset().seconds()));
            let changes = changes.take_while(|(at, _)| *at <= end.millis());
            offsets.extend(changes.map(|(at, seconds)| {
                (Hour::of(Timestamp::from_millis(at)), i64::from(seconds).div_euclid(3_600))
            }));
        }
        LocalDays { days, hours: LocalHours::new(offsets) }
    }

    /// Reads a date and a time of the zone as browsers' inputs write them. A time that is skipped when summer time
    /// begins is read as one hour later. If a time occurs twice because summer time ends, the first occurrence is
    /// taken.
    pub fn instant(&self, text: &str) -> Option<Timestamp> {
        let at = self.zone.to_timestamp(text.trim().parse::<DateTime>().ok()?).ok()?;
        Some(Timestamp::from_millis(at.as_millisecond()))
    }

    /// Converts a time in UTC to the zone. Both are in the format of browsers' inputs. Any other text is returned as it
    /// is.
    pub fn from_utc(&self, text: &str) -> String {
        let local = || {
            let at = Timestamp::parse(text)?;
            let local = self.zone.to_datetime(of(at)?).to_string();
            Some(
                local
                    .strip_suffix(":00")
                    .filter(|text| text.len() == "2027-12-31T23:59".len())
                    .map_or(local.clone(), str::to_owned),
            )
        };
        if self.is_utc() { text.to_owned() } else { local().unwrap_or_else(|| text.to_owned()) }
    }

    /// Converts a time of the zone to UTC. Both are in the format of browsers' inputs. Any other text is returned as it
    /// is.
    pub fn to_utc(&self, text: &str) -> String {
        if self.is_utc() {
            return text.to_owned();
        }
        let utc = self.instant(text).map(|at| at.to_string());
        utc.map_or_else(|| text.to_owned(), |utc| utc.trim_end_matches('Z').to_owned())
    }

    /// Returns how many seconds the zone is ahead of UTC.
    fn offset(&self, at: Timestamp) -> i64 {
        of(at).map_or(0, |at| self.zone.to_offset(at).seconds().into())
    }
}

fn of(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_millisecond(at.millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    fn zone(name: &str) -> Zone {
        Zone::named(name).unwrap()
    }

    #[test]
    fn days_and_times_are_those_of_the_zone() {
        let zurich = zone("Europe/Zurich");
        assert_eq!((zurich.name(), zurich.title().as_str()), ("Europe/Zurich", "Zurich"));
        assert_eq!(zurich.day_of(at("2026-11-24T23:30Z")).to_string(), "2026-11-25");
        // Summer time begins on this day, and the day has 23 hours.
        let day = Day::parse("2026-03-29").unwrap();
        let Range { start, end } = zurich.bounds(&(day..=day));
        assert_eq!((start, end), (at("2026-03-28T23:00Z"), at("2026-03-29T22:00Z")));
        let LocalDays { days, hours } = zurich.days(day..=day);
        let counted = (Hour::of(start).0 - 30..Hour::of(end).0 + 30).map(Hour);
        let counted: Vec<Hour> = counted.filter(|hour| days.contains(&hours.of(*hour).day())).collect();
        assert_eq!((counted[0], counted.len()), (Hour::of(start), 23));
        assert!(zurich.has_full_hours(start) && !zone("Asia/Kolkata").has_full_hours(start));
    }

    #[test]
    fn inputs_are_in_the_zone_and_settings_in_utc() {
        let tokyo = zone("Asia/Tokyo");
        for (utc, local) in [
            ("2027-12-31T23:59", "2028-01-01T08:59"),
            ("2027-12-31T23:59:30", "2028-01-01T08:59:30"),
            ("2027-12-31T15:00", "2028-01-01T00:00"),
        ] {
            assert_eq!(tokyo.from_utc(utc), local);
            assert_eq!(Timestamp::parse(&tokyo.to_utc(local)), Timestamp::parse(utc));
            assert_eq!((Zone::utc().from_utc(utc).as_str(), Zone::utc().to_utc(utc).as_str()), (utc, utc));
        }
        for other in ["", "soon", "2027-13-31T23:59"] {
            assert_eq!((tokyo.from_utc(other).as_str(), tokyo.to_utc(other).as_str()), (other, other));
        }
    }

    #[test]
    fn zones_are_found_by_their_names_alone() {
        assert!(Zone::named("Etc/UTC").unwrap().is_utc());
        for wrong in ["", "Mars/Olympus", "../etc/passwd", "Europe/Zurich; path=/"] {
            assert_eq!(Zone::named(wrong), None, "{wrong}");
        }
        let names = Zone::names();
        assert!(names[0] == "UTC" && names.iter().all(|name| Zone::named(name).is_some()));
        assert!(names.contains(&"America/New_York".to_owned()));
    }
}
