//! What a key used of a model on a day: counters that grow with every settlement.

use std::fmt;

use shared::{ids::KeyId, money::NanoUsd, time::Timestamp, tokens::Usage};

use super::ledger::{Record, Settlement};

/// Most tokens of a kind that one request adds: a million times what any model takes. What an upstream claims beyond
/// that is nonsense, and would drown what others counted.
pub const COUNTED_PER_REQUEST: u64 = 1_000_000_000_000;

/// Where every counter stops: the largest integer that stores whose numbers are doubles (Lua inside Redis) hold exactly.
pub const COUNTED: u64 = (1 << 53) - 1;

/// Milliseconds of a day.
const DAY: i64 = 24 * 60 * 60 * 1000;

/// A day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(i64);

/// What was counted. No counter passes [`COUNTED`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Generations that were billed, those that cost nothing included.
    pub requests: u64,
    /// Their tokens.
    pub usage: Usage,
    /// What was charged for them.
    pub charged: NanoUsd,
}

/// What a step of a generation adds, and to which counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// The key that paid.
    pub key: KeyId,
    /// The model's id in the catalogue.
    pub model: String,
    /// The day on which it was billed.
    pub day: Day,
    /// How much.
    pub counts: Counts,
}

impl Day {
    /// The day of an instant.
    pub const fn of(at: Timestamp) -> Self {
        Self(at.millis().div_euclid(DAY))
    }

    /// The day so many days after 1970-01-01.
    pub const fn from_number(number: i64) -> Self {
        Self::of(Timestamp::from_millis(number.saturating_mul(DAY)))
    }

    /// Days since 1970-01-01.
    pub const fn number(self) -> i64 {
        self.0
    }

    /// Reads a date: `2026-11-21`.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 10 {
            return None;
        }
        Timestamp::parse(&format!("{text}T00:00Z")).map(Self::of)
    }
}

/// The date: `2026-11-21`.
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let midnight = Timestamp::from_millis(self.0.saturating_mul(DAY)).to_string();
        f.write_str(midnight.split('T').next().unwrap_or_default())
    }
}

impl Counts {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: stopped(self.requests, other.requests),
            usage: Usage {
                prompt: stopped(self.usage.prompt, other.usage.prompt),
                cached: stopped(self.usage.cached, other.usage.cached),
                completion: stopped(self.usage.completion, other.usage.completion),
            },
            charged: NanoUsd::from_nanos(stopped(nanos(self.charged), nanos(other.charged)).cast_signed()),
        }
    }
}

/// What the step from one record of a generation to the next adds to the counters; nothing unless it billed something
/// new. A first settlement counts a request. A late capture adds what its expiry had not counted, on its own day;
/// tokens that expiry counted too many stay counted.
pub fn added(before: &Record, after: &Record) -> Option<Added> {
    let Record::Closed(settled) = after else { return None };
    let counts = match before {
        Record::Closed(earlier) if earlier == settled => return None,
        Record::Closed(earlier) => {
            let (before, after) = (counted(earlier), counted(settled));
            Counts {
                requests: 0,
                usage: Usage {
                    prompt: after.prompt.saturating_sub(before.prompt),
                    cached: after.cached.saturating_sub(before.cached),
                    completion: after.completion.saturating_sub(before.completion),
                },
                charged: settled.charged.left_after(earlier.charged),
            }
        }
        Record::None | Record::Open(_) | Record::Deposited(_) => {
            Counts { requests: 1, usage: counted(settled), charged: settled.charged }
        }
    };
    let Settlement { key, ref model, at, .. } = *settled;
    Some(Added { key, model: model.clone(), day: Day::of(at), counts })
}

fn counted(Settlement { usage, .. }: &Settlement) -> Usage {
    Usage {
        prompt: usage.prompt.min(COUNTED_PER_REQUEST),
        cached: usage.cached.min(COUNTED_PER_REQUEST),
        completion: usage.completion.min(COUNTED_PER_REQUEST),
    }
}

fn stopped(a: u64, b: u64) -> u64 {
    a.saturating_add(b).min(COUNTED)
}

fn nanos(amount: NanoUsd) -> u64 {
    u64::try_from(amount.nanos()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ledger::{
        Ending,
        script::{START, key},
    };

    fn settled(prompt: u64, completion: u64, charged: i64, ending: Ending) -> Record {
        Record::Closed(Settlement {
            key: key(1),
            model: "Model Flash".into(),
            usage: Usage { prompt, cached: 0, completion },
            cost: NanoUsd::from_nanos(charged),
            charged: NanoUsd::from_nanos(charged),
            ending,
            estimated: false,
            at: START,
        })
    }

    fn counts(before: &Record, after: &Record) -> Option<(u64, u64, u64, i64)> {
        let Counts { requests, usage, charged } = added(before, after)?.counts;
        Some((requests, usage.prompt, usage.completion, charged.nanos()))
    }

    #[test]
    fn a_settlement_counts_a_request_and_its_repetition_nothing() {
        let captured = settled(10, 5, 7, Ending::Captured);
        assert_eq!(counts(&Record::None, &captured), Some((1, 10, 5, 7)));
        assert_eq!(counts(&captured, &captured), None);
        assert_eq!(counts(&captured, &Record::None), None);
        assert_eq!(counts(&Record::None, &Record::Deposited(NanoUsd::MAX)), None);
    }

    #[test]
    fn a_late_capture_adds_what_is_missing_and_takes_nothing_away() {
        let expired = settled(10, 5, 7, Ending::Expired);
        assert_eq!(counts(&expired, &settled(10, 9, 11, Ending::Captured)), Some((0, 0, 4, 4)));
        assert_eq!(counts(&expired, &settled(8, 9, 7, Ending::Captured)), Some((0, 0, 4, 0)));
    }

    #[test]
    fn nonsense_is_counted_up_to_a_bound_and_counters_stop_at_theirs() {
        let absurd = added(&Record::None, &settled(u64::MAX, 1, NanoUsd::MAX.nanos(), Ending::Captured));
        let absurd = absurd.unwrap().counts;
        assert_eq!(absurd.usage.prompt, COUNTED_PER_REQUEST);
        let twice = absurd.plus(absurd);
        assert_eq!((twice.requests, twice.charged.nanos()), (2, COUNTED.cast_signed()));
        let full = Counts { requests: COUNTED, ..Counts::default() };
        assert_eq!(full.plus(absurd).requests, COUNTED);
    }

    #[test]
    fn a_day_is_written_as_it_is_read() {
        for date in ["1970-01-01", "2024-02-29", "2026-11-21", "0001-01-01", "9999-12-31"] {
            assert_eq!(Day::parse(date).unwrap().to_string(), date);
        }
        for nonsense in ["", "2026-2-1", "2026-02-30", "21-11-2026", "2026-11-2é", "2026-11-21T"] {
            assert_eq!(Day::parse(nonsense), None, "{nonsense}");
        }
        assert_eq!(Day::of(Timestamp::from_millis(-1)).to_string(), "1969-12-31");
        assert_eq!(Day::of(START).to_string(), "2026-11-20");
    }
}
