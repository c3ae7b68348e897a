//! Which of a model's upstreams serves a request. Pure: decided from a snapshot of them.
//!
//! An upstream keeps what it has read of recent prompts, and reads their beginnings no second time. So requests that begin
//! alike go to the same upstream, chosen by rendezvous hashing: every gateway chooses the same one, and an upstream that
//! comes or goes moves no requests but its own. The choice holds as long as that upstream has not much more to do than the
//! others; past it the request goes to its second choice, and so on.

use std::{cmp::Ordering, time::Duration};

/// Failures in a row that set an upstream aside: one may be the request's own doing, and two a coincidence.
const FAILURES: u32 = 3;
/// The time that an upstream is set aside at first, until one request tries it again: about what a server takes to restart at
/// the least. It doubles with every trial that fails.
const FIRST_ASIDE: Duration = Duration::from_secs(2);
/// However long it was away, an upstream that is back is noticed after this.
const LONGEST_ASIDE: Duration = Duration::from_secs(30);
/// The time that an upstream that says it has too much to do, or is draining, gets nothing new.
const BREATHER: Duration = Duration::from_secs(1);
/// How much more than its share an upstream may have in flight before requests that would go there for its cache go
/// elsewhere, in percent. A quarter more costs less time than reading a long prompt again.
const MOST_OF_SHARE: u64 = 125;

/// What a request showed of the upstream that it was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It answered to the end.
    Served,
    /// It began to answer.
    Answered,
    /// It says that it has too much to do, or is about to stop.
    Overloaded,
    /// It failed, before its answer or amid it.
    Failed,
    /// Nobody listens there.
    Unreachable,
}

/// How an upstream is doing, as its last requests showed. Times are since any one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    failures: u32,
    aside: Option<Aside>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Aside {
    until: Duration,
    length: Duration,
}

impl Health {
    /// Its health after a request showed this of it.
    #[must_use]
    pub(crate) fn after(self, outcome: Outcome, now: Duration) -> Self {
        let set_aside = |length: Duration| Some(Aside { until: now + length, length });
        let failures = self.failures.saturating_add(1);
        match (outcome, self.aside) {
            (Outcome::Served, _) => Self::default(),
            // Its failures stay: an upstream whose every answer breaks is not well because it begins them.
            (Outcome::Answered, _) => Self { aside: None, ..self },
            // Its trial failed, or what was sent before: when it is tried again is settled already.
            (Outcome::Overloaded | Outcome::Failed | Outcome::Unreachable, Some(_)) => self,
            (Outcome::Overloaded, None) => Self { aside: set_aside(BREATHER), ..self },
            (Outcome::Failed, None) if failures < FAILURES => Self { failures, aside: None },
            (Outcome::Failed | Outcome::Unreachable, None) => {
                Self { failures, aside: set_aside(FIRST_ASIDE) }
            }
        }
    }

    /// Its health once a request is sent there. Where it was set aside for long enough, that request tries it for all
    /// others, which stay away twice as long as before unless it is answered.
    #[must_use]
    pub(crate) fn tried(self, now: Duration) -> Self {
        let again = |Aside { until, length }: Aside| {
            if now < until {
                return Aside { until, length };
            }
            let length = (length * 2).min(LONGEST_ASIDE);
            Aside { until: now + length, length }
        };
        Self { aside: self.aside.map(again), ..self }
    }

    /// Returns whether it was set aside and has not answered since.
    pub(crate) const fn is_set_aside(&self) -> bool {
        self.aside.is_some()
    }

    /// Returns whether nothing is to be sent there at this time.
    pub(crate) fn rests(&self, now: Duration) -> bool {
        self.aside.is_some_and(|aside| now < aside.until)
    }
}

/// An upstream to choose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// What it is known by, whichever gateway asks and wherever it stands in the catalogue.
    pub(crate) identity: u64,
    /// Its share of the requests, relative to its siblings'; at least 1.
    pub(crate) weight: u32,
    /// Requests that it serves now.
    pub(crate) in_flight: u64,
    /// True if nothing is to be sent there now.
    pub(crate) aside: bool,
}

/// The place of the upstream that a request goes to; `None` if there is no other than the one that was `tried`.
///
/// With `affinity`, which requests that begin alike have in common, it is that beginning's own upstream unless that has
/// too much to do; without, the one with the fewest requests for its weight. `turn`, another number each time, decides
/// between equals. If all are set aside, none is: better to try than to refuse.
pub(crate) fn choose(
    candidates: &[Candidate],
    affinity: Option<u64>,
    turn: u64,
    tried: Option<usize>,
) -> Option<usize> {
    let others = || candidates.iter().enumerate().filter(|(place, _)| Some(*place) != tried);
    let any_well = others().any(|(_, candidate)| !candidate.aside);
    let eligible = || others().filter(move |(_, candidate)| !(any_well && candidate.aside));
    let home = affinity.and_then(|affinity| {
        let share = Share::of(eligible().map(|(_, candidate)| candidate));
        let with_room = eligible().filter(|(_, candidate)| share.has_room(candidate));
        with_room.min_by(|(_, a), (_, b)| distance(a, affinity).total_cmp(&distance(b, affinity)))
    });
    let idlest = || eligible().min_by(|(_, a), (_, b)| by_load(a, b).then_with(|| by_turn(a, b, turn)));
    home.or_else(idlest).map(|(place, _)| place)
}

/// What there is to do, and who shares it.
struct Share {
    requests: u64,
    weights: u64,
}

impl Share {
    fn of<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Self {
        // The request that is to be placed is one of them.
        candidates.fold(Self { requests: 1, weights: 0 }, |share, candidate| Self {
            requests: share.requests + candidate.in_flight,
            weights: share.weights + u64::from(candidate.weight),
        })
    }

    /// Returns whether one more request is not much more than its share. At least one always has room: not all can be above the mean.
    fn has_room(&self, candidate: &Candidate) -> bool {
        let most = (self.requests * u64::from(candidate.weight) * MOST_OF_SHARE).div_ceil(self.weights * 100);
        candidate.in_flight < most
    }
}

/// Compares what each would have to do for its weight with one request more, without division.
fn by_load(a: &Candidate, b: &Candidate) -> Ordering {
    let load = |of: &Candidate, other: &Candidate| (of.in_flight + 1) * u64::from(other.weight);
    load(a, b).cmp(&load(b, a))
}

fn by_turn(a: &Candidate, b: &Candidate, turn: u64) -> Ordering {
    distance(a, turn).total_cmp(&distance(b, turn))
}

/// How far a key is from an upstream: the nearest one is its home. Weighted rendezvous hashing: each has the least
/// distance to as large a part of all keys as its weight is of all weights.
fn distance(candidate: &Candidate, key: u64) -> f64 {
    // 53 bits, which a float holds exactly, made a number between 0 and 1, neither included.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let unit = ((mix(candidate.identity ^ mix(key)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -unit.ln() / f64::from(candidate.weight)
}

/// Spreads every bit of a number over all bits of another (the finalizer of SplitMix64).
const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests;
