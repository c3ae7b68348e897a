//! Refused calls, counted in memory and added to the store once a minute, so that a refused request costs one counter.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shared::ids::{AccountId, KeyId};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use key_service_store::store::{Hour, RefusedLine, Store};

/// Time between two additions to the store. A process that dies loses what it counted since the last.
const ADD_EVERY: Duration = Duration::from_mins(1);
/// Refused authorizations, of all keys, that wait for a second try. If there are more, further second tries count as
/// requests.
const MAX_WAITING: usize = 20_000;
/// Distinct counters until the next addition; further refusals are not counted.
const MAX_COUNTERS: usize = 50_000;
/// Counters added in one call to the store.
const ADDED_AT_ONCE: usize = 1_000;

/// A key, an hour and a reason.
type Counter = (AccountId, KeyId, Hour, &'static str);

/// Counts of refused calls since the last addition to the store.
#[derive(Default)]
pub struct Refusals(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    counters: HashMap<Counter, u64>,
    /// Counted authorizations of each key whose money did not suffice. The gateway then asks a second time, either
    /// whether the key may spend at all or for the least that the request can cost. Both tries are one request.
    waiting: HashMap<KeyId, Vec<Counter>>,
    /// Number of authorizations that wait.
    waits: usize,
}

impl Counts {
    fn add(&mut self, counter: Counter, count: u64) {
        if self.counters.len() < MAX_COUNTERS || self.counters.contains_key(&counter) {
            *self.counters.entry(counter).or_default() += count;
        }
    }

    /// Ends the wait for the second try of a request of the key, if any.
    fn second_try(&mut self, key: KeyId) -> Option<Counter> {
        let waiting = self.waiting.get_mut(&key)?;
        let counter = waiting.pop();
        self.waits -= usize::from(counter.is_some());
        if waiting.is_empty() {
            self.waiting.remove(&key);
        }
        counter
    }
}

impl Refusals {
    /// Counts a refused authorization, unless it is the second try of a counted one. `is_least` says that the least was
    /// asked for, `lacks_money` that a second try follows.
    pub(super) fn not_authorized(&self, counter: Counter, is_least: bool, lacks_money: bool) {
        let (_, key, ..) = counter;
        let mut counts = self.0.lock();
        if is_least && counts.second_try(key).is_some() {
            return;
        }
        counts.add(counter, 1);
        if lacks_money && counts.waits < MAX_WAITING {
            counts.waiting.entry(key).or_default().push(counter);
            counts.waits += 1;
        }
    }

    /// Takes back the count of a request whose second try was granted.
    pub(super) fn authorized(&self, key: KeyId, is_least: bool) {
        if !is_least {
            return;
        }
        let mut counts = self.0.lock();
        let Some(counter) = counts.second_try(key) else { return };
        if let Some(count) = counts.counters.get_mut(&counter) {
            *count -= 1;
        }
    }

    /// Counts a key that may not spend, unless this is the second try of a counted authorization.
    pub(super) fn not_authenticated(&self, counter: Counter) {
        let mut counts = self.0.lock();
        if counts.second_try(counter.1).is_none() {
            counts.add(counter, 1);
        }
    }

    /// Notes that a key may spend. This may be the second try of a counted authorization, which stays refused.
    pub(super) fn authenticated(&self, key: KeyId) {
        self.0.lock().second_try(key);
    }

    fn take(&self) -> HashMap<AccountId, Vec<RefusedLine>> {
        let counts = std::mem::take(&mut *self.0.lock());
        let mut accounts: HashMap<AccountId, Vec<RefusedLine>> = HashMap::new();
        for ((account, key, hour, reason), count) in
            counts.counters.into_iter().filter(|(_, count)| *count > 0)
        {
            accounts.entry(account).or_default().push(RefusedLine { key, hour, reason, count });
        }
        accounts
    }

    /// Adds all counts to the store. Counts that the store did not take are added later; if a call's outcome is
    /// unknown, they may count twice.
    pub(crate) async fn add_to(&self, store: &Store) {
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
    pub async fn run(self: Arc<Self>, store: Arc<Store>, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = sleep(ADD_EVERY) => {}
            }
            self.add_to(&store).await;
        }
    }
}
