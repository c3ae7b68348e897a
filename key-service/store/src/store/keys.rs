//! API keys.
//!
//! A key has two records. One record has the key's money and limits, which spending reads. The other record is the
//! profile, with everything else. Indexes are derived from both records.

mod imports;
mod lists;
pub(crate) mod profile;
mod rotation;
pub(crate) mod stored;

use domain::{
    event::{Act, EventKind},
    governed::{BadGroup, Made, Refused},
    key::{ApiKey, KeyPatch, NewKey},
};
use key_service_ledger::{
    Change, StoreError, names,
    stored::{AccountProfile, KeyProfile},
};
use shared::{
    ids::{AccountId, KeyId, Principal},
    wire::Noun,
};

use crate::{
    data::{Credential, Idempotency},
    error::Error,
    store::{
        base::{Store, damaged},
        idempotency::OnceRequest,
        keys::stored::{find, insert_key, put, read, takes_key, tell_passed},
        layout,
    },
};

impl Store {
    /// Creates an API key in an existing account, unless the idempotency key is in use, keys cannot be put into the
    /// group ([`domain::group::takes_keys`]), or the account has reached its maximum number of keys.
    pub async fn create_key(
        &self,
        new: NewKey,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<Made<ApiKey>, Error<Refused>> {
        let NewKey { account, key: ApiKey { id, .. }, digest, .. } = &new;
        let credential = Credential::first(Principal::ApiKey(*account, *id));
        self.put_credential(digest, credential).await?;
        let attempt = OnceRequest { account: *account, makes: *id.as_bytes(), idempotency };
        let made = self.make_once(attempt, made, |change| create(change, &new, act)).await;
        match &made {
            Ok(Made::New(_))
            | Err(Error::Store(
                StoreError::Unavailable(_) | StoreError::Busy(_) | StoreError::Full | StoreError::Damaged(_),
            )) => {}
            // In these cases, the key was not created. A conflict means that the account does not exist.
            Err(Error::Store(StoreError::Conflict(_)) | Error::Refused(_))
            | Ok(Made::Existing(_) | Made::Replayed(_)) => {
                self.forget_credential(digest, credential).await;
                // Another call for the same key may have created the key.
                if !matches!(self.key(*account, *id).await, Ok(None)) {
                    self.put_credential(digest, credential).await?;
                }
            }
        }
        made
    }

    /// Finds an API key of the account.
    pub async fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        Ok(self.key_with_profile(account, id).await?.map(|(key, _)| key))
    }

    /// Changes an API key as [`ApiKey::updated`] does, unless the patch names a group into which keys cannot be put.
    pub async fn update_key(
        &self,
        account: AccountId,
        id: KeyId,
        patch: KeyPatch,
        act: &Act,
    ) -> Result<ApiKey, Error<Refused>> {
        self.lanes.change(account, |change| update(change, id, &patch, act)).await
    }

    /// Revokes an API key, and returns it. Repeating this changes nothing.
    pub async fn revoke_key(
        &self,
        account: AccountId,
        id: KeyId,
        act: &Act,
    ) -> Result<ApiKey, Error<Refused>> {
        self.lanes
            .change(account, |change| {
                let (key, profile) = find(change, id)?.ok_or(Refused::NotFound(Noun::Key))?;
                if key.spend.revoked_at.is_some() {
                    return Ok(key);
                }
                let revoked = key.clone().revoked(act.at);
                put(change, &key, &revoked, profile)?;
                change.event(act.event(0, Some(id), revoked.spend.group, EventKind::KeyRevoked {}));
                Ok(revoked)
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

    /// Reads the keys with these ids at one moment, in the order of the ids. Ids without a key are left out.
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

/// Creates a key. Repeating this changes nothing.
fn create(
    change: &mut Change<'_>,
    NewKey { account, key, digest: _, most }: &NewKey,
    act: &Act,
) -> Result<Made<ApiKey>, Error<Refused>> {
    // All records are requested before any is used, so that one round trip reads them all.
    let is_account_there = change.account()?.is_some();
    let keys = change.get::<AccountProfile>(&layout::account_profile())?.map_or(0, |profile| profile.keys);
    let is_there = find(change, key.id)?.is_some();
    let judged = takes_key(change, key.spend.group)?;
    if !is_account_there {
        return Err(StoreError::no_account(*account).into());
    }
    if keys >= *most && !is_there {
        return Err(Refused::TooMany(Noun::Key, *most).into());
    }
    judged.map_err(in_group)?;
    key.spend.budget.judge_raises(act.at).map_err(Refused::BadRaise)?;
    if insert_key(change, key)? {
        change.event(act.event(0, Some(key.id), key.spend.group, key.creation(act.at)));
        tell_passed(change, None, key, act);
    }
    made(change, *key.id.as_bytes()).map(Made::New)
}

/// Finds the key that a request created.
fn made(change: &mut Change<'_>, id: [u8; 16]) -> Result<ApiKey, Error<Refused>> {
    let missing = || damaged("the object that an idempotency key created is missing");
    let id = KeyId::from_slice(&id).ok_or_else(missing)?;
    let (key, _) = find(change, id)?.ok_or_else(missing)?;
    Ok(key)
}

fn update(change: &mut Change<'_>, id: KeyId, patch: &KeyPatch, act: &Act) -> Result<ApiKey, Error<Refused>> {
    let judged = takes_key(change, patch.group.flatten())?;
    let (before, profile) = find(change, id)?.ok_or(Refused::NotFound(Noun::Key))?;
    let mut key = before.clone().updated(patch, act.at)?;
    if patch.bounds.windows.is_some() {
        key.spend.budget.begin_windows(act.at, change.windows_begin(act.at)?);
    }
    judged.map_err(in_group)?;
    put(change, &before, &key, profile)?;
    if let Some(updated) = key.change(&before, act.at) {
        change.event(act.event(0, Some(id), key.spend.group, updated));
    }
    tell_passed(change, Some(&before), &key, act);
    Ok(key)
}

/// Returns the refusal for a group into which keys cannot be put.
fn in_group(bad: BadGroup) -> Refused {
    Refused::BadGroup("group_id", bad)
}
