//! Commits on their way to the store.

use ledger::Outcomes;
use records::{Commit, Committed, Guard, Revision, maps::SpaceMaps};
use shared::time::Timestamp;

use super::setup::{EVENING, Kind};

/// A commit on its way.
pub(super) struct Sent {
    pub(super) job: Job,
    pub(super) now: Timestamp,
    pub(super) revision: Revision,
    pub(super) outcomes: Outcomes,
    pub(super) commit: Commit,
}

/// What a key-service carries out in a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Carries out messages that gateways sent, together.
    Calls(Vec<(usize, Kind)>),
    /// Advances lease time from the tick that was seen.
    Tick(u64),
    /// Resolves a hold whose lease is over.
    Expire(usize),
    /// An action of the owner.
    Act(usize),
    /// A client asks whether the first key may spend.
    Check,
}

/// Returns the conflict of a commit, if some of its guards do not hold.
pub(super) fn conflict(store: &SpaceMaps, commit: &Commit) -> Option<Committed> {
    let present = |guard: &Guard| store.record(&guard.name);
    let stale = |guard: &Guard| present(guard).map(records::Record::revision) != guard.seen;
    let guards = commit.guards.iter().enumerate().filter(|(_, guard)| stale(guard));
    let found: Vec<_> = guards.map(|(place, guard)| (place, present(guard).cloned())).collect();
    (!found.is_empty()).then_some(Committed::Conflict(found))
}

/// How a record compares with the revision that a guard has seen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    Absent,
    Present,
    /// The record has changed since, and never has that revision again.
    Earlier,
}

pub(super) fn sight(store: &SpaceMaps, guard: &Guard) -> Sight {
    match guard.seen {
        None => Sight::Absent,
        seen if seen == store.record(&guard.name).map(records::Record::revision) => Sight::Present,
        Some(_) => Sight::Earlier,
    }
}

impl Sent {
    /// Returns the commit without its revision. What it writes follows from the records that it guards.
    pub(super) fn sketch(&self, store: &SpaceMaps) -> Vec<u8> {
        let mut sketch = format!("{:?}", self.job).into_bytes();
        sketch.push(u8::from(self.now > EVENING));
        for guard in &self.commit.guards {
            sketch.push(guard.name.set.table);
            sketch.extend(&guard.name.key[..]);
            sketch.push(sight(store, guard) as u8);
        }
        sketch
    }
}

/// Returns a hash of all records without their revisions. Logs and indexes follow from them, except for the order of
/// entries.
pub(super) fn hash(store: &SpaceMaps) -> [u8; 32] {
    let mut sketch = Vec::new();
    for (name, record) in store.records() {
        sketch.push(name.set.table);
        sketch.extend(name.set.part.to_be_bytes());
        sketch.extend(&name.key[..]);
        sketch.extend(record.message());
    }
    *blake3::hash(&sketch).as_bytes()
}
