//! Lists of API keys, read page by page from indexes.

use std::{collections::HashSet, ops::RangeInclusive};

use domain::key::{ApiKey, Status};
use key_service_ledger::{Change, StoreError, names};
use records::Index;
use shared::{
    ids::{AccountId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use crate::{
    data::{KeyName, Order, Page},
    store::{
        base::{Store, damaged},
        layout::{self, expiry_entry, status_entry, status_letter},
    },
};

/// Number of index entries, or keys, read in one round trip.
const READ_AT_ONCE: usize = 500;
/// Maximum number of keys that one commit lists as expired.
const EXPIRED_AT_ONCE: usize = 64;
const ID: usize = 16;

impl Store {
    /// Lists API keys of the account by id, beginning after `page.after`. A page with fewer keys than its limit is the
    /// last one.
    pub async fn keys(&self, account: AccountId, page: Page) -> Result<Vec<ApiKey>, StoreError> {
        let Some((status, now)) = page.status else {
            return self.list_keys_in(account, layout::KEYS, &[], page).await;
        };
        self.list_expired_keys(account, now).await?;
        self.list_keys_in(account, layout::KEYS_BY_STATUS, &[status_letter(status)], page).await
    }

    /// Lists the searchable texts of API keys, like [`Self::keys`].
    pub async fn key_names(&self, account: AccountId, page: Page) -> Result<Vec<KeyName>, StoreError> {
        if page.status.is_some() {
            let name = |ApiKey { id, label, hint, .. }| KeyName { id, label, hint };
            return Ok(self.keys(account, page).await?.into_iter().map(name).collect());
        }
        let (mut names, mut after) = (Vec::new(), page.after);
        while names.len() < page.limit {
            let wanted = (page.limit - names.len()).min(READ_AT_ONCE);
            let some = Page { after, limit: wanted, ..page };
            let entries = self.entries_behind(account, layout::KEYS, &[], some).await?;
            for entry in &entries {
                names.push(read_name(entry).ok_or_else(|| damaged("an entry of the keys"))?);
            }
            if entries.len() < wanted {
                break;
            }
            after = names.last().map(|name: &KeyName| name.id);
        }
        Ok(names)
    }

    /// Lists API keys of the account that have spent money, beginning after the current position of key `after`: by
    /// spend, highest first, and then newest first. A page with fewer keys than `limit` is the last one.
    pub async fn top_spending(
        &self,
        account: AccountId,
        after: Option<KeyId>,
        limit: usize,
    ) -> Result<Vec<ApiKey>, StoreError> {
        let mut from = Vec::new();
        if let Some(after) = after
            && let Some(key) = self.key(account, after).await?
        {
            let Some(entry) = names::spender(key.spend.budget.used, after) else { return Ok(Vec::new()) };
            from = behind(entry);
        }
        let mut keys = Vec::new();
        while keys.len() < limit {
            let wanted = (limit - keys.len()).min(READ_AT_ONCE);
            let (space, order) = (layout::space(account), records::Order::Ascending);
            let entries = self.read().entries(&space, names::SPENDERS, (from, None), order, wanted).await?;
            let ids = entries.iter().map(|entry| {
                names::spending_key(entry).ok_or_else(|| damaged("an entry of the keys by spend"))
            });
            let found = self.keys_by_id(account, &ids.collect::<Result<Vec<_>, _>>()?).await?;
            // A charge may have been returned since the entries were read.
            keys.extend(found.into_iter().filter(|key| key.spend.budget.used > NanoUsd::ZERO));
            if entries.len() < wanted {
                break;
            }
            from = entries.into_iter().next_back().map(behind).unwrap_or_default();
        }
        Ok(keys)
    }

    /// Counts the open holds of a key, which are its requests in flight. It reads all open holds of the account.
    pub async fn holds_of(&self, account: AccountId, key: KeyId) -> Result<u64, StoreError> {
        // A hold that is extended between two pages moves and appears twice.
        let (mut generations, mut from) = (HashSet::new(), Vec::new());
        loop {
            let (space, order) = (layout::space(account), records::Order::Ascending);
            let entries = self.read().entries(&space, names::DUE, (from, None), order, READ_AT_ONCE).await?;
            let is_last = entries.len() < READ_AT_ONCE;
            let generation = |entry: &Vec<u8>| match names::read_due(entry) {
                Some((of, generation)) if of == key => Some(generation),
                Some(_) | None => None,
            };
            generations.extend(entries.iter().filter_map(generation));
            match entries.into_iter().next_back() {
                Some(last) if !is_last => from = behind(last),
                Some(_) | None => return Ok(generations.len() as u64),
            }
        }
    }

    /// Lists the keys in index entries that consist of this prefix, the key's id, and perhaps more; otherwise like
    /// [`Self::keys`].
    pub(crate) async fn list_keys_in(
        &self,
        account: AccountId,
        index: Index,
        prefix: &[u8],
        page: Page,
    ) -> Result<Vec<ApiKey>, StoreError> {
        // A key's status may have changed since the entries were read.
        let is_wanted = |key: &ApiKey| page.status.is_none_or(|(status, now)| key.status(now) == status);
        let (mut keys, mut after) = (Vec::new(), page.after);
        while keys.len() < page.limit {
            let wanted = (page.limit - keys.len()).min(READ_AT_ONCE);
            let some = Page { after, limit: wanted, ..page };
            let entries = self.entries_behind(account, index, prefix, some).await?;
            let id = |entry: &Vec<u8>| {
                id_at(entry, prefix.len()).ok_or_else(|| damaged("an entry of an index of keys"))
            };
            let ids = entries.iter().map(id).collect::<Result<Vec<_>, _>>()?;
            after = ids.last().copied();
            keys.extend(self.keys_by_id(account, &ids).await?.into_iter().filter(is_wanted));
            if entries.len() < wanted {
                break;
            }
        }
        Ok(keys)
    }

    /// Reads keys in the order of these ids. Ids without a key are left out. A few hundred at a time are read as of one
    /// moment.
    pub async fn keys_by_id(&self, account: AccountId, ids: &[KeyId]) -> Result<Vec<ApiKey>, StoreError> {
        let mut keys = Vec::with_capacity(ids.len());
        for some in ids.chunks(READ_AT_ONCE) {
            let found = self.keys_with_profiles(account, some).await?;
            keys.extend(found.into_iter().map(|(key, _)| key));
        }
        Ok(keys)
    }

    /// Lists index entries with this prefix, for keys of any status.
    async fn entries_behind(
        &self,
        account: AccountId,
        index: Index,
        prefix: &[u8],
        Page { after, order, limit, status: _ }: Page,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let beginning = after.map(|id| [prefix, id.as_bytes()].concat());
        let (range, order) = match order {
            Order::Ascending => {
                let from = match beginning {
                    None => Some(prefix.to_vec()),
                    Some(beginning) => layout::behind(&beginning),
                };
                let Some(from) = from else { return Ok(Vec::new()) };
                ((from, layout::behind(prefix)), records::Order::Ascending)
            }
            Order::Descending => {
                let to = beginning.or_else(|| layout::behind(prefix));
                ((prefix.to_vec(), to), records::Order::Descending)
            }
        };
        self.read().entries(&layout::space(account), index, range, order, limit).await
    }

    /// Lists at most `limit` active keys that expire within this time, the next to expire first.
    pub async fn keys_expiring(
        &self,
        account: AccountId,
        within: RangeInclusive<Timestamp>,
        limit: usize,
    ) -> Result<Vec<KeyId>, StoreError> {
        let range = (layout::time(*within.start()).to_vec(), layout::behind(&layout::time(*within.end())));
        let (space, order) = (layout::space(account), records::Order::Ascending);
        let entries = self.read().entries(&space, layout::KEYS_EXPIRING, range, order, limit).await?;
        Ok(entries.iter().filter_map(|entry| id_at(entry, size_of::<u64>())).collect())
    }

    /// Lists as expired the keys whose expiry has passed.
    async fn list_expired_keys(&self, account: AccountId, now: Timestamp) -> Result<(), StoreError> {
        let mut from = Vec::new();
        loop {
            let range = (from, layout::behind(&layout::time(now)));
            let (space, order) = (layout::space(account), records::Order::Ascending);
            let ended =
                self.read().entries(&space, layout::KEYS_EXPIRING, range, order, EXPIRED_AT_ONCE).await?;
            if !ended.is_empty() {
                let decide = |change: &mut Change<'_>| {
                    for entry in &ended {
                        list_expired_key(change, entry);
                    }
                    Ok(())
                };
                self.lanes.change::<_, StoreError>(account, decide).await?;
            }
            let is_last = ended.len() < EXPIRED_AT_ONCE;
            match ended.into_iter().next_back() {
                Some(last) if !is_last => from = behind(last),
                Some(_) | None => return Ok(()),
            }
        }
    }
}

/// Lists the key of an entry of [`layout::KEYS_EXPIRING`] as expired, unless its expiry has changed.
fn list_expired_key(change: &mut Change<'_>, entry: &[u8]) {
    let Some(id) = id_at(entry, size_of::<u64>()) else { return };
    // A key that cannot be read stays listed as it is.
    let Ok(key) = change.key(id) else { return };
    let has_expired = key.is_some_and(|key| {
        let is_active = key.revoked_at.is_none() && !key.disabled;
        is_active && key.expires_at.is_some_and(|at| expiry_entry(at, id) == entry)
    });
    change.leave(layout::KEYS_EXPIRING, entry.to_vec());
    if has_expired {
        change.leave(layout::KEYS_BY_STATUS, status_entry(Status::Active, id));
        change.enter(layout::KEYS_BY_STATUS, status_entry(Status::Expired, id));
    }
}

/// Returns the first possible entry after this one.
fn behind(mut entry: Vec<u8>) -> Vec<u8> {
    entry.push(0);
    entry
}

/// Reads the id at this offset of an entry.
fn id_at(entry: &[u8], place: usize) -> Option<KeyId> {
    KeyId::from_slice(entry.get(place..)?.get(..ID)?)
}

/// Decodes an entry of [`layout::KEYS`].
fn read_name(entry: &[u8]) -> Option<KeyName> {
    let texts = entry.get(ID..)?;
    let end = texts.iter().rposition(|byte| *byte == 0)?;
    let (label, hint) = (texts.get(..end)?, texts.get(end + 1..)?);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    Some(KeyName { id: id_at(entry, 0)?, label: text(label)?, hint: text(hint)? })
}
