//! API keys.
//!
//! A key is two records: money and bounds, which spending reads, and a profile of the rest. Indexes follow from both.

mod lists;
mod profile;
mod rotation;

use domain::{
    event::{Act, EventKind},
    group::{self, BadGroup},
    key::{ApiKey, KeyPatch, NewKey, Status},
    ledger::{self, Holder},
};
use key_service_ledger::{
    Change, codec,
    messages::{self, AccountProfile, KeyProfile},
    names,
};
use records::{Answer, Index, Question, Record};
use shared::{
    ids::{AccountId, GroupId, KeyId},
    time::Timestamp,
};
use shared_rpc::Principal;

use super::{
    Created, Credential, Idempotency, Store, StoreError, Updated, groups,
    idempotency::{self, Earlier},
    layout, message, no_answer,
};
use profile::{api_key, with_texts};

impl Store {
    /// Creates an API key of an existing account, unless its idempotency key was used within its time to live, its
    /// group accepts no keys ([`domain::group::takes_keys`]), or the account is at its bound of keys.
    pub async fn create_key(
        &self,
        new: NewKey,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<Created, StoreError> {
        let credential = Credential::first(Principal::ApiKey(new.account, new.key.id));
        self.put_credential(&new.digest, credential).await?;
        let attempt = idempotency.as_ref();
        let ended = self.ended_attempts(new.account, attempt).await?;
        let decide = |change: &mut Change<'_>| {
            idempotency::prune(change, &ended)?;
            create(change, &new, attempt, act)
        };
        let decided = self.govern(new.account, decide).await;
        let is_key_there = match &decided {
            Ok((_, is_key_there)) => *is_key_there,
            // A conflict means that there is no such account.
            Err(StoreError::Conflict(_)) => false,
            Err(StoreError::Unavailable(_) | StoreError::Busy(_) | StoreError::Damaged(_)) => true,
        };
        if !is_key_there {
            self.forget_credential(&new.digest, credential).await;
        }
        decided.map(|(created, _)| created)
    }

    /// Finds an API key of the account.
    pub async fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        Ok(self.key_with_profile(account, id).await?.map(|(key, _)| key))
    }

    /// Changes an API key by [`ApiKey::updated`], unless the patch names a group that accepts no keys.
    pub async fn update_key(
        &self,
        account: AccountId,
        id: KeyId,
        patch: KeyPatch,
        act: &Act,
    ) -> Result<Updated, StoreError> {
        self.govern(account, |change| update(change, id, &patch, act)).await
    }

    /// Revokes an API key and returns the result; repeating it changes nothing. `None` if the account does not have the
    /// key.
    pub async fn revoke_key(
        &self,
        account: AccountId,
        id: KeyId,
        act: &Act,
    ) -> Result<Option<ApiKey>, StoreError> {
        self.govern(account, |change| {
            let Some((key, profile)) = find(change, id)? else { return Ok(None) };
            if key.spend.revoked_at.is_some() {
                return Ok(Some(key));
            }
            let revoked = key.clone().revoked(act.at);
            put(change, (&key, &revoked), profile)?;
            change.event(act.event(0, Some(id), revoked.spend.group, EventKind::KeyRevoked {}));
            Ok(Some(revoked))
        })
        .await
    }

    /// Finds an API key of the account with its profile.
    async fn key_with_profile(
        &self,
        account: AccountId,
        id: KeyId,
    ) -> Result<Option<(ApiKey, KeyProfile)>, StoreError> {
        Ok(self.keys_with_profiles(account, &[id]).await?.pop())
    }

    /// Reads some keys at one moment, in the order of these ids, without those that do not exist.
    async fn keys_with_profiles(
        &self,
        account: AccountId,
        ids: &[KeyId],
    ) -> Result<Vec<(ApiKey, KeyProfile)>, StoreError> {
        let names = ids.iter().flat_map(|id| [names::key(*id), layout::key_profile(*id)]);
        let question = Question::Records(names.collect());
        let Some(Answer::Records(found)) = self.ask(&layout::space(account), vec![question]).await?.pop()
        else {
            return Err(no_answer());
        };
        let keys = ids.iter().zip(found.chunks(2)).map(|(id, records)| match records {
            [Some(money), profile] => read(*id, money, profile.as_ref()).map(Some),
            _ => Ok(None),
        });
        keys.filter_map(Result::transpose).collect()
    }
}

/// Creates a key unless the idempotency key is taken; repeating it changes nothing. Also returns whether a key of this
/// id exists afterwards.
fn create(
    change: &mut Change<'_>,
    new: &NewKey,
    attempt: Option<&Idempotency>,
    act: &Act,
) -> Result<(Created, bool), StoreError> {
    let NewKey { account, key, digest: _, most } = new;
    // Everything is needed first, so that it is read together.
    let is_account_there = change.account()?.is_some();
    let earlier = idempotency::earlier(change, attempt)?;
    let keys = change.get::<AccountProfile>(&layout::account_profile())?.map_or(0, |profile| profile.keys);
    let is_there = find(change, key.id)?.is_some();
    let judged = takes_key(change, key.spend.group)?;
    if !is_account_there {
        return Err(StoreError::no_account(*account));
    }
    match earlier {
        Some(Earlier::OtherRequest) => return Ok((Created::Reused, is_there)),
        Some(Earlier::Made(id)) => {
            let id = KeyId::from_slice(&id).ok_or_else(missing)?;
            let (made, _) = find(change, id)?.ok_or_else(missing)?;
            let created = if id == key.id { Created::New(made) } else { Created::Replayed(made) };
            return Ok((created, is_there));
        }
        None => {}
    }
    if keys >= *most && !is_there {
        return Ok((Created::TooMany, false));
    }
    if let Err(bad) = judged {
        return Ok((Created::BadGroup(bad), is_there));
    }
    if let Err(bad) = key.spend.budget.judge_raises(act.at) {
        return Ok((Created::BadRaise(bad), is_there));
    }
    if insert_key(change, key)? {
        change.event(act.event(0, Some(key.id), key.spend.group, key.creation(act.at)));
        tell_passed(change, (None, key), act);
    }
    idempotency::keep(change, attempt, key.id.as_bytes());
    let (made, _) = find(change, key.id)?.ok_or_else(missing)?;
    Ok((Created::New(made), true))
}

fn update(change: &mut Change<'_>, id: KeyId, patch: &KeyPatch, act: &Act) -> Result<Updated, StoreError> {
    let judged = takes_key(change, patch.group.flatten())?;
    let Some((before, profile)) = find(change, id)? else { return Ok(Updated::NotFound) };
    let key = match before.clone().updated(patch, act.at) {
        Ok(key) => key,
        Err(reason) => return Ok(Updated::NotChanged(reason)),
    };
    if let Err(bad) = judged {
        return Ok(Updated::BadGroup(bad));
    }
    put(change, (&before, &key), profile)?;
    if let Some(updated) = key.change(&before, act.at) {
        change.event(act.event(0, Some(id), key.spend.group, updated));
    }
    tell_passed(change, (Some(&before), &key), act);
    Ok(Updated::Key(key))
}

/// Writes events of the thresholds that a key's new bounds cross.
pub(super) fn tell_passed(change: &mut Change<'_>, (before, after): (Option<&ApiKey>, &ApiKey), act: &Act) {
    let holder = Holder::Key(after.id, after.spend.group);
    let before = before.map(|key| &key.spend.budget);
    change.tell(ledger::passed_by_bounds(holder, before, &after.spend.budget, act.at));
}

/// Writes and counts a key, unless its id exists. Returns whether it was written. Money that the key has spent is an
/// opening balance.
pub(super) fn insert_key(change: &mut Change<'_>, key: &ApiKey) -> Result<bool, StoreError> {
    let account = change.get::<AccountProfile>(&layout::account_profile())?;
    if find(change, key.id)?.is_some() {
        return Ok(false);
    }
    let account = account.ok_or_else(|| damaged("the profile of an account"))?;
    change.put(&layout::account_profile(), &AccountProfile { keys: account.keys + 1, ..account });
    let ApiKey { id, spend, .. } = key;
    let profile = KeyProfile { opening: spend.budget.used.nanos(), ..KeyProfile::default() };
    change.set_key(*id, spend.clone());
    change.put(&layout::key_profile(*id), &with_texts(profile, key));
    change.enter(layout::KEYS, name_entry(key));
    if let Some(entry) = names::spender(spend.budget.used, *id) {
        change.enter(names::SPENDERS, entry);
    }
    if let Some(group) = spend.group {
        change.enter(layout::KEYS_OF_GROUPS, group_entry(group, *id));
    }
    groups::count_key(change, (None, spend.group))?;
    list_by_status(change, key);
    Ok(true)
}

/// Judges whether a key may be in this group, if any.
pub(super) fn takes_key(
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
fn find(change: &mut Change<'_>, id: KeyId) -> Result<Option<(ApiKey, KeyProfile)>, StoreError> {
    let profile = change.get::<KeyProfile>(&layout::key_profile(id))?;
    let Some(spend) = change.key(id)? else { return Ok(None) };
    let profile = profile.ok_or_else(|| damaged("the profile of a key"))?;
    Ok(Some((api_key(id, spend, &profile), profile)))
}

/// Writes what has changed of a key, and moves its entries in indexes.
fn put(
    change: &mut Change<'_>,
    (before, after): (&ApiKey, &ApiKey),
    profile: KeyProfile,
) -> Result<(), StoreError> {
    let id = after.id;
    change.set_key(id, after.spend.clone());
    change.put(&layout::key_profile(id), &with_texts(profile, after));
    move_entry(change, layout::KEYS, (Some(name_entry(before)), Some(name_entry(after))));
    let groups = (before.spend.group, after.spend.group);
    let of_group = |group: Option<GroupId>| group.map(|group| group_entry(group, id));
    move_entry(change, layout::KEYS_OF_GROUPS, (of_group(groups.0), of_group(groups.1)));
    groups::count_key(change, groups)?;
    let standing = |ApiKey { spend, .. }: &ApiKey| (spend.expires_at, spend.disabled, spend.revoked_at);
    if standing(before) != standing(after) {
        // An expired key may be listed as active or as expired.
        for status in [Status::Active, Status::Disabled, Status::Expired] {
            change.leave(layout::KEYS_BY_STATUS, status_entry(status, id));
        }
        if let Some(at) = before.spend.expires_at {
            change.leave(layout::KEYS_EXPIRING, expiry_entry(at, id));
        }
        list_by_status(change, after);
    }
    Ok(())
}

/// Moves an entry of an index.
fn move_entry(change: &mut Change<'_>, index: Index, (before, after): (Option<Vec<u8>>, Option<Vec<u8>>)) {
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

/// Lists a key as revoked, disabled or active. Asking for keys of a status moves an active one that has expired.
fn list_by_status(change: &mut Change<'_>, key: &ApiKey) {
    let ledger::Key { expires_at, revoked_at, disabled, .. } = key.spend;
    let status = match (revoked_at, disabled) {
        (Some(_), _) => Status::Revoked,
        (None, true) => Status::Disabled,
        (None, false) => Status::Active,
    };
    change.enter(layout::KEYS_BY_STATUS, status_entry(status, key.id));
    if status == Status::Active
        && let Some(at) = expires_at
    {
        change.enter(layout::KEYS_EXPIRING, expiry_entry(at, key.id));
    }
}

/// Makes the entry of [`layout::KEYS`]. A hint has no zero byte, since no plaintext has one; a label may have one.
fn name_entry(ApiKey { id, label, hint, .. }: &ApiKey) -> Vec<u8> {
    [id.as_bytes(), label.as_bytes(), &[0], hint.as_bytes()].concat()
}

fn group_entry(group: GroupId, key: KeyId) -> Vec<u8> {
    [&group.as_bytes()[..], key.as_bytes()].concat()
}

fn status_entry(status: Status, key: KeyId) -> Vec<u8> {
    layout::tagged(status_letter(status), key.as_bytes())
}

fn expiry_entry(at: Timestamp, key: KeyId) -> Vec<u8> {
    [&layout::time(at)[..], key.as_bytes()].concat()
}

const fn status_letter(status: Status) -> u8 {
    match status {
        Status::Active => b'a',
        Status::Disabled => b'd',
        Status::Expired => b'e',
        Status::Revoked => b'r',
    }
}

/// Makes a key of its two records.
fn read(id: KeyId, money: &Record, profile: Option<&Record>) -> Result<(ApiKey, KeyProfile), StoreError> {
    let money = codec::read_key(message::<messages::Key>(money)?);
    let money = money.ok_or_else(|| damaged("money of a key"))?;
    let profile = message::<KeyProfile>(profile.ok_or_else(|| damaged("the profile of a key"))?)?;
    Ok((api_key(id, money.of, &profile), profile))
}

/// Error if the account lacks a key that an idempotency key names.
fn missing() -> StoreError {
    damaged("what an idempotency key made is missing")
}

/// Error of a record that no program writes.
fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(what.to_owned())
}
