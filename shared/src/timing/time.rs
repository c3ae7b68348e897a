//! Instants in milliseconds, with the ISO 8601 format of the API.

use std::{fmt, time::Duration};

use chrono::{DateTime, NaiveDateTime, SecondsFormat, Timelike, Utc};
use minicbor::{Decode, Encode};
use schemars::json_schema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Returns the whole milliseconds of a duration.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An instant: milliseconds since 1970-01-01T00:00:00Z, within the years 0 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode)]
#[cbor(transparent)]
pub struct Timestamp(#[n(0)] i64);

/// The first instant of the year 0. RFC 3339 cannot write earlier ones.
const FIRST_MILLI: i64 = -62_167_219_200_000;
/// The last millisecond of the year 9999. RFC 3339 cannot write later ones.
const LAST_MILLI: i64 = 253_402_300_799_999;

impl Timestamp {
    /// Milliseconds since 1970-01-01T00:00:00Z, clamped to the range of RFC 3339.
    pub const fn from_millis(millis: i64) -> Self {
        Self(if millis < FIRST_MILLI {
            FIRST_MILLI
        } else if millis > LAST_MILLI {
            LAST_MILLI
        } else {
            millis
        })
    }

    pub const fn millis(self) -> i64 {
        self.0
    }

    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Cuts the instant to whole seconds.
    #[must_use]
    pub const fn to_whole_seconds(self) -> Self {
        Self(self.seconds() * 1000)
    }

    /// Returns the instant this much later.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self::from_millis(self.0.saturating_add_unsigned(millis(duration)))
    }

    /// Returns the instant this much earlier.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self::from_millis(self.0.saturating_sub_unsigned(millis(duration)))
    }

    /// Parses the API's ISO 8601: RFC 3339 with any offset. It also accepts lower-case `t` and `z`, a space between
    /// date and time, no seconds, an offset without colon, and no offset (then UTC). Digits beyond milliseconds are
    /// cut. It refuses dates alone, leap seconds, days that do not exist, years after 9999 and surrounding blanks.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        // chrono accepts more than ISO 8601: signs, blanks and short years are refused here.
        let dated = bytes.len() >= 16 && begins_like(bytes, b"0000-00-00");
        if !dated || !matches!(bytes[10], b'T' | b't' | b' ') || !text.is_ascii() {
            return None;
        }
        let (date, clock) = (&text[..10], &text[11..]);
        let (clock, offset) = split_offset(clock)?;
        let clock = if clock.len() == 5 { format!("{clock}:00") } else { clock.to_owned() };
        let timed = begins_like(clock.as_bytes(), b"00:00:00") && !clock.contains(char::is_whitespace);
        if !timed || clock.get(6..8)? > "59" || clock.ends_with('.') {
            return None;
        }
        let local = NaiveDateTime::parse_from_str(&format!("{date}T{clock}"), "%Y-%m-%dT%H:%M:%S%.f").ok()?;
        let millis = local.and_utc().timestamp_millis() - offset;
        (FIRST_MILLI..=LAST_MILLI).contains(&millis).then_some(Self(millis))
    }
}

/// Returns whether a text begins like a shape, where a zero matches any digit.
fn begins_like(text: &[u8], shape: &[u8]) -> bool {
    let is_like = |(byte, sign): (&u8, &u8)| if *sign == b'0' { byte.is_ascii_digit() } else { byte == sign };
    text.len() >= shape.len() && text.iter().zip(shape).all(is_like)
}

/// Splits the offset, in milliseconds, off a time of day. Without an offset, the time is in UTC.
fn split_offset(clock: &str) -> Option<(&str, i64)> {
    if let Some(clock) = clock.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let Some(at) = clock.rfind(['+', '-']) else { return Some((clock, 0)) };
    let (clock, offset) = clock.split_at(at);
    let sign = if offset.starts_with('-') { -1 } else { 1 };
    let digits = match offset.len() {
        6 if offset.as_bytes()[3] == b':' => format!("{}{}", &offset[1..3], &offset[4..]),
        5 => offset[1..].to_owned(),
        _ => return None,
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes) = (digits[..2].parse::<i64>().ok()?, digits[2..].parse::<i64>().ok()?);
    (hours < 24 && minutes < 60).then_some((clock, sign * (hours * 60 + minutes) * 60_000))
}

/// Writes UTC with `Z`, with milliseconds only if there are any.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every timestamp is within chrono's range.
        let at = DateTime::<Utc>::from_timestamp_millis(self.0).unwrap_or_default();
        let format = if at.nanosecond() == 0 { SecondsFormat::Secs } else { SecondsFormat::Millis };
        f.write_str(&at.to_rfc3339_opts(format, true))
    }
}

impl<'b, C> Decode<'b, C> for Timestamp {
    fn decode(decoder: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        let millis = decoder.i64()?;
        let at = Self::from_millis(millis);
        if at.0 == millis {
            Ok(at)
        } else {
            Err(minicbor::decode::Error::message("not a time of the years 0 to 9999"))
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not a time")))
    }
}

crate::schema!(
    Timestamp,
    "Timestamp",
    |_| json_schema!({"type": "string", "format": "date-time", "description": "A time in UTC, in RFC 3339 format."})
);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        Timestamp::parse(text).map(|t| t.to_string())
    }

    #[test]
    fn every_accepted_spelling_is_echoed_in_utc() {
        for (spelling, canonical) in [
            ("2027-12-31T23:59:59Z", "2027-12-31T23:59:59Z"),
            ("2027-12-31T23:59:59+02:00", "2027-12-31T21:59:59Z"),
            ("2027-12-31T23:59:59-00:00", "2027-12-31T23:59:59Z"),
            ("2027-12-31t23:59:59z", "2027-12-31T23:59:59Z"),
            ("2027-12-31 23:59:59Z", "2027-12-31T23:59:59Z"),
            ("2027-12-31T23:59:59", "2027-12-31T23:59:59Z"),
            ("2027-12-31T23:59Z", "2027-12-31T23:59:00Z"),
            ("2027-12-31T23:59", "2027-12-31T23:59:00Z"),
            ("2027-12-31T23:59:59+0200", "2027-12-31T21:59:59Z"),
            ("2027-12-31T23:59:59.5Z", "2027-12-31T23:59:59.500Z"),
            ("2027-12-31T23:59:59.123456789Z", "2027-12-31T23:59:59.123Z"),
            ("2027-12-31T23:59:59.000000000001Z", "2027-12-31T23:59:59Z"),
            ("2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z"),
        ] {
            assert_eq!(read(spelling).as_deref(), Some(canonical), "{spelling}");
        }
    }

    #[test]
    fn what_is_no_instant_is_refused() {
        for text in [
            "2027-12-31",
            "20271231T235959Z",
            "2027-W52-5T00:00:00Z",
            "",
            "now",
            "2027-12-31T23:59:60Z",
            "2027-02-30T00:00:00Z",
            "2027-12-31T24:00:00Z",
            "9999-12-31T23:59:59-23:59",
            "+12027-12-31T00:00:00Z",
            " 2027-12-31T23:59:59Z",
            "2027-12-31T23:59:59Z ",
            "2027-12-31T23:59:59 Z",
            "2027-12-31T23:59:59.Z",
            "2027-12-31T23:59:59+2:00",
            "2027-12-31T23:59:59+24:00",
            "2027-1-31T23:59:59Z",
            "2027-12-31T3:59:59Z",
            "2027-12-31T23Z",
            "2027-12- 1T23:59:59Z",
            "2027-12-\r1T23:59:59Z",
            "2027- 1-31T23:59:59Z",
            "2027-12-31T3:59:5.1Z",
            "２０２７-12-31T23:59:59Z",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
