//! The stored form of a key: its two records and its index entries.

use domain::{
    event::Act,
    group::{self, BadGroup},
    key::{ApiKey, Status},
    ledger::{self, Holder},
};
use key_service_ledger::{
    Change, StoreError, names,
    stored::{AccountProfile, Balance, KeyProfile},
};
use records::{Index, Record};
use shared::ids::{GroupId, KeyId};

use crate::store::{
    base::{damaged, value},
    groups,
    keys::profile::{api_key, profile_of},
    layout,
};

/// Writes events for the thresholds that the key's spend has crossed because of its new limits.
pub(crate) fn tell_passed(change: &mut Change<'_>, before: Option<&ApiKey>, after: &ApiKey, act: &Act) {
    let holder = Holder::Key(after.id, after.spend.group);
    let before = before.map(|key| &key.spend.budget);
    change.tell(ledger::passed_by_bounds(holder, before, &after.spend.budget, act.at));
}

/// Writes a key and counts it in its account and group, unless its id exists already. Returns whether it was written.
/// What the key has already spent becomes its opening balance.
pub(crate) fn insert_key(change: &mut Change<'_>, key: &ApiKey) -> Result<bool, StoreError> {
    let account = change.get::<AccountProfile>(&layout::account_profile())?;
    if find(change, key.id)?.is_some() {
        return Ok(false);
    }
    let account = account.ok_or_else(|| damaged("the profile of an account"))?;
    change.put(&layout::account_profile(), AccountProfile { keys: account.keys + 1, ..account });
    let ApiKey { id, spend, .. } = key;
    change.set_key(*id, spend.clone());
    change.put(&layout::key_profile(*id), profile_of(key, spend.budget.used, Vec::new()));
    change.enter(layout::KEYS, name_entry_of(key));
    if let Some(entry) = names::spender(spend.budget.used, *id) {
        change.enter(names::SPENDERS, entry);
    }
    if let Some(group) = spend.group {
        change.enter(layout::KEYS_OF_GROUPS, layout::group_entry(group, *id));
    }
    groups::count_key(change, None, spend.group)?;
    list_by_status(change, key);
    Ok(true)
}

/// Decides whether a key may be in this group, if any.
pub(crate) fn takes_key(
    change: &mut Change<'_>,
    group: Option<GroupId>,
) -> Result<Result<(), BadGroup>, StoreError> {
    let Some(id) = group else { return Ok(Ok(())) };
    let found = change.group(id)?;
    let parent = match found.as_ref().and_then(|group| group.parent) {
        Some(parent) => change.group(parent)?,
        None => None,
    };
    Ok(group::takes_keys(found.as_ref(), parent.as_ref()))
}

/// Finds a key of the account with its profile.
pub(crate) fn find(change: &mut Change<'_>, id: KeyId) -> Result<Option<(ApiKey, KeyProfile)>, StoreError> {
    let profile = change.get::<KeyProfile>(&layout::key_profile(id))?;
    let Some(spend) = change.key(id)? else { return Ok(None) };
    let profile = profile.ok_or_else(|| damaged("the profile of a key"))?;
    Ok(Some((api_key(id, spend, &profile), profile)))
}

/// Writes a changed key and moves its index entries.
pub(crate) fn put(
    change: &mut Change<'_>,
    before: &ApiKey,
    after: &ApiKey,
    profile: KeyProfile,
) -> Result<(), StoreError> {
    let id = after.id;
    change.set_key(id, after.spend.clone());
    change.put(&layout::key_profile(id), profile_of(after, profile.opening, profile.rotated));
    move_entry(change, layout::KEYS, Some(name_entry_of(before)), Some(name_entry_of(after)));
    let of_group = |key: &ApiKey| key.spend.group.map(|group| layout::group_entry(group, id));
    move_entry(change, layout::KEYS_OF_GROUPS, of_group(before), of_group(after));
    groups::count_key(change, before.spend.group, after.spend.group)?;
    let standing = |ApiKey { spend, .. }: &ApiKey| (spend.expires_at, spend.disabled, spend.revoked_at);
    if standing(before) != standing(after) {
        // A key that has expired may still be among the active keys, or already among the expired keys.
        for status in [Status::Active, Status::Disabled, Status::Expired] {
            change.leave(layout::KEYS_BY_STATUS, layout::status_entry(status, id));
        }
        if let Some(at) = before.spend.expires_at {
            change.leave(layout::KEYS_EXPIRING, layout::expiry_entry(at, id));
        }
        list_by_status(change, after);
    }
    Ok(())
}

/// Moves an entry of an index.
pub(crate) fn move_entry(
    change: &mut Change<'_>,
    index: Index,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
) {
    if before == after {
        return;
    }
    if let Some(entry) = before {
        change.leave(index, entry);
    }
    if let Some(entry) = after {
        change.enter(index, entry);
    }
}

/// In the index by status, lists the key as revoked, disabled or active. A key that expires is moved from the active to
/// the expired keys when active or expired keys are next listed.
pub(crate) fn list_by_status(change: &mut Change<'_>, key: &ApiKey) {
    let ledger::Key { expires_at, revoked_at, disabled, .. } = key.spend;
    let status = match (revoked_at, disabled) {
        (Some(_), _) => Status::Revoked,
        (None, true) => Status::Disabled,
        (None, false) => Status::Active,
    };
    change.enter(layout::KEYS_BY_STATUS, layout::status_entry(status, key.id));
    if status == Status::Active
        && let Some(at) = expires_at
    {
        change.enter(layout::KEYS_EXPIRING, layout::expiry_entry(at, key.id));
    }
}

/// Encodes a key's entry in [`layout::KEYS`].
fn name_entry_of(ApiKey { id, label, hint, .. }: &ApiKey) -> Vec<u8> {
    layout::name_entry(*id, label, hint)
}

/// Builds a key from its two records.
pub(crate) fn read(
    id: KeyId,
    money: &Record,
    profile: Option<&Record>,
) -> Result<(ApiKey, KeyProfile), StoreError> {
    let Balance { of: spend, .. } = value(money)?;
    let profile = value::<KeyProfile>(profile.ok_or_else(|| damaged("the profile of a key"))?)?;
    Ok((api_key(id, spend, &profile), profile))
}
