//! Searches of keys and of entries of the journal: by words, filters and orders, a page at a time.
//!
//! A page without an index reads a bounded part, and contains the place to go on from.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use futures_util::future::try_join_all;
use shared::{
    ids::{AccountId, KeyId},
    time::Timestamp,
};

use super::Management;
use crate::store::{FoundEntries, JournalEntry, Order, Page, StoreError};
use domain::key::{ApiKey, Status};
pub use domain::search::{EntrySearch, Outcome};

/// Number of keys or entries that a page reads at most in search of matches: some 20 ms of work.
const MAX_READ: usize = 4_000;
/// Records read at a time.
const READ_AT_ONCE: usize = 500;

/// The keys that a member looks for.
#[derive(Clone, Debug)]
pub struct KeySearch {
    /// Place that all keys lie behind.
    pub after: Option<KeyCursor>,
    /// Order of the keys.
    pub order: KeyOrder,
    /// Present status of the keys.
    pub status: Option<Status>,
    /// Text in the label, hint or id of the keys, in any case; empty finds all.
    pub text: String,
    /// Largest number of keys.
    pub limit: usize,
}

/// An order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// The newest first.
    Newest,
    /// The oldest first.
    Oldest,
    /// Largest spend of the last days first, as far as top-spending keys are known.
    MostSpent,
    /// Last bill first. Keys that were never billed are left out.
    LastUsed,
}

/// A place in a list of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCursor {
    /// Behind this key.
    Key(KeyId),
    /// Behind the key of this entry of the journal.
    Entry(u64),
}

impl KeyCursor {
    /// Reads a cursor.
    pub fn parse(text: &str) -> Option<Self> {
        let key = || text.parse().ok().map(Self::Key);
        text.parse().ok().map(Self::Entry).or_else(key)
    }

    const fn key(self) -> Option<KeyId> {
        match self {
            Self::Key(id) => Some(id),
            Self::Entry(_) => None,
        }
    }

    const fn entry(self) -> Option<u64> {
        match self {
            Self::Entry(number) => Some(number),
            Self::Key(_) => None,
        }
    }
}

impl fmt::Display for KeyCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(id) => id.fmt(f),
            Self::Entry(number) => number.fmt(f),
        }
    }
}

impl KeySearch {
    /// Returns whether a key's label, hint or id contains the text `lowercase`, in any case.
    fn has_words(key: &ApiKey, lowercase: &str) -> bool {
        lowercase.is_empty()
            || key.label.to_lowercase().contains(lowercase)
            || key.hint.to_lowercase().contains(lowercase)
            || key.id.to_string().contains(lowercase)
    }

    fn matches(&self, key: &ApiKey, now: Timestamp) -> bool {
        self.status.is_none_or(|status| key.status(now) == status)
            && Self::has_words(key, &self.text.to_lowercase())
    }
}

/// A page of matches.
#[derive(Clone, Debug)]
pub struct Found<T, C> {
    /// Keys or entries that match, in the order of the search.
    pub found: Vec<T>,
    /// The place to go on from; `None` where everything was read.
    pub next: Option<C>,
}

impl Management {
    /// The keys of the account that match.
    pub async fn find_keys(
        self: &Arc<Self>,
        account: AccountId,
        search: &KeySearch,
    ) -> Result<Found<ApiKey, KeyCursor>, StoreError> {
        let _turn = self.turns.take(account).await?;
        match search.order {
            KeyOrder::Newest => self.find_by_age(account, search, Order::Descending).await,
            KeyOrder::Oldest => self.find_by_age(account, search, Order::Ascending).await,
            KeyOrder::MostSpent => self.find_by_spend(account, search).await,
            KeyOrder::LastUsed => self.find_by_use(account, search).await,
        }
    }

    async fn find_by_age(
        &self,
        account: AccountId,
        search: &KeySearch,
        order: Order,
    ) -> Result<Found<ApiKey, KeyCursor>, StoreError> {
        let (mut found, mut read) = (Vec::new(), 0);
        let mut after = search.after.and_then(KeyCursor::key);
        let status = search.status.map(|status| (status, self.clock.now()));
        // Without a search text every key matches: one more than shown is read, to see whether there are more.
        let limit = if search.text.is_empty() { search.limit + 1 } else { READ_AT_ONCE };
        let text = search.text.to_lowercase();
        loop {
            let keys = self.store.keys(account, Page { after, order, status, limit }).await?;
            let was_last = keys.len() < limit;
            read += keys.len();
            for key in keys {
                if found.len() == search.limit {
                    return Ok(Found { found, next: after.map(KeyCursor::Key) });
                }
                after = Some(key.id);
                if KeySearch::has_words(&key, &text) {
                    found.push(key);
                }
            }
            if was_last {
                return Ok(Found { found, next: None });
            }
            if read >= MAX_READ {
                return Ok(Found { found, next: after.map(KeyCursor::Key) });
            }
        }
    }

    /// Finds keys in the order of spend, as far as known.
    async fn find_by_spend(
        self: &Arc<Self>,
        account: AccountId,
        search: &KeySearch,
    ) -> Result<Found<ApiKey, KeyCursor>, StoreError> {
        let (now, mut found) = (self.clock.now(), Vec::new());
        let top: Vec<KeyId> =
            self.top_keys(account).await.iter().flat_map(|top| top.iter()).map(|(id, _)| *id).collect();
        let behind = |after: KeyId| top.iter().position(|id| *id == after).map_or(0, |place| place + 1);
        let rest = &top[search.after.and_then(KeyCursor::key).map_or(0, behind)..];
        for ids in rest.chunks(search.limit + 1) {
            let keys = self.keys_by_id(account, ids.to_vec()).await?;
            for key in ids.iter().filter_map(|id| keys.get(id)).filter(|key| search.matches(key, now)) {
                if found.len() == search.limit {
                    let next = found.last().map(|key: &ApiKey| KeyCursor::Key(key.id));
                    return Ok(Found { found, next });
                }
                found.push(key.clone());
            }
        }
        Ok(Found { found, next: None })
    }

    /// Reads the journal from the end: a key comes at the place of its last bill.
    async fn find_by_use(
        &self,
        account: AccountId,
        search: &KeySearch,
    ) -> Result<Found<ApiKey, KeyCursor>, StoreError> {
        let (now, mut found, mut seen, mut read) = (self.clock.now(), Vec::new(), HashSet::new(), 0);
        let mut before = search.after.and_then(KeyCursor::entry);
        loop {
            let entries = self.store.latest_entries(account, before, READ_AT_ONCE).await?;
            let was_last = entries.len() < READ_AT_ONCE;
            read += entries.len();
            for some in entries.chunks(search.limit + 1) {
                let ids = some.iter().map(|entry| entry.entry.settlement.payer.key);
                let keys = self.keys_by_id(account, ids.filter(|id| !seen.contains(id)).collect()).await?;
                for entry in some {
                    let settlement = &entry.entry.settlement;
                    let is_last = |key: &&ApiKey| key.spend.last_used_at == Some(settlement.at);
                    let key = keys
                        .get(&settlement.payer.key)
                        .filter(is_last)
                        .filter(|key| search.matches(key, now));
                    if let Some(key) = key
                        && !seen.contains(&key.id)
                    {
                        if found.len() == search.limit {
                            return Ok(Found { found, next: before.map(KeyCursor::Entry) });
                        }
                        seen.insert(key.id);
                        found.push(key.clone());
                    }
                    before = Some(entry.number);
                }
            }
            if was_last {
                return Ok(Found { found, next: None });
            }
            if read >= MAX_READ {
                return Ok(Found { found, next: before.map(KeyCursor::Entry) });
            }
        }
    }

    /// The entries of the account's journal before this number that match, newest first.
    pub async fn find_entries(
        &self,
        account: AccountId,
        search: &EntrySearch,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Found<JournalEntry, u64>, StoreError> {
        let _turn = self.turns.take(account).await?;
        let FoundEntries { entries: found, next } =
            self.store.find_entries(account, search.clone(), before, limit).await?;
        Ok(Found { found, next })
    }

    /// Number of requests in flight that hold money of a key.
    pub async fn requests_in_flight(&self, account: AccountId, key: KeyId) -> Result<u64, StoreError> {
        self.store.holds_of(account, key).await
    }

    /// Finds keys of the account by id.
    pub async fn keys_by_id(
        &self,
        account: AccountId,
        ids: Vec<KeyId>,
    ) -> Result<HashMap<KeyId, ApiKey>, StoreError> {
        let ids: HashSet<KeyId> = ids.into_iter().collect();
        let found = try_join_all(ids.into_iter().map(|id| self.store.key(account, id))).await?;
        Ok(found.into_iter().flatten().map(|key| (key.id, key)).collect())
    }
}
