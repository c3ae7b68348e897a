//! Chooses the upstream that serves a request, from a snapshot of the model's upstreams.
//!
//! An upstream caches recent prompts, and does not process a cached prefix again. So requests with the same prefix go
//! to the same upstream, chosen by rendezvous hashing: every gateway chooses the same upstream, and adding or removing
//! an upstream moves only the requests of that upstream. If the load of the chosen upstream is far above its share, the
//! request goes to the second choice, and so on.

use std::{cmp::Ordering, time::Duration};

use shared::ids::AccountId;

/// Consecutive failures after which an upstream is set aside. The first failure may be the request's fault, and the
/// second a coincidence.
const FAILURES: u32 = 3;
/// How long an upstream is first set aside before a trial request: about as long as the fastest restart of a server.
/// Every failed trial doubles this time.
const FIRST_ASIDE: Duration = Duration::from_secs(2);
/// Maximum time until a recovered upstream is noticed, however long its outage was.
const LONGEST_ASIDE: Duration = Duration::from_secs(30);
/// Time during which an upstream that reports overload or is draining gets no new requests.
const BREATHER: Duration = Duration::from_secs(1);
/// How long failures are excused if several upstreams fail at the same requests and answer nothing else. Healthy busy
/// upstreams answer something far more often, so an outage of all upstreams is noticed soon.
const EXCUSED_FOR: Duration = Duration::from_secs(10);
/// Load of an upstream, in percent of its fair share, above which requests leave the upstream that caches their prefix.
/// Waiting at an upstream with a quarter more load costs less time than processing a long prompt again.
const MOST_OF_SHARE: u64 = 125;

/// Outcome of an attempt, with regard to the upstream's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// A complete answer, after which the upstream counts as healthy.
    Served,
    /// The beginning of an answer.
    Answered,
    /// A report of overload, or of an imminent stop.
    Overloaded,
    /// A failure before or during the answer.
    Failed,
    /// The connection was refused or could not be made.
    Unreachable,
    /// The upstream refused something that one client passed. This says nothing about the upstream.
    Unjudged,
    /// A request with a query or headers of this account failed, and the query or the headers may be the cause. The
    /// failure counts only for this account until a request without a query and headers, or a request of another
    /// account, has also failed.
    FailedWithHead(AccountId),
    /// The upstream refused either something that this account passed, or every request. The refusal counts as a
    /// failure once another account is refused too.
    Forbidden(AccountId),
    /// The upstream limited the rate either of something that this account passed, or of every request. This counts as
    /// overload once it happens to another account too.
    Limited(AccountId),
}

/// An upstream's health, judged by its last requests. All times count from one common instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    failures: u32,
    aside: Option<Aside>,
    /// Time of the first excused failure since the upstream's last answer.
    excused_since: Option<Duration>,
    /// The only account whose query or headers were refused, or led to failures, since the last complete answer.
    alone: Option<Alone>,
}

/// Failures of one account at an upstream that may be healthy for all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Alone {
    account: AccountId,
    failures: u32,
    /// The upstream is set aside for this account.
    aside: Option<Aside>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Aside {
    until: Duration,
    length: Duration,
}

impl Health {
    /// Returns the health after this outcome of a request.
    #[must_use]
    pub fn after(self, outcome: AttemptOutcome, now: Duration) -> Self {
        let set_aside = |length: Duration| Some(Aside { until: now + length, length });
        let failures = self.failures.saturating_add(1);
        match (outcome, self.aside) {
            (AttemptOutcome::Served, _) => Self::default(),
            // The number of failures stays: an upstream whose answers begin but all break off is not healthy.
            (AttemptOutcome::Answered, _) => {
                let alone = self.alone.map(|alone| Alone { aside: None, ..alone });
                Self { aside: None, excused_since: None, alone, ..self }
            }
            (AttemptOutcome::Unjudged, _) => self.unjudged(now),
            (AttemptOutcome::FailedWithHead(account), _) if self.failures == 0 && self.is_alone(account) => {
                let alone = self.alone(account);
                let failures = alone.failures.saturating_add(1);
                let aside = alone.aside.or_else(|| set_aside(FIRST_ASIDE).filter(|_| failures >= FAILURES));
                Self { alone: Some(Alone { failures, aside, ..alone }), ..self.unjudged(now) }
            }
            (AttemptOutcome::Forbidden(account) | AttemptOutcome::Limited(account), _)
                if self.is_alone(account) =>
            {
                Self { alone: Some(self.alone(account)), ..self.unjudged(now) }
            }
            // The failed request is the trial, or was sent before the upstream was set aside. The time of the next
            // trial is already set.
            (
                AttemptOutcome::Overloaded
                | AttemptOutcome::Limited(_)
                | AttemptOutcome::Failed
                | AttemptOutcome::FailedWithHead(_)
                | AttemptOutcome::Forbidden(_)
                | AttemptOutcome::Unreachable,
                Some(_),
            ) => self,
            (AttemptOutcome::Overloaded | AttemptOutcome::Limited(_), None) => {
                Self { aside: set_aside(BREATHER), ..self }
            }
            (
                AttemptOutcome::Failed | AttemptOutcome::FailedWithHead(_) | AttemptOutcome::Forbidden(_),
                None,
            ) if failures < FAILURES => Self { failures, ..self },
            (
                AttemptOutcome::Failed
                | AttemptOutcome::FailedWithHead(_)
                | AttemptOutcome::Forbidden(_)
                | AttemptOutcome::Unreachable,
                None,
            ) => Self { failures, aside: set_aside(FIRST_ASIDE), ..self },
        }
    }

    /// Returns whether no other account's query or headers were refused or led to failures since the last complete
    /// answer.
    fn is_alone(&self, account: AccountId) -> bool {
        self.alone.is_none_or(|alone| alone.account == account)
    }

    fn alone(&self, account: AccountId) -> Alone {
        self.alone.unwrap_or(Alone { account, failures: 0, aside: None })
    }

    /// Returns the health after a request that says nothing about the upstream. If it was a trial, the next request is
    /// a trial too, so that an upstream does not stay set aside because of refused requests.
    fn unjudged(self, now: Duration) -> Self {
        let again = |Aside { until, length }: Aside| Aside {
            until: until.min(now),
            length: (length / 2).max(BREATHER / 2),
        };
        Self { aside: self.aside.map(again), ..self }
    }

    /// Returns the health after the last failure turned out to be the request's fault, because another healthy upstream
    /// failed in the same way. If the upstream answers no other request, its failures are excused only for a short
    /// time.
    #[must_use]
    pub fn excused(self, now: Duration) -> Self {
        let since = self.excused_since.unwrap_or(now);
        if now.saturating_sub(since) >= EXCUSED_FOR {
            return self;
        }
        // With fewer failures than this, the upstream was set aside for another reason, and stays set aside.
        let aside = self.aside.filter(|_| self.failures < FAILURES);
        Self { failures: self.failures.saturating_sub(1), aside, excused_since: Some(since), ..self }
    }

    /// Returns the health after a request is sent. `account` is the account of the request, if known. If the upstream's
    /// time aside is over, this request is a trial: unless it is answered, the upstream is set aside for twice as long.
    #[must_use]
    pub fn tried(self, account: Option<AccountId>, now: Duration) -> Self {
        let again = |Aside { until, length }: Aside| {
            if now < until {
                return Aside { until, length };
            }
            let length = (length * 2).min(LONGEST_ASIDE);
            Aside { until: now + length, length }
        };
        let alone = self.alone.map(|alone| match alone.aside {
            Some(aside) if account == Some(alone.account) => Alone { aside: Some(again(aside)), ..alone },
            Some(_) | None => alone,
        });
        Self { aside: self.aside.map(again), alone, ..self }
    }

    /// Returns whether the upstream was set aside and has not answered since.
    pub const fn is_set_aside(&self) -> bool {
        self.aside.is_some()
    }

    /// Returns the time from which a request may try an upstream that was set aside.
    pub fn aside_until(&self) -> Option<Duration> {
        self.aside.map(|aside| aside.until)
    }

    /// Returns whether the upstream gets no requests of this account at the moment.
    pub fn rests(&self, account: Option<AccountId>, now: Duration) -> bool {
        let alone = self.alone.filter(|alone| account == Some(alone.account));
        let asides = [self.aside, alone.and_then(|alone| alone.aside)];
        asides.into_iter().flatten().any(|aside| now < aside.until)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Identity of the upstream. It depends neither on the gateway nor on the order in the catalogue.
    pub identity: u64,
    /// Share of the requests, relative to the model's other upstreams; at least 1.
    pub weight: u32,
    pub in_flight: u64,
    /// Whether the upstream is set aside now.
    pub aside: bool,
}

/// Returns the index of the upstream for a request; `None` if there is none other than the upstream that was `tried`.
///
/// All requests with the same prefix have the same `affinity`. A request with an affinity goes to the upstream that
/// owns the prefix, unless that upstream is overloaded. A request without an affinity goes to the upstream with the
/// fewest requests for its weight. `turn`, a different number each time, decides between equals. If all upstreams are
/// set aside, all are eligible, since trying is better than refusing.
pub fn choose(
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

/// Total load and total weight of the candidates.
struct Share {
    requests: u64,
    weights: u64,
}

impl Share {
    fn of<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Self {
        // The request for which an upstream is sought counts too.
        candidates.fold(Self { requests: 1, weights: 0 }, |share, candidate| Self {
            requests: share.requests + candidate.in_flight,
            weights: share.weights + u64::from(candidate.weight),
        })
    }

    /// Returns whether the candidate's load, with one more request, stays close to its fair share. At least one
    /// candidate has room, since not all can have more than the average.
    fn has_room(&self, candidate: &Candidate) -> bool {
        let most = (self.requests * u64::from(candidate.weight) * MOST_OF_SHARE).div_ceil(self.weights * 100);
        candidate.in_flight < most
    }
}

/// Compares the loads per weight with one more request, without division.
fn by_load(a: &Candidate, b: &Candidate) -> Ordering {
    let load = |of: &Candidate, other: &Candidate| (of.in_flight + 1) * u64::from(other.weight);
    load(a, b).cmp(&load(b, a))
}

fn by_turn(a: &Candidate, b: &Candidate, turn: u64) -> Ordering {
    distance(a, turn).total_cmp(&distance(b, turn))
}

/// Returns the distance of a key from an upstream. The upstream with the smallest distance owns the key. With weighted
/// rendezvous hashing, an upstream's share of all keys is proportional to its weight.
fn distance(candidate: &Candidate, key: u64) -> f64 {
    // These are 53 bits, which a float represents exactly, as a number between 0 and 1 (both excluded).
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let unit = ((mix(candidate.identity ^ mix(key)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -unit.ln() / f64::from(candidate.weight)
}

/// Mixes every bit of a number into all bits of the result (the finalizer of SplitMix64).
const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests;
