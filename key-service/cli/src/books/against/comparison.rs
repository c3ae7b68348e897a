//! Compares the journal with an upstream's record of requests.

use std::{
    collections::{BTreeSet, HashMap},
    ops::RangeInclusive,
    time::Duration,
};

use shared::{ids::GenerationId, money::NanoUsd, time::Timestamp};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Tokens {
    /// Prompt tokens, including cached tokens.
    pub(super) prompt: u64,
    /// Generated tokens, including reasoning.
    pub(super) completion: u64,
}

/// A request in the upstream's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Served {
    /// Either the generation's id, or a time at which the upstream was working on the request.
    pub(super) identity: ServedIdentity,
    /// Tokens as the upstream counted them.
    pub(super) tokens: Tokens,
}

/// How to find a request in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServedIdentity {
    Generation(GenerationId),
    /// A time, which must be between the generation's start and its bill. The token counts must be equal too.
    Time(Timestamp),
}

/// A billed generation, according to its last journal entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Billed {
    pub(super) generation: GenerationId,
    pub(super) at: Timestamp,
    pub(super) tokens: Tokens,
    pub(super) charged: NanoUsd,
    pub(super) estimated: bool,
}

/// A difference between the two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// A request without a bill, or a further request for a generation that was billed once.
    NotBilled(Served),
    /// A request billed with other token counts.
    BilledDifferently(Tokens, Billed),
    /// A bill without a request in the upstream's record.
    NotServed(Billed),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) requests: u64,
    pub(super) prompt: u64,
    pub(super) completion: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) served: Totals,
    pub(super) billed: Totals,
    /// First the differences of the upstream's requests, in the record's order. Then the bills without a request, by
    /// time.
    pub(super) differences: Vec<Difference>,
}

impl Totals {
    fn add(&mut self, tokens: Tokens) {
        self.requests += 1;
        self.prompt = self.prompt.saturating_add(tokens.prompt);
        self.completion = self.completion.saturating_add(tokens.completion);
    }
}

impl Billed {
    /// Returns the time in which the upstream may have worked on the generation, extended by the tolerance on both
    /// sides.
    fn interval(&self, tolerance: Duration) -> RangeInclusive<Timestamp> {
        self.generation.created_at().minus(tolerance)..=self.at.plus(tolerance)
    }
}

/// Returns the first and the last time in an upstream's record; `None` for an empty record.
pub(super) fn span(served: &[Served]) -> Option<RangeInclusive<Timestamp>> {
    let time = |served: &Served| match served.identity {
        ServedIdentity::Generation(generation) => generation.created_at(),
        ServedIdentity::Time(time) => time,
    };
    Some(served.iter().map(time).min()?..=served.iter().map(time).max()?)
}

/// Compares the upstream's requests with the bills. `billed` contains each generation once.
pub(super) fn compare(served: &[Served], billed: &[Billed], tolerance: Duration) -> Comparison {
    let mut comparison = Comparison::default();
    let by_id: HashMap<_, _> = billed.iter().enumerate().map(|(at, b)| (b.generation, at)).collect();
    let mut matched = vec![false; billed.len()];
    // Requests that name a generation get their bills first, so that no other request takes such a bill. If several
    // requests name the same generation, the first request with equal tokens gets the bill; if none has equal tokens,
    // the first request gets it.
    let mut owners: HashMap<usize, usize> = HashMap::new();
    for (place, request) in served.iter().enumerate() {
        comparison.served.add(request.tokens);
        if let ServedIdentity::Generation(generation) = request.identity
            && let Some(at) = by_id.get(&generation)
        {
            matched[*at] = true;
            let owner = owners.entry(*at).or_insert(place);
            if served[*owner].tokens != billed[*at].tokens && request.tokens == billed[*at].tokens {
                *owner = place;
            }
        }
    }
    let found = match_by_time(served, billed, tolerance, &mut matched);
    for (place, (request, found)) in served.iter().zip(found).enumerate() {
        match request.identity {
            ServedIdentity::Generation(generation) => match by_id.get(&generation) {
                Some(at) if owners.get(at) == Some(&place) => {
                    if billed[*at].tokens != request.tokens {
                        let difference = Difference::BilledDifferently(request.tokens, billed[*at]);
                        comparison.differences.push(difference);
                    }
                }
                Some(_) | None => comparison.differences.push(Difference::NotBilled(*request)),
            },
            ServedIdentity::Time(_) if found => {}
            ServedIdentity::Time(_) => comparison.differences.push(Difference::NotBilled(*request)),
        }
    }
    let mut rest: Vec<_> =
        billed.iter().zip(matched).filter(|(_, matched)| !matched).map(|(b, _)| *b).collect();
    // A bill without tokens needs no matching request.
    rest.retain(|billed| billed.tokens != Tokens::default());
    rest.sort_by_key(|billed| (billed.at, billed.generation));
    for billed in billed {
        comparison.billed.add(billed.tokens);
    }
    comparison.differences.extend(rest.into_iter().map(Difference::NotServed));
    comparison
}

/// The bills and the requests that have the same token counts, as indices.
#[derive(Default)]
struct EqualBills {
    bills: Vec<usize>,
    requests: Vec<(Timestamp, usize)>,
}

/// Finds a bill for each request that names no generation. No two requests get the same bill. Among the bills with
/// equal tokens and a matching time, a request gets the bill that ends first. Returns for each request whether a bill
/// was found.
fn match_by_time(
    served: &[Served],
    billed: &[Billed],
    tolerance: Duration,
    matched: &mut [bool],
) -> Vec<bool> {
    let mut groups: HashMap<Tokens, EqualBills> = HashMap::new();
    for (at, bill) in billed.iter().enumerate().filter(|(at, _)| !matched[*at]) {
        groups.entry(bill.tokens).or_default().bills.push(at);
    }
    for (at, request) in served.iter().enumerate() {
        if let (ServedIdentity::Time(time), Some(group)) = (request.identity, groups.get_mut(&request.tokens))
        {
            group.requests.push((time, at));
        }
    }
    let mut found = vec![false; served.len()];
    for EqualBills { mut bills, mut requests } in groups.into_values() {
        bills.sort_by_key(|at| *billed[*at].interval(tolerance).start());
        requests.sort_unstable();
        let (mut coming, mut open) = (bills.into_iter().peekable(), BTreeSet::new());
        for (time, request) in requests {
            while let Some(at) = coming.next_if(|at| *billed[*at].interval(tolerance).start() <= time) {
                open.insert((*billed[at].interval(tolerance).end(), at));
            }
            while open.first().is_some_and(|(end, _)| *end < time) {
                open.pop_first();
            }
            if let Some((_, at)) = open.pop_first() {
                (found[request], matched[at]) = (true, true);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const SECOND: i64 = 1_000;
    const TOLERANCE: Duration = Duration::from_secs(2);

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_795_140_665_000 + seconds * SECOND)
    }

    fn generation(n: u8, began: i64) -> GenerationId {
        GenerationId::new(time(began), [n; 10])
    }

    fn tokens(prompt: u64, completion: u64) -> Tokens {
        Tokens { prompt, completion }
    }

    fn billed(n: u8, began: i64, ended: i64, tokens: Tokens) -> Billed {
        let (generation, at) = (generation(n, began), time(ended));
        Billed { generation, at, tokens, charged: NanoUsd::from_usd(1), estimated: false }
    }

    fn by_id(n: u8, began: i64, tokens: Tokens) -> Served {
        Served { identity: ServedIdentity::Generation(generation(n, began)), tokens }
    }

    fn by_time(seconds: i64, tokens: Tokens) -> Served {
        Served { identity: ServedIdentity::Time(time(seconds)), tokens }
    }

    #[test]
    fn equal_records_have_no_differences() {
        let served = [by_id(1, 0, tokens(5, 7)), by_time(12, tokens(5, 7)), by_time(19, tokens(1, 1))];
        let bills = [
            billed(3, 10, 17, tokens(1, 1)),
            billed(1, 0, 30, tokens(5, 7)),
            billed(2, 10, 11, tokens(5, 7)),
            // A bill without tokens: the client left before the stream's head arrived.
            billed(4, 10, 11, tokens(0, 0)),
        ];
        let comparison = compare(&served, &bills, TOLERANCE);
        assert_eq!(comparison.differences, []);
        assert_eq!(comparison.served, Totals { requests: 3, prompt: 11, completion: 15 });
        assert_eq!(comparison.billed, Totals { requests: 4, prompt: 11, completion: 15 });
        assert_eq!(span(&served), Some(time(0)..=time(19)));
        assert_eq!(span(&[]), None);
    }

    #[test]
    fn every_difference_is_listed() {
        let lost = by_id(9, 0, tokens(3, 3));
        let too_late = by_time(14, tokens(2, 2));
        let served = [lost, by_id(1, 0, tokens(5, 8)), too_late, by_time(10, tokens(2, 2))];
        let (other, unknown) = (billed(1, 0, 3, tokens(5, 7)), billed(3, 5, 6, tokens(4, 4)));
        let bills = [unknown, other, billed(2, 10, 11, tokens(2, 2))];
        let expected = [
            Difference::NotBilled(lost),
            Difference::BilledDifferently(tokens(5, 8), other),
            Difference::NotBilled(too_late),
            Difference::NotServed(unknown),
        ];
        assert_eq!(compare(&served, &bills, TOLERANCE).differences, expected);
    }

    #[test]
    fn a_bill_is_matched_once() {
        let served = [by_time(0, tokens(5, 7)), by_id(1, 0, tokens(5, 7)), by_time(1, tokens(5, 7))];
        let bills = [billed(1, 0, 0, tokens(5, 7)), billed(2, 0, 0, tokens(5, 7))];
        let differences = compare(&served, &bills, TOLERANCE).differences;
        assert_eq!(differences, [Difference::NotBilled(served[2])]);
    }

    #[test]
    fn a_generation_that_was_served_twice_is_billed_once() {
        let (other, equal) = (by_id(1, 0, tokens(9, 9)), by_id(1, 0, tokens(5, 7)));
        let bill = billed(1, 0, 3, tokens(5, 7));
        let differences = |served: &[Served]| compare(served, &[bill], TOLERANCE).differences;
        assert_eq!(differences(&[equal, equal]), [Difference::NotBilled(equal)]);
        assert_eq!(
            differences(&[other, equal, equal]),
            [Difference::NotBilled(other), Difference::NotBilled(equal)]
        );
        assert_eq!(
            differences(&[other, other]),
            [Difference::BilledDifferently(tokens(9, 9), bill), Difference::NotBilled(other)]
        );
    }

    proptest! {
        /// If every request lies within the time of its bill, all requests get a bill, in any order and however the
        /// bills overlap.
        #[test]
        fn what_fits_is_matched(bills in vec((0..60_i64, 0..30_i64, 0..=30_i64, 0..3_u64), 0..40)) {
            let (mut served, mut journal) = (Vec::new(), Vec::new());
            for (n, (began, length, at, count)) in (0..).zip(bills) {
                let tokens = tokens(count + 1, 1);
                journal.push(billed(n, began, began + length, tokens));
                served.push(by_time(began + at.min(length), tokens));
            }
            served.reverse();
            prop_assert_eq!(compare(&served, &journal, Duration::ZERO).differences, []);
        }
    }
}
