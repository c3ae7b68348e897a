//! Refused calls, counted in memory and added to the store once a minute: a refused request costs one counter.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shared::ids::{AccountId, GenerationId, KeyId};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::store::{Hour, RefusedCalls, RefusedLine};

/// Time between two additions to the store; what a process counted since the last is lost when it dies.
const ADD_EVERY: Duration = Duration::from_mins(1);
/// Refused generations that are remembered until the next addition, since a second try may be granted; some 100 bytes each.
const MAX_GENERATIONS: usize = 20_000;
/// Distinct counters until the next addition; further ones are not counted.
const MAX_COUNTERS: usize = 50_000;
/// Counters added in one call to the store.
const ADDED_AT_ONCE: usize = 1_000;

/// A key, an hour and a reason.
type Counter = (AccountId, KeyId, Hour, &'static str);

/// Counts of refused calls since the last addition to the store.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    counters: HashMap<Counter, u64>,
    /// Refused generations. A gateway asks again with an exact count of the prompt: that is the same request.
    generations: HashMap<GenerationId, Counter>,
}

impl Counts {
    fn add(&mut self, counter: Counter, count: u64) {
        if self.counters.len() < MAX_COUNTERS || self.counters.contains_key(&counter) {
            *self.counters.entry(counter).or_default() += count;
        }
    }
}

impl Refusals {
    /// Counts a refused call; those of a generation once, by the last reason.
    pub(super) fn refused(&self, counter: Counter, generation: Option<GenerationId>) {
        let mut counts = self.0.lock();
        match generation {
            Some(id) if counts.generations.len() < MAX_GENERATIONS => {
                counts.generations.insert(id, counter);
            }
            Some(_) | None => counts.add(counter, 1),
        }
    }

    /// Takes the refusal of a generation back whose second try was granted.
    pub(super) fn granted(&self, generation: GenerationId) {
        let mut counts = self.0.lock();
        if !counts.generations.is_empty() {
            counts.generations.remove(&generation);
        }
    }

    /// Takes all counts, by account.
    fn take(&self) -> HashMap<AccountId, Vec<RefusedLine>> {
        let mut counts = std::mem::take(&mut *self.0.lock());
        for counter in std::mem::take(&mut counts.generations).into_values() {
            counts.add(counter, 1);
        }
        let mut accounts: HashMap<AccountId, Vec<RefusedLine>> = HashMap::new();
        for ((account, key, hour, reason), count) in counts.counters {
            accounts.entry(account).or_default().push(RefusedLine { key, hour, reason, count });
        }
        accounts
    }

    /// Adds all counts to the store. Counts that the store did not take are added again later: a call whose outcome is
    /// unknown may count twice.
    pub(crate) async fn add_to(&self, store: &dyn RefusedCalls) {
        for (account, lines) in self.take() {
            for lines in lines.chunks(ADDED_AT_ONCE) {
                if let Err(error) = store.add_refused(account, lines.to_vec()).await {
                    tracing::warn!(%error, "cannot add the counts of refused calls; trying again in a minute");
                    let mut counts = self.0.lock();
                    for RefusedLine { key, hour, reason, count } in lines {
                        counts.add((account, *key, *hour, reason), *count);
                    }
                }
            }
        }
    }

    /// Adds the counts to the store once a minute, and at the shutdown.
    pub(crate) async fn run(self: Arc<Self>, store: Arc<dyn RefusedCalls>, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = sleep(ADD_EVERY) => {}
            }
            self.add_to(&*store).await;
        }
    }
}
