//! Searches keys, and entries of the journal, by words, filters and orders, a page at a time.
//!
//! A page without an index reads a bounded part, and has the place to continue from.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use futures_util::future::try_join_all;
use shared::{
    ids::{AccountId, GroupId, KeyId, Principal},
    time::Timestamp,
};

use crate::{history::reached::ReachedLimits, management::Management};
pub use domain::search::{EntrySearch, Outcome};
use domain::{
    group::Group,
    key::{ApiKey, Condition, Status},
    ledger::Settlement,
};
use key_service_store::store::{
    Found, JournalEntry, KeyName, Order, Page, StoreError,
    search::{READ_AT_ONCE, Scan},
};

/// The keys that a member looks for.
#[derive(Clone, Debug, Default)]
pub struct KeySearch {
    /// Place after which all keys lie.
    pub after: Option<KeyCursor>,
    pub order: KeyOrder,
    /// Present status of the keys.
    pub status: Option<Status>,
    /// Present condition of the keys.
    pub condition: Option<Condition>,
    pub group: Option<GroupId>,
    /// Words that must all be in the label, the hint or the id of a key, in any case. An empty text finds all.
    pub text: String,
    pub limit: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOrder {
    #[default]
    Newest,
    Oldest,
    /// Largest spend first, without keys that spent nothing.
    MostSpent,
    /// Last bill first, without keys that were never billed.
    LastUsed,
}

/// A place in a list of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCursor {
    Key(KeyId),
    /// After the key of this entry of the journal.
    Entry(u64),
}

impl KeyCursor {
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
    fn has_words(&self, id: KeyId, label: &str, hint: &str) -> bool {
        if self.text.is_empty() {
            return true;
        }
        let texts = [label.to_lowercase(), hint.to_lowercase(), id.to_string()];
        let text = self.text.to_lowercase();
        texts.iter().any(|searched| text.split_whitespace().all(|word| searched.contains(word)))
    }

    /// Returns whether a key's texts, and an index by status, are enough to tell whether it matches.
    fn is_by_name(&self) -> bool {
        let is_by_age = matches!(self.order, KeyOrder::Newest | KeyOrder::Oldest);
        is_by_age && !self.text.is_empty() && self.condition.is_none() && self.group.is_none()
    }

    /// Pages through keys of the status after `after`, the newest first unless the oldest are requested.
    fn page(&self, after: Option<KeyId>, limit: usize, now: Timestamp) -> Page {
        let is_ascending = self.order == KeyOrder::Oldest;
        let order = if is_ascending { Order::Ascending } else { Order::Descending };
        Page { after, order, status: self.status.map(|status| (status, now)), limit }
    }

    /// Returns whether a key matches. `reached` knows the key if the condition asks for limits.
    fn matches(&self, key: &ApiKey, reached: &ReachedLimits, now: Timestamp) -> bool {
        let is_in = |condition| key.is_in(condition, reached.of_key(key).is_some(), now);
        self.status.is_none_or(|status| key.status(now) == status)
            && self.condition.is_none_or(is_in)
            && self.group.is_none_or(|group| key.spend.group == Some(group))
            && self.has_words(key.id, &key.label, &key.hint)
    }
}

impl Management {
    /// Finds the keys of the account that match.
    pub async fn find_keys(
        &self,
        account: AccountId,
        search: &KeySearch,
    ) -> Result<Found<ApiKey, KeyCursor>, StoreError> {
        let _permit = self.read_permit(account).await?;
        if search.order == KeyOrder::LastUsed {
            return self.find_by_use(account, search).await;
        }
        if search.is_by_name() {
            return self.find_by_name(account, search).await;
        }
        let now = self.clock.now();
        // If every key matches, one more than shown is read, to see whether there are more.
        let is_filtered =
            !search.text.is_empty() || search.condition.is_some() || search.order == KeyOrder::MostSpent;
        let at_once = if is_filtered { READ_AT_ONCE } else { search.limit + 1 };
        let mut scan = Scan::new(search.after, search.limit);
        while scan.goes_on() {
            let after = scan.place().and_then(KeyCursor::key);
            let keys = match search.order {
                KeyOrder::MostSpent => self.store.top_spending(account, after, at_once).await?,
                KeyOrder::Newest | KeyOrder::Oldest | KeyOrder::LastUsed => {
                    let page = search.page(after, at_once, now);
                    match search.group {
                        Some(group) => self.store.keys_of_group(account, group, page).await?,
                        None => self.store.keys(account, page).await?,
                    }
                }
            };
            let reached = self.limits_of_search(account, search, &keys).await?;
            let matching =
                |key: ApiKey| (KeyCursor::Key(key.id), search.matches(&key, &reached, now).then_some(key));
            scan.add(keys.into_iter().map(matching), at_once);
        }
        Ok(scan.page())
    }

    /// Finds the reached limits of keys, if a search asks for them.
    async fn limits_of_search(
        &self,
        account: AccountId,
        search: &KeySearch,
        keys: &[ApiKey],
    ) -> Result<ReachedLimits, StoreError> {
        match search.condition {
            Some(Condition::LimitReached | Condition::Trouble) => {
                self.reached_limits(account, keys, &[]).await
            }
            Some(Condition::ExpiresSoon) | None => Ok(ReachedLimits::none(self.clock.now())),
        }
    }

    /// Reads the texts that keys are searched by, and then the keys that match.
    async fn find_by_name(
        &self,
        account: AccountId,
        search: &KeySearch,
    ) -> Result<Found<ApiKey, KeyCursor>, StoreError> {
        let (now, mut scan) = (self.clock.now(), Scan::new(search.after, search.limit));
        let has_words = |name: &KeyName| search.has_words(name.id, &name.label, &name.hint);
        while scan.goes_on() {
            let after = scan.place().and_then(KeyCursor::key);
            let names = self.store.key_names(account, search.page(after, READ_AT_ONCE, now)).await?;
            let was_last = names.len() < READ_AT_ONCE;
            let mut looked_at: Vec<(KeyId, bool)> =
                names.iter().map(|name| (name.id, has_words(name))).collect();
            // One key more than shown is read, to see whether there are more.
            let mut matching = looked_at.iter().enumerate().filter(|(_, (_, matches))| *matches);
            let enough = matching.nth(search.limit).map(|(place, _)| place + 1);
            looked_at.truncate(enough.unwrap_or(looked_at.len()));
            let wanted = looked_at.iter().filter(|(_, matches)| *matches).map(|(id, _)| *id);
            let mut keys = self.keys_by_id(account, wanted.collect()).await?;
            let asked = if was_last && enough.is_none() { READ_AT_ONCE } else { looked_at.len() };
            // Searches for a condition do not come here; they read whole keys.
            let reached = ReachedLimits::none(self.clock.now());
            let found = |(id, _)| {
                let key = keys.remove(&id).filter(|key| search.matches(key, &reached, now));
                (KeyCursor::Key(id), key)
            };
            scan.add(looked_at.into_iter().map(found), asked);
        }
        Ok(scan.page())
    }

    /// Reads the journal from its end, so that a key comes at the place of its last bill.
    async fn find_by_use(
        &self,
        account: AccountId,
        search: &KeySearch,
    ) -> Result<Found<ApiKey, KeyCursor>, StoreError> {
        let (now, at_once, mut seen) = (self.clock.now(), search.limit + 1, HashSet::new());
        let mut scan = Scan::new(search.after, search.limit);
        while scan.goes_on() {
            let before = scan.place().and_then(KeyCursor::entry);
            let entries = self.store.latest_entries(account, before, at_once).await?;
            let ids = entries.iter().map(|entry| entry.entry.settlement.payer.key);
            let keys = self.keys_by_id(account, ids.filter(|id| !seen.contains(id)).collect()).await?;
            let of_page: Vec<ApiKey> = keys.values().cloned().collect();
            let reached = self.limits_of_search(account, search, &of_page).await?;
            let matching = |entry: JournalEntry| {
                let Settlement { payer, at, .. } = entry.entry.settlement;
                let is_last = |key: &&ApiKey| key.spend.last_used_at == Some(at);
                let key =
                    keys.get(&payer.key).filter(is_last).filter(|key| search.matches(key, &reached, now));
                (KeyCursor::Entry(entry.number), key.filter(|key| seen.insert(key.id)).cloned())
            };
            scan.add(entries.into_iter().map(matching), at_once);
        }
        Ok(scan.page())
    }

    /// Finds the entries of the account's journal before this number that match, the newest first.
    pub async fn find_entries(
        &self,
        account: AccountId,
        search: &EntrySearch,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Found<JournalEntry, u64>, StoreError> {
        let _permit = self.read_permit(account).await?;
        self.store.find_entries(account, search.clone(), before, limit).await
    }

    /// Number of requests in flight that hold money of a key.
    pub async fn requests_in_flight(&self, account: AccountId, key: KeyId) -> Result<u64, StoreError> {
        self.store.holds_of(account, key).await
    }

    /// Finds the key of the account that has, or had, this plaintext. Only its hash goes further.
    pub async fn key_of_plaintext(
        &self,
        account: AccountId,
        plaintext: &str,
    ) -> Result<Option<Principal>, StoreError> {
        let found = self.credentials.find(plaintext).await?;
        Ok(found.map(|credential| credential.owner).filter(|owner| owner.account() == account))
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

    /// Finds groups of the account.
    pub async fn groups_by_id(
        &self,
        account: AccountId,
        ids: Vec<GroupId>,
    ) -> Result<HashMap<GroupId, Group>, StoreError> {
        let ids: HashSet<GroupId> = ids.into_iter().collect();
        let found = try_join_all(ids.into_iter().map(|id| self.store.group(account, id))).await?;
        Ok(found.into_iter().flatten().map(|group| (group.id, group)).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::{digest::Digest, key::NewKey, ledger::histories::START};

    use super::*;
    use crate::testing::Office;
    use key_service_store::store::suite::act;

    /// More keys than a page looks at.
    const KEYS: u64 = 4_600;

    #[tokio::test]
    async fn a_search_for_words_finds_every_key_once_page_by_page() {
        let office = Office::open();
        let (account, _) = office.account("many").await;
        let id = |n: u64| KeyId::new(START.plus(Duration::from_secs(n)), [1; 10]);
        for n in 0..KEYS {
            let mut key = ApiKey::new(id(n), format!("fg_api_{n:04}…"), START);
            key.label = if n.is_multiple_of(500) { "Lima 7".into() } else { "Berlin".into() };
            let (digest, most) = (Digest::of(&n.to_be_bytes()), KEYS);
            office.store.create_key(NewKey { account, key, digest, most }, None, &act(START)).await.unwrap();
        }
        office.store.revoke_key(account, id(500), &act(START)).await.unwrap();
        let pages = async |text: &str, status, limit| {
            let mut search = KeySearch { text: text.to_owned(), status, limit, ..KeySearch::default() };
            let (mut ids, mut sizes) = (Vec::new(), Vec::new());
            loop {
                let page = office.management.find_keys(account, &search).await.unwrap();
                sizes.push(page.found.len());
                ids.extend(page.found.iter().map(|key| key.id));
                search.after = page.next;
                if search.after.is_none() || sizes.len() == 3 {
                    return (ids, sizes);
                }
            }
        };
        let lima: Vec<KeyId> = (0..10).rev().map(|n| id(500 * n)).collect();
        assert_eq!(pages("7 LIMA", None, 5).await, (lima, vec![5, 5]));
        assert_eq!(pages("berlin", None, 2).await.1, [2, 2, 2]);
        assert_eq!(pages("fg_api_0499", None, 2).await, (vec![id(499)], vec![0, 1]));
        assert_eq!(pages("nothing", None, 2).await, (Vec::new(), vec![0, 0]));
        assert_eq!(pages("lima", Some(Status::Revoked), 2).await, (vec![id(500)], vec![1]));
    }
}
