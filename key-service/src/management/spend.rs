//! Spend of the last days: by day and model, summed by the store, and of the top-spending keys.
//!
//! An account with many keys has a million counters a month, so no page waits for a sum over all keys. A background
//! search finds the top-spending keys, and a page shows the last result. Counters of past days do not change any more:
//! sums of past days are kept, so that only today's counters are read again.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use shared::{
    ids::{AccountId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};
use tokio::{sync::watch, time::timeout};

use super::Management;
use crate::store::StoreError;
use domain::usage::Day;

/// Days that are added up.
pub const DAYS: i64 = 30;

/// Number of top-spending keys kept: twenty pages.
const TOP_KEYS: usize = 1_000;

/// Accounts whose sums are kept. Each takes some 30 bytes a key.
const ACCOUNTS_KEPT: usize = 32;

/// Longest wait for a new search for the top-spending keys, enough for an account of usual size.
const PATIENCE: Duration = Duration::from_millis(10);

/// Rest after a search, as a multiple of the search's duration: searches take at most a twentieth of a core.
const REST: u32 = 20;

/// Charges by day and model.
pub type Spend = BTreeMap<Day, BTreeMap<String, NanoUsd>>;

/// Top-spending keys with amounts, largest first.
pub type TopKeys = Vec<(KeyId, NanoUsd)>;

/// The keys that spent most, by account.
#[derive(Debug, Default)]
pub(super) struct TopKeysCache(Mutex<HashMap<AccountId, Arc<Kept>>>);

/// Sums and searches kept of an account.
#[derive(Debug)]
struct Kept {
    search: Mutex<Search>,
    found: watch::Sender<Option<Arc<TopKeys>>>,
}

/// The search for the keys that spent most.
#[derive(Debug, Default)]
struct Search {
    is_running: bool,
    /// Earliest time of the next search.
    rests_until: Option<Timestamp>,
    /// The sums of days that are over, and the last of these days.
    past: Option<(Day, Arc<HashMap<KeyId, NanoUsd>>)>,
}

impl TopKeysCache {
    fn of(&self, account: AccountId) -> Arc<Kept> {
        let mut kept = self.0.lock();
        if kept.len() >= ACCOUNTS_KEPT && !kept.contains_key(&account) {
            kept.clear();
        }
        let new = || Arc::new(Kept { search: Mutex::default(), found: watch::Sender::new(None) });
        kept.entry(account).or_insert_with(new).clone()
    }
}

impl Kept {
    /// Begins a search, unless a search is running or has just ended.
    fn begin(&self, now: Timestamp) -> bool {
        let mut search = self.search.lock();
        let begins = !search.is_running && search.rests_until.is_none_or(|until| now >= until);
        search.is_running |= begins;
        begins
    }
}

impl Management {
    /// The spend of the account in the last [`DAYS`].
    pub async fn spend(&self, account: AccountId) -> Result<Spend, StoreError> {
        let today = self.today();
        let mut spend = Spend::new();
        for line in self.store.spend(account, today.plus(1 - DAYS)..=today).await? {
            spend.entry(line.day).or_default().insert(line.model, line.charged);
        }
        Ok(spend)
    }

    /// Sums the spend of a key in the last [`DAYS`].
    pub async fn spend_of(&self, account: AccountId, key: KeyId) -> Result<Spend, StoreError> {
        let today = self.today();
        let mut spend = Spend::new();
        let _turn = self.turns.take(account).await?;
        for line in self.store.usage(account, today.plus(1 - DAYS)..=today, Some(key)).await? {
            spend.entry(line.day).or_default().insert(line.payer.model, line.counts.charged);
        }
        Ok(spend)
    }

    /// Returns the top-spending keys of the last [`DAYS`] by the last search. `None` during the first search.
    pub async fn top_keys(self: &Arc<Self>, account: AccountId) -> Option<Arc<TopKeys>> {
        let kept = self.top_keys.of(account);
        let mut found = kept.found.subscribe();
        if kept.begin(self.clock.now()) {
            // The search has its own task, so that a member who does not wait does not end the search.
            tokio::spawn(self.clone().find_top_keys(account, kept.clone()));
        }
        if kept.search.lock().is_running {
            // The result of the last search serves as well.
            let _ = timeout(PATIENCE, found.changed()).await;
        }
        found.borrow().clone()
    }

    async fn find_top_keys(self: Arc<Self>, account: AccountId, kept: Arc<Kept>) {
        let began = self.clock.now();
        let past = kept.search.lock().past.take().filter(|(until, _)| *until == Day::closed(began));
        let added_up = self.add_up_keys(account, began, past).await;
        let ended = self.clock.now();
        let took = Duration::from_millis(ended.millis().abs_diff(began.millis()));
        let mut search = kept.search.lock();
        match added_up {
            Ok((past, top)) => {
                search.past = Some(past);
                kept.found.send_replace(Some(Arc::new(top)));
            }
            Err(error) => tracing::warn!(%error, "the keys that spent most could not be found"),
        }
        search.is_running = false;
        search.rests_until = Some(ended.plus(took * REST));
    }

    /// Adds up the charges of every key.
    async fn add_up_keys(
        &self,
        account: AccountId,
        now: Timestamp,
        past: Option<(Day, Arc<HashMap<KeyId, NanoUsd>>)>,
    ) -> Result<((Day, Arc<HashMap<KeyId, NanoUsd>>), TopKeys), StoreError> {
        let (today, closed) = (Day::of(now), Day::closed(now));
        let first = today.plus(1 - DAYS);
        let past = match past {
            Some((_, past)) => past,
            None => Arc::new(self.add_up_days(account, first, closed).await?),
        };
        let rest = self.add_up_days(account, closed.plus(1), today).await?;
        let new = rest.keys().filter(|key| !past.contains_key(key)).map(|key| (*key, NanoUsd::ZERO));
        let all = past.iter().map(|(key, spent)| (*key, *spent)).chain(new);
        let with_rest = |(key, mut spent): (KeyId, NanoUsd)| {
            plus(&mut spent, rest.get(&key).copied().unwrap_or_default());
            (key, spent)
        };
        let mut top: TopKeys = all.map(with_rest).filter(|(_, spent)| *spent > NanoUsd::ZERO).collect();
        let order = |(key, spent): &(KeyId, NanoUsd)| (Reverse(*spent), *key);
        if top.len() > TOP_KEYS {
            top.select_nth_unstable_by_key(TOP_KEYS, order);
            top.truncate(TOP_KEYS);
        }
        top.sort_by_key(order);
        Ok(((closed, past), top))
    }

    /// Reads a day at a time, since a month at once would take hundreds of megabytes, and none on which nothing was billed.
    async fn add_up_days(
        &self,
        account: AccountId,
        from: Day,
        to: Day,
    ) -> Result<HashMap<KeyId, NanoUsd>, StoreError> {
        let mut spent = HashMap::new();
        let mut days: Vec<Day> =
            self.store.spend(account, from..=to).await?.into_iter().map(|line| line.day).collect();
        days.dedup();
        for day in days {
            for line in self.store.usage(account, day..=day, None).await? {
                plus(spent.entry(line.payer.key).or_default(), line.counts.charged);
            }
        }
        Ok(spent)
    }
}

/// Adds up to the largest amount there is.
fn plus(sum: &mut NanoUsd, amount: NanoUsd) {
    *sum = NanoUsd::from_nanos(sum.nanos().saturating_add(amount.nanos()));
}
