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

/// What a key-service does with one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Carries out messages of gateways, all in one commit.
    Calls(Vec<(usize, Kind)>),
    /// Advances lease time by one tick from this tick, which the key-service has seen.
    Tick(u64),
    /// Lets the hold of this request expire, because its lease is over.
    Expire(usize),
    /// Carries out the owner's action with this number.
    Act(usize),
    /// Answers a client that asks whether the first key may spend.
    Check,
}

/// Returns the conflict that the store reports for a commit; `None` if all its guards hold.
pub(super) fn conflict(store: &SpaceMaps, commit: &Commit) -> Option<Committed> {
    let present = |guard: &Guard| store.record(&guard.name);
    let stale = |guard: &Guard| present(guard).map(records::Record::revision) != guard.seen;
    let guards = commit.guards.iter().enumerate().filter(|(_, guard)| stale(guard));
    let found: Vec<_> = guards.map(|(place, guard)| (place, present(guard).cloned())).collect();
    (!found.is_empty()).then_some(Committed::Conflict(found))
}

/// How the revision that a guard has seen compares with the record's present revision.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    Absent,
    Present,
    /// The guard saw an earlier revision. The record will never have that revision again.
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
    /// Returns bytes that identify the commit, without its revision. They need not contain its writes, because these
    /// follow from the guarded records.
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

/// Returns a hash of all records without their revisions. Logs and indexes need not be included, because they follow
/// from the records, except for the order of entries.
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
