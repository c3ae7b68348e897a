//! Collects refused calls in memory, and adds them to the store every ten seconds. Each refused call increments a
//! counter and is appended to the account's last refused calls.

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

/// Maximum number of refused authorizations of all keys together that wait for a second try. For further
/// authorizations, second tries count as separate requests.
const MAX_WAITING: usize = 20_000;
/// Maximum number of different counters between two additions. Refusals that would need a further counter are not
/// counted.
const MAX_COUNTERS: usize = 50_000;
/// Maximum number of calls in memory between two additions, over all accounts: about ten megabytes. Further calls are
/// counted, but not listed.
const MAX_CALLS: usize = 50_000;
/// Maximum number of counters that one call to the store adds.
const ADDED_AT_ONCE: usize = 1_000;

/// A key, an hour and a reason.
type RefusalCounter = (AccountId, KeyId, Hour, &'static str);

/// A refusal that has just happened.
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
    /// The last refused calls of each account, oldest first.
    calls: HashMap<AccountId, VecDeque<RefusedCall>>,
    /// Number of these calls over all accounts.
    calls_of_all: usize,
    /// For each key, authorizations that were counted as refused because money was lacking. After such a refusal, the
    /// gateway calls again: either to find out whether the key may spend anything, or to hold the lower bound of the
    /// cost. The second call belongs to the same request and is not counted.
    waiting: HashMap<KeyId, Vec<(RefusalCounter, RefusalId)>>,
    waits: usize,
}

impl Noted {
    fn add(&mut self, counter: RefusalCounter, count: u64) {
        if self.counters.len() < MAX_COUNTERS || self.counters.contains_key(&counter) {
            *self.counters.entry(counter).or_default() += count;
        }
    }

    /// Counts a refused call, and appends it to the account's last refused calls.
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

    /// Removes a refused call, unless it has already been added to the store.
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

    /// Records a refused authorization, unless it is the second try of a recorded authorization. `is_least` means that
    /// the call asked only for its lower bound. `lacks_money` means that a second try will follow.
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

    /// Records a refused call of a key that may not spend, unless it is the second try of a recorded authorization.
    pub(super) fn not_authenticated(&self, refused: &RefusedNow<'_>) {
        let id = RefusalId::generate(&*self.clock);
        let mut noted = self.noted.lock();
        if noted.second_try(refused.counter.1).is_none() {
            noted.note(id, refused);
        }
    }

    /// Notes that a key may spend. If this was the second try of a recorded authorization, the recorded refusal stays.
    pub(super) fn authenticated(&self, key: KeyId) {
        self.noted.lock().second_try(key);
    }

    /// Removes all counts and calls, and returns them grouped by account.
    fn take(&self) -> (BTreeMap<AccountId, Vec<RefusedLine>>, BTreeMap<AccountId, VecDeque<RefusedCall>>) {
        let Noted { counters, calls, .. } = std::mem::take(&mut *self.noted.lock());
        let mut accounts: BTreeMap<AccountId, Vec<RefusedLine>> = BTreeMap::new();
        for ((account, key, hour, reason), count) in counters.into_iter().filter(|(_, count)| *count > 0) {
            accounts.entry(account).or_default().push(RefusedLine { key, hour, reason, count });
        }
        (accounts, calls.into_iter().collect())
    }

    /// Adds all counts and calls to the store. Counts that the store did not accept are added again later. If it is
    /// unknown whether the store accepted them, a call may therefore count twice. Calls that the store did not accept
    /// are only counted, not listed.
    pub(crate) async fn add_to(&self, store: &Store) {
        let (counts, calls) = self.take();
        for (account, lines) in counts {
            for lines in lines.chunks(ADDED_AT_ONCE) {
                if let Err(error) = store.add_refused(account, lines.to_vec()).await {
                    tracing::warn!(
                        %error,
                        "cannot add the counts of refused calls to the store; trying again in ten seconds"
                    );
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
