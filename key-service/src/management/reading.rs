//! Keys and entries of the journal as people look for them: by words and filters, a page at a time.
//!
//! No store has an index for this. A page therefore reads a bounded part, and contains the place to go on from.

use std::collections::HashMap;

use shared::ids::{AccountId, KeyId};

use super::Management;
use crate::{
    domain::{
        key::{ApiKey, Status},
        ledger::Ending,
        usage::Day,
    },
    store::{JournalEntry, Order, Page, Unavailable},
};

/// Keys that a page reads at most while it looks for those that match: some 20 ms of work.
const MAX_KEYS_READ: usize = 5_000;
/// Entries that a page reads at most, likewise.
const MAX_ENTRIES_READ: usize = 10_000;
/// Records read at a time.
const READ_AT_ONCE: usize = 500;

/// The keys that a member looks for.
#[derive(Clone, Debug)]
pub struct KeySearch {
    /// Only those behind this key.
    pub after: Option<KeyId>,
    /// The end that comes first.
    pub order: Order,
    /// Only those whose status is this now.
    pub status: Option<Status>,
    /// Only those whose label, hint or id has this in it, in any case; empty finds all.
    pub text: String,
    /// At most so many.
    pub limit: usize,
}

/// The entries that a member looks for.
#[derive(Clone, Debug, Default)]
pub struct EntrySearch {
    /// Only those of this key.
    pub key: Option<KeyId>,
    /// Only those of this model.
    pub model: Option<String>,
    /// Only those of this day.
    pub day: Option<Day>,
    /// Only those of this outcome.
    pub outcome: Option<Outcome>,
}

/// Outcome of a generation, as members distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Billed exactly.
    Captured,
    /// Billed by an estimate.
    Estimated,
    /// Billed by the last report, since its gateway was lost.
    Expired,
    /// Cost more than could be billed.
    Shortfall,
}

/// A page of what was found.
#[derive(Clone, Debug)]
pub struct Found<T, C> {
    /// Keys or entries that match, in the order of the search.
    pub found: Vec<T>,
    /// The place to go on from; `None` where everything was read.
    pub next: Option<C>,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 4] = [Self::Captured, Self::Estimated, Self::Expired, Self::Shortfall];

    /// The outcome as forms and exports have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Captured => "captured",
            Self::Estimated => "estimated",
            Self::Expired => "expired",
            Self::Shortfall => "shortfall",
        }
    }

    /// The outcome of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }

    /// Returns true if an entry has this outcome. One may have two: an estimate with a shortfall.
    fn is_of(self, entry: &JournalEntry) -> bool {
        let settlement = &entry.entry.settlement;
        match self {
            Self::Captured => settlement.ending == Ending::Captured && !settlement.estimated,
            Self::Estimated => settlement.ending == Ending::Captured && settlement.estimated,
            Self::Expired => settlement.ending == Ending::Expired,
            Self::Shortfall => settlement.cost > settlement.charged,
        }
    }
}

impl EntrySearch {
    /// Returns true if the entry is one of those looked for.
    pub fn matches(&self, entry: &JournalEntry) -> bool {
        let settlement = &entry.entry.settlement;
        self.key.is_none_or(|key| key == settlement.key)
            && self.model.as_ref().is_none_or(|model| *model == settlement.model)
            && self.day.is_none_or(|day| day == Day::of(settlement.at))
            && self.outcome.is_none_or(|outcome| outcome.is_of(entry))
    }
}

impl Management {
    /// The keys of the account that match.
    pub async fn find_keys(
        &self,
        account: AccountId,
        search: &KeySearch,
    ) -> Result<Found<ApiKey, KeyId>, Unavailable> {
        let (now, text) = (self.clock.now(), search.text.to_lowercase());
        let matches = |key: &ApiKey| {
            let named = || key.label.to_lowercase().contains(&text) || key.id.to_string().contains(&text);
            let hinted = || key.hint.to_lowercase().contains(&text);
            search.status.is_none_or(|status| key.status(now) == status)
                && (text.is_empty() || named() || hinted())
        };
        let (mut found, mut after, mut read) = (Vec::new(), search.after, 0);
        loop {
            let page = Page { after, order: search.order, limit: READ_AT_ONCE.min(search.limit + 1) };
            let page = if text.is_empty() && search.status.is_none() {
                page
            } else {
                Page { limit: READ_AT_ONCE, ..page }
            };
            let keys = self.store.keys(account, page).await?;
            let was_last = keys.len() < page.limit;
            read += keys.len();
            for key in keys {
                if found.len() == search.limit {
                    return Ok(Found { found, next: after });
                }
                after = Some(key.id);
                if matches(&key) {
                    found.push(key);
                }
            }
            if was_last {
                return Ok(Found { found, next: None });
            }
            if read >= MAX_KEYS_READ {
                return Ok(Found { found, next: after });
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
    ) -> Result<Found<JournalEntry, u64>, Unavailable> {
        let (mut found, mut next, mut read) = (Vec::new(), before, 0);
        loop {
            let entries = self.store.latest_entries(account, next, READ_AT_ONCE).await?;
            let was_last = entries.len() < READ_AT_ONCE;
            read += entries.len();
            for entry in entries {
                // Entries only get older: none of an earlier day comes after this one's day has passed.
                let is_past = search.day.is_some_and(|day| Day::of(entry.entry.settlement.at) < day);
                if is_past {
                    return Ok(Found { found, next: None });
                }
                if found.len() == limit {
                    return Ok(Found { found, next });
                }
                next = Some(entry.number);
                if search.matches(&entry) {
                    found.push(entry);
                }
            }
            if was_last {
                return Ok(Found { found, next: None });
            }
            if read >= MAX_ENTRIES_READ {
                return Ok(Found { found, next });
            }
        }
    }

    /// These keys of the account by their ids.
    pub async fn keys_by_id(
        &self,
        account: AccountId,
        ids: Vec<KeyId>,
    ) -> Result<HashMap<KeyId, ApiKey>, Unavailable> {
        let mut keys = HashMap::new();
        for id in ids {
            if !keys.contains_key(&id)
                && let Some(key) = self.store.key(account, id).await?
            {
                keys.insert(id, key);
            }
        }
        Ok(keys)
    }
}
