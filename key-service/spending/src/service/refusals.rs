//! Refused calls, collected in memory and added to the store every ten seconds. Each increments one counter and is
//! appended to its account's last calls.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use shared::{
    clock::Clock,
    generation::Origin,
    ids::{AccountId, KeyId, RefusalId},
};
use tokio_util::sync::CancellationToken;

use super::adding::due;
use domain::refused::RefusedCall;
use key_service_store::store::{Hour, REFUSED_CALLS_KEPT, RefusedLine, Store};

/// Maximum number of refused authorizations, over all keys, that wait for a second try. Beyond that, second tries count
/// as separate requests.
const MAX_WAITING: usize = 20_000;
/// Maximum number of distinct counters between two additions. Further refusals are not counted.
const MAX_COUNTERS: usize = 50_000;
/// Maximum number of calls between two additions, over all accounts: about ten megabytes. Further calls are only
/// counted.
const MAX_CALLS: usize = 50_000;
/// Number of counters added in one call to the store.
const ADDED_AT_ONCE: usize = 1_000;

/// A key, an hour and a reason.
type RefusalCounter = (AccountId, KeyId, Hour, &'static str);

/// A refusal that is happening now.
pub(super) struct RefusedNow<'a> {
    pub(super) counter: RefusalCounter,
    /// The requested model, and which API and client asked for it.
    pub(super) asked: Option<(&'a str, Option<&'a Arc<Origin>>)>,
}

/// Refused calls since the last addition to the store.
pub struct Refusals {
    clock: Arc<dyn Clock>,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    counters: HashMap<RefusalCounter, u64>,
    /// The last calls of each account, oldest first.
    calls: HashMap<AccountId, VecDeque<RefusedCall>>,
    /// Number of calls over all accounts.
    calls_of_all: usize,
    /// For each key, counted authorizations that lacked money. After one, the gateway calls again, either to see
    /// whether the key may spend at all, or to hold the cost's lower bound. That second call belongs to the same
    /// request and is not counted.
    waiting: HashMap<KeyId, Vec<(RefusalCounter, RefusalId)>>,
    waits: usize,
}

impl Noted {
    fn add(&mut self, counter: RefusalCounter, count: u64) {
        if self.counters.len() < MAX_COUNTERS || self.counters.contains_key(&counter) {
            *self.counters.entry(counter).or_default() += count;
        }
    }

    /// Counts a call and appends it to the last calls.
    fn note(&mut self, id: RefusalId, RefusedNow { counter, asked }: &RefusedNow<'_>) {
        self.add(*counter, 1);
        let (account, key, _, reason) = *counter;
        let calls = self.calls.entry(account).or_default();
        if calls.len() >= REFUSED_CALLS_KEPT {
            calls.pop_front();
            self.calls_of_all -= 1;
        }
        if self.calls_of_all < MAX_CALLS {
            let model = asked.map(|(model, _)| model.to_owned());
            let origin = asked.and_then(|(_, origin)| origin.cloned());
            calls.push_back(RefusedCall { id, key, reason: reason.to_owned(), model, origin });
            self.calls_of_all += 1;
        }
    }

    /// Removes a call, unless it is already in the store.
    fn take_back(&mut self, counter: RefusalCounter, id: RefusalId) {
        if let Some(count) = self.counters.get_mut(&counter) {
            *count -= 1;
        }
        let calls = self.calls.get_mut(&counter.0);
        if let Some(calls) = calls
            && let Some(place) = calls.iter().rposition(|call| call.id == id)
        {
            calls.remove(place);
            self.calls_of_all -= 1;
        }
    }

    /// Takes one of the key's requests that wait for a second try, if there is one.
    fn second_try(&mut self, key: KeyId) -> Option<(RefusalCounter, RefusalId)> {
        let waiting = self.waiting.get_mut(&key)?;
        let first = waiting.pop();
        self.waits -= usize::from(first.is_some());
        if waiting.is_empty() {
            self.waiting.remove(&key);
        }
        first
    }
}

impl Refusals {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, noted: Mutex::default() }
    }

    /// Records a refused authorization, unless it is the second try of a recorded one. `is_least` means that it
    /// requested the lower bound; `lacks_money` means that a second try will follow.
    pub(super) fn not_authorized(&self, refused: &RefusedNow<'_>, is_least: bool, lacks_money: bool) {
        let (_, key, ..) = refused.counter;
        let id = RefusalId::generate(&*self.clock);
        let mut noted = self.noted.lock();
        if is_least && noted.second_try(key).is_some() {
            return;
        }
        noted.note(id, refused);
        if lacks_money && noted.waits < MAX_WAITING {
            noted.waiting.entry(key).or_default().push((refused.counter, id));
            noted.waits += 1;
        }
    }

    /// Removes the refusal of a request that was granted at its second try.
    pub(super) fn authorized(&self, key: KeyId, is_least: bool) {
        if !is_least {
            return;
        }
        let mut noted = self.noted.lock();
        if let Some((counter, id)) = noted.second_try(key) {
            noted.take_back(counter, id);
        }
    }

    /// Records that a key may not spend, unless this is the second try of a recorded authorization.
    pub(super) fn not_authenticated(&self, refused: &RefusedNow<'_>) {
        let id = RefusalId::generate(&*self.clock);
        let mut noted = self.noted.lock();
        if noted.second_try(refused.counter.1).is_none() {
            noted.note(id, refused);
        }
    }

    /// Records that a key may spend. If this is the second try of a recorded authorization, the refusal stays recorded.
    pub(super) fn authenticated(&self, key: KeyId) {
        self.noted.lock().second_try(key);
    }

    /// Takes all counts and calls, grouped by account.
    fn take(&self) -> (BTreeMap<AccountId, Vec<RefusedLine>>, BTreeMap<AccountId, VecDeque<RefusedCall>>) {
        let Noted { counters, calls, .. } = std::mem::take(&mut *self.noted.lock());
        let mut accounts: BTreeMap<AccountId, Vec<RefusedLine>> = BTreeMap::new();
        for ((account, key, hour, reason), count) in counters.into_iter().filter(|(_, count)| *count > 0) {
            accounts.entry(account).or_default().push(RefusedLine { key, hour, reason, count });
        }
        (accounts, calls.into_iter().collect())
    }

    /// Adds all counts and calls to the store. Counts that the store did not accept are added again later, so a call
    /// may count twice if the outcome is unknown. Calls that it did not accept are only counted.
    pub(crate) async fn add_to(&self, store: &Store) {
        let (counts, calls) = self.take();
        for (account, lines) in counts {
            for lines in lines.chunks(ADDED_AT_ONCE) {
                if let Err(error) = store.add_refused(account, lines.to_vec()).await {
                    tracing::warn!(%error, "cannot add the counts of refused calls; trying again in ten seconds");
                    let mut noted = self.noted.lock();
                    for RefusedLine { key, hour, reason, count } in lines {
                        noted.add((account, *key, *hour, reason), *count);
                    }
                }
            }
        }
        for (account, calls) in calls {
            if let Err(error) = store.add_refused_calls(account, &Vec::from(calls)).await {
                tracing::warn!(%error, "cannot add refused calls to the store; they are counted, but not listed");
            }
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
