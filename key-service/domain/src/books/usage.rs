//! Daily usage counters by payer, updated by every settlement.

mod counts;
mod days;
mod jump;
mod local;
mod packed;
mod parts;
mod ranking;
mod runway;

use shared::{money::NanoUsd, tokens::Usage};

use self::counts::difference;
pub use self::counts::{COUNTED, Counts, Margin, Sums};
pub use self::days::{Day, Hour};
pub use self::jump::{Jump, SpendHistory, jump};
pub use self::local::LocalHours;
pub use self::parts::{
    DayTotal, GroupDay, GroupKeys, GroupPart, HOURS, HoursOfDay, PartCounts, USER_PARTS, UserDay,
    counting_groups, part_of_user,
};
pub use self::ranking::{permille, ranked};
pub use self::runway::{RATE_DAYS, SpendRate};
use crate::ledger::{Entry, Payer, Record, Settlement};

/// Maximum number of tokens of each kind that one request can add to the counters. No model's context has more than
/// about a millionth of this. A larger number is an upstream's error and would distort the counters.
pub const COUNTED_PER_REQUEST: u64 = 1_000_000_000_000;

/// What an entry adds to the counters of a payer on a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added<'a> {
    pub payer: &'a Payer,
    /// The user that the caller sent; `None` if it sent none.
    pub user: Option<&'a str>,
    pub day: Day,
    /// Hour of the day, from 0 to 23.
    pub hour: u8,
    pub counts: Counts,
}

/// Returns what a journal entry adds to the counters. `before` is the generation's record before the entry. The first
/// settlement of a generation counts as a request. The correction of an expiry counts on the day of the correction, so
/// that day's charge may be negative. Tokens that the expiry overcounted are not subtracted. A late capture adds
/// nothing.
pub fn added<'a>(before: &Record, entry: &'a Entry) -> Added<'a> {
    let settlement = &entry.settlement;
    let (known, usage) = (at_known_cost(settlement), counted(settlement));
    let counts = match before {
        _ if !settlement.ending.is_bill() => Counts::default(),
        Record::Closed(earlier) => {
            let known_before = at_known_cost(earlier);
            Counts {
                requests: 0,
                usage: usage.zip(counted(earlier), u64::saturating_sub),
                charged: entry.delta,
                upstream_cost: difference(known.upstream_cost, known_before.upstream_cost),
                charged_at_known_cost: difference(known.charged, known_before.charged),
            }
        }
        Record::None | Record::Open(_) | Record::Deposited(_) => Counts {
            requests: 1,
            usage,
            charged: entry.delta,
            upstream_cost: known.upstream_cost,
            charged_at_known_cost: known.charged,
        },
    };
    let hour = Hour::of(settlement.at);
    let (payer, user) = (&settlement.payer, settlement.user());
    Added { payer, user, day: hour.day(), hour: hour.of_day(), counts }
}

/// A settlement's upstream cost and charge, both zero if its upstream cost is unknown.
struct AtKnownCost {
    upstream_cost: NanoUsd,
    charged: NanoUsd,
}

fn at_known_cost(settlement: &Settlement) -> AtKnownCost {
    match settlement.upstream_cost {
        Some(upstream_cost) => AtKnownCost { upstream_cost, charged: settlement.charged },
        None => AtKnownCost { upstream_cost: NanoUsd::ZERO, charged: NanoUsd::ZERO },
    }
}

fn counted(Settlement { usage, .. }: &Settlement) -> Usage {
    usage.zip(*usage, |tokens, _| tokens.min(COUNTED_PER_REQUEST))
}

#[cfg(test)]
mod tests {
    use shared::tokens::UsageDetails;

    use super::*;
    use crate::ledger::{
        Ending,
        histories::{START, key},
    };

    fn settled(prompt: u64, completion: u64, charged: i64, ending: Ending) -> Settlement {
        Settlement {
            payer: Payer { key: key(1), model: "Model Flash".into(), groups: [None, None] },
            origin: None,
            usage: Usage::of(prompt, 0, completion),
            cost: NanoUsd::from_nanos(charged),
            upstream_cost: None,
            charged: NanoUsd::from_nanos(charged),
            ending,
            estimated: false,
            at: START,
            course: None,
        }
    }

    fn counts(before: &Record, settlement: Settlement, delta: i64) -> (u64, u64, u64, i64) {
        let delta = NanoUsd::from_nanos(delta);
        let Counts { requests, usage, charged, .. } =
            added(before, &Entry { settlement, delta, used_after: NanoUsd::MAX }).counts;
        (requests, usage.prompt, usage.completion, charged.nanos())
    }

    #[test]
    fn a_settlement_counts_a_request() {
        assert_eq!(counts(&Record::None, settled(10, 5, 7, Ending::Captured), 7), (1, 10, 5, 7));
    }

    #[test]
    fn a_correction_counts_its_change() {
        let expired = Record::Closed(settled(10, 5, 7, Ending::Expired));
        assert_eq!(counts(&expired, settled(10, 9, 11, Ending::Captured), 4), (0, 0, 4, 4));
        assert_eq!(counts(&expired, settled(8, 9, 2, Ending::Captured), -5), (0, 0, 4, -5));
    }

    #[test]
    fn details_are_counted_and_a_correction_counts_what_is_more() {
        let with = |reasoning, images| {
            let details = UsageDetails { reasoning, images, ..UsageDetails::default() };
            let usage = Usage { details, ..Usage::of(10, 0, 9) };
            Settlement { usage, ..settled(10, 9, 7, Ending::Expired) }
        };
        let entry = |settlement| Entry { settlement, delta: NanoUsd::ZERO, used_after: NanoUsd::ZERO };
        let details = |before, after| added(&before, &entry(after)).counts.usage.details;
        let expected = |reasoning, images| UsageDetails { reasoning, images, ..UsageDetails::default() };
        assert_eq!(details(Record::None, with(5, 1)), expected(5, 1));
        assert_eq!(details(Record::Closed(with(5, 1)), with(7, 1)), expected(2, 0));
    }

    #[test]
    fn the_margin_counts_what_was_charged_where_the_upstream_cost_is_known() {
        let with = |charged, upstream_cost: Option<i64>| {
            let upstream_cost = upstream_cost.map(NanoUsd::from_nanos);
            Settlement { upstream_cost, ..settled(1, 1, charged, Ending::Captured) }
        };
        let sums = |before: Record, after: Settlement, delta| {
            let delta = NanoUsd::from_nanos(delta);
            let entry = Entry { settlement: after, delta, used_after: NanoUsd::ZERO };
            let counts = added(&before, &entry).counts;
            (counts.charged.nanos(), counts.charged_at_known_cost.nanos(), counts.upstream_cost.nanos())
        };
        assert_eq!(sums(Record::None, with(7, None), 7), (7, 0, 0));
        assert_eq!(sums(Record::None, with(7, Some(9)), 7), (7, 7, 9));
        let expired = |upstream_cost| Record::Closed(with(7, upstream_cost));
        assert_eq!(sums(expired(Some(5)), with(3, Some(2)), -4), (-4, -4, -3));
        assert_eq!(sums(expired(None), with(10, Some(8)), 3), (3, 10, 8));
        assert_eq!(sums(expired(Some(5)), with(10, None), 3), (3, -7, -5));
    }

    #[test]
    fn nonsense_is_counted_up_to_a_bound_and_counters_stop_at_theirs() {
        let settlement = settled(u64::MAX, 1, NanoUsd::MAX.nanos(), Ending::Captured);
        let entry = Entry { settlement, delta: NanoUsd::MAX, used_after: NanoUsd::MAX };
        let absurd = added(&Record::None, &entry).counts;
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
        assert_eq!(Day::of(shared::time::Timestamp::from_millis(-1)).to_string(), "1969-12-31");
        assert_eq!(Day::of(START).to_string(), "2026-11-20");
    }
}
