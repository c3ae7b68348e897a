//! Searches keys and journal entries by words and filters, in several orders, a page at a time.
//!
//! Where no index exists, a page reads a bounded part and returns the position to continue from.

use std::{collections::HashSet, fmt, sync::Arc};

use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use crate::{
    history::limits::ReachedLimits,
    management::Management,
    nouns::{
        listing::{READ_TOGETHER, keys_of_groups},
        reach::{AccountReach, is_in},
    },
};
use domain::key::{ApiKey, Condition, Status};
pub use domain::search::{EntrySearch, Outcome};
use key_service_store::store::{
    Found, JournalEntry, KeyName, Order, Page, StoreError,
    search::{READ_AT_ONCE, Scan},
};

/// Which keys a member searches for.
#[derive(Clone, Debug, Default)]
pub struct KeySearch {
    /// The list begins after this position.
    pub after: Option<KeyCursor>,
    pub order: KeyOrder,
    /// Current status of the keys.
    pub status: Option<Status>,
    /// Current condition of the keys.
    pub condition: Option<Condition>,
    pub group: Option<GroupId>,
    /// Words that a key's label, hint or id must all contain, ignoring case. An empty text matches every key.
    pub text: String,
    pub limit: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOrder {
    #[default]
    Newest,
    Oldest,
    /// Highest spend first, then keys that have spent nothing, newest first.
    MostSpent,
    /// By time of the last bill, latest first; without keys that were never billed.
    LastUsed,
}

/// A position in a list of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCursor {
    Key(KeyId),
    /// After this key among the keys that have spent nothing.
    Unspent(KeyId),
    /// After the key of this journal entry.
    Entry(u64),
}

/// Maximum number of keys, or of journal entries with their keys, that a page reads in search of matches: about 15 ms
/// of work.
const MOST_KEYS: usize = 1_000;

/// Prefix of a cursor among keys that have spent nothing.
const UNSPENT: &str = "unspent-";

impl KeyCursor {
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(id) = text.strip_prefix(UNSPENT) {
            return id.parse().ok().map(Self::Unspent);
        }
        let key = || text.parse().ok().map(Self::Key);
        text.parse().ok().map(Self::Entry).or_else(key)
    }

    const fn key(self) -> Option<KeyId> {
        match self {
            Self::Key(id) => Some(id),
            Self::Unspent(_) | Self::Entry(_) => None,
        }
    }

    const fn entry(self) -> Option<u64> {
        match self {
            Self::Entry(number) => Some(number),
            Self::Key(_) | Self::Unspent(_) => None,
        }
    }
}

impl fmt::Display for KeyCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(id) => id.fmt(f),
            Self::Unspent(id) => write!(f, "{UNSPENT}{id}"),
            Self::Entry(number) => number.fmt(f),
        }
    }
}

/// Facts that decide whether keys meet a condition, in addition to each key's own state.
struct Known {
    reached: ReachedLimits,
    /// Keys with refused calls today.
    refused: Arc<HashSet<KeyId>>,
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

    /// Returns whether a key's texts and an index by status are enough to decide whether it matches.
    fn is_by_name(&self) -> bool {
        let is_by_age = matches!(self.order, KeyOrder::Newest | KeyOrder::Oldest);
        is_by_age && !self.text.is_empty() && self.condition.is_none() && self.group.is_none()
    }

    /// Returns the request for a page of keys with this status after `after`, newest first unless oldest first is
    /// requested.
    fn page(&self, after: Option<KeyId>, limit: usize, now: Timestamp) -> Page {
        let is_ascending = self.order == KeyOrder::Oldest;
        let order = if is_ascending { Order::Ascending } else { Order::Descending };
        Page { after, order, status: self.status.map(|status| (status, now)), limit }
    }

    /// Returns whether a key matches. `known` covers the key if the condition needs limits or refused calls.
    fn matches(&self, key: &ApiKey, known: &Known, now: Timestamp) -> bool {
        let is_in = |condition| {
            let (is_limited, was_refused) =
                (known.reached.of_key(key).is_some(), known.refused.contains(&key.id));
            match condition {
                Condition::Trouble => key.trouble(is_limited, was_refused, now).is_some(),
                Condition::LimitReached | Condition::ExpiresSoon => key.is_in(condition, is_limited, now),
            }
        };
        self.status.is_none_or(|status| key.status(now) == status)
            && self.condition.is_none_or(is_in)
            && self.group.is_none_or(|group| key.spend.group == Some(group))
            && self.has_words(key.id, &key.label, &key.hint)
    }
}

impl Management {
    /// Finds the matching keys within reach. A reader limited to one group cannot sort by spend: positions in that list
    /// would reveal the spend of other groups.
    pub async fn find_keys(
        &self,
        reach: AccountReach,
        search: &KeySearch,
    ) -> Result<Found<ApiKey, KeyCursor>, StoreError> {
        let account = reach.account;
        let _permit = self.read_permit(account).await?;
        let groups = self.groups_in(reach).await?;
        let groups = groups.as_deref();
        if search.group.is_some() && !is_in(search.group, groups) {
            return Ok(Found { found: Vec::new(), next: None });
        }
        if search.order == KeyOrder::LastUsed {
            return self.find_by_use(account, groups, search).await;
        }
        if groups.is_none() && search.order == KeyOrder::MostSpent {
            return self.find_by_spend(account, search).await;
        }
        if groups.is_none() && search.is_by_name() {
            return self.find_by_name(account, search).await;
        }
        let now = self.clock.now();
        // If every key matches, one key more than fits on the page is read, to see whether more keys follow.
        let together = groups.filter(|groups| groups.len() <= READ_TOGETHER);
        let has_all = groups.is_none() || together.is_some();
        let is_filtered = !has_all || !search.text.is_empty() || search.condition.is_some();
        let at_once = if is_filtered { READ_AT_ONCE } else { search.limit + 1 };
        let mut scan = Scan::new(search.after, search.limit).reading(MOST_KEYS);
        let refused = self.refused_of_search(account, search).await?;
        while scan.goes_on() {
            let after = scan.place().and_then(KeyCursor::key);
            let keys = self.page_of(account, search, together, search.page(after, at_once, now)).await?;
            let known = self.known(account, search, &keys, &refused).await?;
            let is_wanted = |key: &ApiKey| is_in(key.spend.group, groups) && search.matches(key, &known, now);
            let matching = |key: ApiKey| (KeyCursor::Key(key.id), is_wanted(&key).then_some(key));
            scan.add(keys.into_iter().map(matching), at_once);
        }
        Ok(scan.page())
    }

    /// Reads a page of a search's keys, ordered by age: from its group, from several groups together, or from the
    /// account.
    async fn page_of(
        &self,
        account: AccountId,
        search: &KeySearch,
        together: Option<&[GroupId]>,
        page: Page,
    ) -> Result<Vec<ApiKey>, StoreError> {
        match (search.group, together) {
            (Some(group), _) => self.store.keys_of_group(account, group, page).await,
            (None, Some(groups)) => keys_of_groups(&self.store, account, groups, page).await,
            (None, None) => self.store.keys(account, page).await,
        }
    }

    /// Lists the keys that have spent, highest spend first, and then reads all keys to find the others.
    async fn find_by_spend(
        &self,
        account: AccountId,
        search: &KeySearch,
    ) -> Result<Found<ApiKey, KeyCursor>, StoreError> {
        let now = self.clock.now();
        let mut scan = Scan::new(search.after, search.limit).reading(MOST_KEYS);
        let refused = self.refused_of_search(account, search).await?;
        while scan.goes_on() {
            let (unspent, after) = match scan.place() {
                Some(KeyCursor::Unspent(id)) => (true, Some(id)),
                place => (false, place.and_then(KeyCursor::key)),
            };
            let mut keys: Vec<_> = if unspent {
                Vec::new()
            } else {
                let top = self.store.top_spending(account, after, READ_AT_ONCE).await?;
                top.into_iter().map(|key| (KeyCursor::Key(key.id), key)).collect()
            };
            let left = READ_AT_ONCE - keys.len();
            if left > 0 {
                let page = search.page(after.filter(|_| unspent), left, now);
                let all = self.page_of(account, search, None, page).await?;
                keys.extend(all.into_iter().map(|key| (KeyCursor::Unspent(key.id), key)));
            }
            let of_page: Vec<ApiKey> = keys.iter().map(|(_, key)| key.clone()).collect();
            let known = self.known(account, search, &of_page, &refused).await?;
            let matching = |(place, key): (KeyCursor, ApiKey)| {
                // Keys that have spent are already in the list.
                let has_come =
                    matches!(place, KeyCursor::Unspent(_)) && key.spend.budget.used > NanoUsd::ZERO;
                let matches = !has_come && search.matches(&key, &known, now);
                (place, matches.then_some(key))
            };
            scan.add(keys.into_iter().map(matching), READ_AT_ONCE);
        }
        Ok(scan.page())
    }

    /// Finds the keys with refused calls today, if a search asks for them.
    async fn refused_of_search(
        &self,
        account: AccountId,
        search: &KeySearch,
    ) -> Result<Arc<HashSet<KeyId>>, StoreError> {
        let is_asked = search.condition == Some(Condition::Trouble);
        let refused = if is_asked { self.keys_refused_today(account).await? } else { Vec::new() };
        Ok(Arc::new(refused.into_iter().map(|(id, _)| id).collect()))
    }

    /// Reads the facts that decide whether these keys meet a search's condition, in addition to each key's own state.
    async fn known(
        &self,
        account: AccountId,
        search: &KeySearch,
        keys: &[ApiKey],
        refused: &Arc<HashSet<KeyId>>,
    ) -> Result<Known, StoreError> {
        let reached = match search.condition {
            Some(Condition::LimitReached | Condition::Trouble) => {
                self.reached_limits(AccountReach::whole(account), keys, &[]).await?
            }
            Some(Condition::ExpiresSoon) | None => ReachedLimits::none(self.clock.now()),
        };
        Ok(Known { reached, refused: refused.clone() })
    }

    /// Reads the searchable texts of keys, and then the matching keys.
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
            // One matching key more than fits on the page is looked for, to see whether more keys follow.
            let mut matching = looked_at.iter().enumerate().filter(|(_, (_, matches))| *matches);
            let enough = matching.nth(search.limit).map(|(place, _)| place + 1);
            looked_at.truncate(enough.unwrap_or(looked_at.len()));
            let wanted = looked_at.iter().filter(|(_, matches)| *matches).map(|(id, _)| *id);
            let mut keys = self.keys_by_id(AccountReach::whole(account), wanted.collect()).await?;
            let asked = if was_last && enough.is_none() { READ_AT_ONCE } else { looked_at.len() };
            // Searches with a condition read whole keys and do not reach this code.
            let known = Known { reached: ReachedLimits::none(self.clock.now()), refused: Arc::default() };
            let found = |(id, _)| {
                let key = keys.remove(&id).filter(|key| search.matches(key, &known, now));
                (KeyCursor::Key(id), key)
            };
            scan.add(looked_at.into_iter().map(found), asked);
        }
        Ok(scan.page())
    }

    /// Reads the journal backwards, so that keys appear in the order of their last bills.
    async fn find_by_use(
        &self,
        account: AccountId,
        groups: Option<&[GroupId]>,
        search: &KeySearch,
    ) -> Result<Found<ApiKey, KeyCursor>, StoreError> {
        let (now, at_once, mut seen) = (self.clock.now(), search.limit + 1, HashSet::new());
        let mut scan = Scan::new(search.after, search.limit).reading(MOST_KEYS);
        let refused = self.refused_of_search(account, search).await?;
        while scan.goes_on() {
            let before = scan.place().and_then(KeyCursor::entry);
            let entries = self.store.latest_entries(account, before, at_once).await?;
            let ids = entries.iter().map(|entry| entry.entry.settlement.payer.key);
            let ids: Vec<KeyId> = ids.filter(|id| !seen.contains(id)).collect();
            let last = self.store.last_entries(account, &ids).await?;
            let mut keys = self.keys_by_id(AccountReach::whole(account), ids).await?;
            keys.retain(|_, key| is_in(key.spend.group, groups));
            let of_page: Vec<ApiKey> = keys.values().cloned().collect();
            let known = self.known(account, search, &of_page, &refused).await?;
            let matching = |entry: JournalEntry| {
                let payer = entry.entry.settlement.payer;
                // Entries are compared by number, because several entries of a key may have the same time.
                let is_last = last.get(&payer.key) == Some(&entry.number);
                let key = keys.get(&payer.key).filter(|key| is_last && search.matches(key, &known, now));
                (KeyCursor::Entry(entry.number), key.filter(|key| seen.insert(key.id)).cloned())
            };
            scan.add(entries.into_iter().map(matching), at_once);
        }
        Ok(scan.page())
    }

    /// Finds the matching journal entries within reach before this number, newest first.
    pub async fn find_entries(
        &self,
        AccountReach { account, group }: AccountReach,
        search: &EntrySearch,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Found<JournalEntry, u64>, StoreError> {
        let _permit = self.read_permit(account).await?;
        let search = EntrySearch { within: group, ..search.clone() };
        self.store.find_entries(account, search, before, limit).await
    }

    /// Counts a key's requests in flight.
    pub async fn requests_in_flight(&self, account: AccountId, key: KeyId) -> Result<u64, StoreError> {
        self.store.holds_of(account, key).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::{digest::Digest, key::NewKey, ledger::histories::START};

    use super::*;
    use crate::testing::Office;
    use key_service_store::store::suite::act;

    /// Number of keys: more than a page reads.
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
                let page = office.management.find_keys(AccountReach::whole(account), &search).await.unwrap();
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
