//! Counts bills by upstream. The counts are collected in memory, and added to the store every ten seconds.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::adding::due;
use domain::{ledger::Settlement, upstream_calls::UpstreamCalls};
use key_service_store::store::{Hour, Store};

/// Maximum number of counters between two additions: more than any catalogue has upstreams. Bills that would need a
/// further counter are not counted.
const MAX_COUNTERS: usize = 10_000;

/// A model, the name of one of its upstreams, and an hour.
type UpstreamCounter = (String, String, Hour);

/// Bills since the last addition to the store.
#[derive(Default)]
pub struct UpstreamBills {
    noted: Mutex<HashMap<UpstreamCounter, UpstreamCalls>>,
}

impl UpstreamBills {
    /// Counts a bill if its upstream is known. A capture that a gateway sent twice counts twice.
    pub(super) fn note(&self, settlement: &Settlement, hour: Hour) {
        let Some(course) = &settlement.course else { return };
        let Some(upstream) = &course.upstream else { return };
        let mut noted = self.noted.lock();
        let has_room = noted.len() < MAX_COUNTERS;
        match noted.entry((settlement.payer.model.clone(), upstream.clone(), hour)) {
            Entry::Occupied(mut counted) => counted.get_mut().count(course),
            Entry::Vacant(place) if has_room => place.insert(UpstreamCalls::default()).count(course),
            Entry::Vacant(_) => {}
        }
    }

    /// Adds all counts to the store. Counts that the store did not accept are added again later.
    async fn add_to(&self, store: &Store) {
        let mut taken = std::mem::take(&mut *self.noted.lock()).into_iter();
        while let Some((counter, calls)) = taken.next() {
            let (model, upstream, hour) = &counter;
            let Err(error) = store.add_upstream_calls(model, upstream, *hour, calls).await else {
                continue;
            };
            tracing::warn!(%error, "cannot add the counts of upstreams to the store; trying again in ten seconds");
            let mut noted = self.noted.lock();
            for (counter, calls) in std::iter::once((counter, calls)).chain(taken) {
                let counted = noted.entry(counter).or_default();
                *counted = counted.plus(calls);
            }
            return;
        }
    }

    /// Adds everything recorded to the store every ten seconds, and at shutdown.
    pub async fn run(self: Arc<Self>, store: Arc<Store>, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            due(&shutdown).await;
            self.add_to(&store).await;
        }
    }
}
