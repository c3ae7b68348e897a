//! Calendar windows in UTC: hours, days, weeks from Monday, months.

use std::time::Duration;

use chrono::{DateTime, Datelike, Days, Months, NaiveDate, Utc};
use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::timing::time::Timestamp;

const HOUR: i64 = 60 * 60 * 1_000;

/// Length of a calendar window. The names are wire format: add, never rename.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Encode,
    Decode,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum Per {
    /// From a full hour to the next.
    #[n(0)]
    Hour,
    /// From midnight to midnight.
    #[n(1)]
    Day,
    /// From Monday to Monday.
    #[n(2)]
    Week,
    /// From the first of a month to the first of the next.
    #[n(3)]
    Month,
}

crate::names! { Per: Hour = "hour", Day = "day", Week = "week", Month = "month" }

impl Per {
    /// Returns the first instant of the window that contains this instant.
    pub fn beginning(self, at: Timestamp) -> Timestamp {
        let date = date(at);
        match self {
            Self::Hour => Timestamp::from_millis(at.millis().div_euclid(HOUR) * HOUR),
            Self::Day => midnight(Some(date)),
            Self::Week => midnight(date.checked_sub_days(Days::new(days_since_monday(date)))),
            Self::Month => midnight(date.with_day(1)),
        }
    }

    /// Returns the first instant after the window that contains this instant. The last window of the year 9999 ends
    /// with the latest timestamp.
    pub fn end(self, at: Timestamp) -> Timestamp {
        let date = date(at);
        match self {
            Self::Hour => self.beginning(at).plus(Duration::from_hours(1)),
            Self::Day => midnight(date.succ_opt()),
            Self::Week => midnight(date.checked_add_days(Days::new(7 - days_since_monday(date)))),
            Self::Month => {
                midnight(date.with_day(1).and_then(|first| first.checked_add_months(Months::new(1))))
            }
        }
    }
}

fn date(at: Timestamp) -> NaiveDate {
    // Every timestamp is within chrono's range.
    DateTime::<Utc>::from_timestamp_millis(at.millis()).unwrap_or_default().date_naive()
}

fn days_since_monday(date: NaiveDate) -> u64 {
    date.weekday().num_days_from_monday().into()
}

/// Returns the beginning of a day. The days next to any timestamp are within chrono's range.
fn midnight(date: Option<NaiveDate>) -> Timestamp {
    let midnight = date.and_then(|date| date.and_hms_opt(0, 0, 0)).unwrap_or_default();
    Timestamp::from_millis(midnight.and_utc().timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn windows_follow_the_calendar_in_utc() {
        for (per, at, beginning, end) in [
            (Per::Hour, "2026-11-23T02:17:29.5Z", "2026-11-23T02:00Z", "2026-11-23T03:00Z"),
            (Per::Hour, "2026-12-31T23:59:59.999Z", "2026-12-31T23:00Z", "2027-01-01T00:00Z"),
            (Per::Day, "2028-02-28T23:59:59.999Z", "2028-02-28T00:00Z", "2028-02-29T00:00Z"),
            (Per::Day, "2028-02-29T00:00Z", "2028-02-29T00:00Z", "2028-03-01T00:00Z"),
            // The 23rd of November 2026 is a Monday.
            (Per::Week, "2026-11-22T23:59:59.999Z", "2026-11-16T00:00Z", "2026-11-23T00:00Z"),
            (Per::Week, "2026-11-23T00:00Z", "2026-11-23T00:00Z", "2026-11-30T00:00Z"),
            (Per::Week, "2027-01-02T12:00Z", "2026-12-28T00:00Z", "2027-01-04T00:00Z"),
            (Per::Week, "1970-01-01T00:00Z", "1969-12-29T00:00Z", "1970-01-05T00:00Z"),
            (Per::Month, "2027-02-28T23:59:59.999Z", "2027-02-01T00:00Z", "2027-03-01T00:00Z"),
            (Per::Month, "2026-12-31T12:00Z", "2026-12-01T00:00Z", "2027-01-01T00:00Z"),
            (Per::Month, "2028-01-31T12:00Z", "2028-01-01T00:00Z", "2028-02-01T00:00Z"),
        ] {
            assert_eq!(per.beginning(time(at)), time(beginning), "{per:?} of {at}");
            assert_eq!(per.end(time(at)), time(end), "{per:?} of {at}");
        }
    }

    #[test]
    fn windows_at_the_ends_of_time_have_a_beginning_and_an_end() {
        let (first, last) = (Timestamp::from_millis(i64::MIN), Timestamp::from_millis(i64::MAX));
        for per in Per::ALL {
            assert_eq!(per.beginning(first), first, "{per:?}");
            assert_eq!(per.end(last), last, "{per:?}");
        }
    }

    #[test]
    fn the_name_in_the_api_is_the_name_in_json() {
        for per in Per::ALL {
            assert_eq!(serde_json::to_string(&per).unwrap(), format!("\"{}\"", per.as_str()));
        }
    }
}
