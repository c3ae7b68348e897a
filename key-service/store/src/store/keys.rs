//! API keys.
//!
//! A key is two records: money and bounds, which spending reads, and a profile with everything else. Indexes are
//! derived from both.

mod imports;
mod lists;
pub(crate) mod profile;
mod rotation;
pub(crate) mod stored;

use domain::{
    event::{Act, EventKind},
    key::{ApiKey, KeyPatch, NewKey},
};
use key_service_ledger::{
    Change, StoreError, names,
    stored::{AccountProfile, KeyProfile},
};
use shared::ids::{AccountId, KeyId, Principal};

use crate::{
    data::{Created, Credential, Idempotency, Updated},
    store::{
        base::{Store, damaged},
        idempotency::{self, Earlier},
        keys::stored::{find, insert_key, put, read, takes_key, tell_passed},
        layout,
    },
};

impl Store {
    /// Creates an API key in an existing account, unless the idempotency key is in use, the group accepts no keys
    /// ([`domain::group::takes_keys`]), or the account has reached its bound on keys.
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
        let decided = self.lanes.change(new.account, decide).await;
        let is_key_there = match &decided {
            Ok((_, is_key_there)) => *is_key_there,
            // A conflict means that the account does not exist.
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
        self.lanes.change(account, |change| update(change, id, &patch, act)).await
    }

    /// Revokes an API key and returns it; a repetition changes nothing. `None` if the account does not have the key.
    pub async fn revoke_key(
        &self,
        account: AccountId,
        id: KeyId,
        act: &Act,
    ) -> Result<Option<ApiKey>, StoreError> {
        self.lanes
            .change(account, |change| {
                let Some((key, profile)) = find(change, id)? else { return Ok(None) };
                if key.spend.revoked_at.is_some() {
                    return Ok(Some(key));
                }
                let revoked = key.clone().revoked(act.at);
                put(change, &key, &revoked, profile)?;
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

    /// Reads keys as of one moment, in the order of these ids, without those that do not exist.
    async fn keys_with_profiles(
        &self,
        account: AccountId,
        ids: &[KeyId],
    ) -> Result<Vec<(ApiKey, KeyProfile)>, StoreError> {
        let names = ids.iter().flat_map(|id| [names::key(*id).into(), layout::key_profile(*id).into()]);
        let found = self.read().records_of(&layout::space(account), names.collect()).await?;
        let keys = ids.iter().zip(found.chunks(2)).map(|(id, records)| match records {
            [Some(money), profile] => read(*id, money, profile.as_ref()).map(Some),
            _ => Ok(None),
        });
        keys.filter_map(Result::transpose).collect()
    }
}

/// Creates a key, unless the idempotency key is taken; a repetition changes nothing. Also returns whether a key with
/// this id exists afterwards.
fn create(
    change: &mut Change<'_>,
    new: &NewKey,
    attempt: Option<&Idempotency>,
    act: &Act,
) -> Result<(Created, bool), StoreError> {
    let NewKey { account, key, digest: _, most } = new;
    // All records are requested first, so that they are read together.
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
        tell_passed(change, None, key, act);
    }
    idempotency::keep(change, attempt, key.id.as_bytes());
    let (made, _) = find(change, key.id)?.ok_or_else(missing)?;
    Ok((Created::New(made), true))
}

fn update(change: &mut Change<'_>, id: KeyId, patch: &KeyPatch, act: &Act) -> Result<Updated, StoreError> {
    let judged = takes_key(change, patch.group.flatten())?;
    let Some((before, profile)) = find(change, id)? else { return Ok(Updated::NotFound) };
    let mut key = match before.clone().updated(patch, act.at) {
        Ok(key) => key,
        Err(reason) => return Ok(Updated::NotChanged(reason)),
    };
    if patch.bounds.windows.is_some() {
        key.spend.budget.begin_windows(act.at, change.windows_begin(act.at)?);
    }
    if let Err(bad) = judged {
        return Ok(Updated::BadGroup(bad));
    }
    put(change, &before, &key, profile)?;
    if let Some(updated) = key.change(&before, act.at) {
        change.event(act.event(0, Some(id), key.spend.group, updated));
    }
    tell_passed(change, Some(&before), &key, act);
    Ok(Updated::Key(key))
}

/// Error for an account that lacks a key named by an idempotency key.
fn missing() -> StoreError {
    damaged("what an idempotency key made is missing")
}
