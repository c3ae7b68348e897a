//! Management keys of accounts.
//!
//! The record of a key's owner is written before the key, and the credential is written after the key. So every
//! credential leads to a key, and every visible key can be revoked.

use domain::{
    access::is_noted,
    event::{Act, EventKind},
    governed::Made,
    ledger::Standing,
};
use key_service_ledger::{
    Change, StoreError,
    names::{self, RecordName},
    stored::{AccountRecord, IdList, ManagementKeyOwner, ManagementKeyRecord},
    view::View,
};
use records::Space;
use shared::{
    ids::{AccountId, ManagementKeyId, Principal},
    time::Timestamp,
};

use crate::{
    data::{Credential, Idempotency, ManagementKey, ManagementKeyNotMade, NewManagementKey},
    error::Error,
    store::{
        accounts::insert_id,
        base::{Store, damaged, value},
        idempotency::OnceRequest,
        layout,
    },
};

impl Store {
    /// Creates a management key in an existing account. Repeating this changes nothing. Returns `false` if the account
    /// has reached its maximum number of management keys.
    pub async fn create_management_key(&self, key: NewManagementKey, act: &Act) -> Result<bool, StoreError> {
        match self.create_management_key_once(key, None, act).await {
            Ok(_) => Ok(true),
            Err(Error::Refused(ManagementKeyNotMade::TooMany | ManagementKeyNotMade::Reused)) => Ok(false),
            Err(Error::Store(cause)) => Err(cause),
        }
    }

    /// Creates a management key once for each idempotency key.
    pub async fn create_management_key_once(
        &self,
        key: NewManagementKey,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<Made<ManagementKeyId>, Error<ManagementKeyNotMade>> {
        let (account, id) = (key.account, key.key.id);
        // If the call is refused here already, no record of an owner is left behind.
        if self.account_money(account).await?.is_none() {
            return Err(StoreError::no_account(account).into());
        }
        let list = self
            .read()
            .get::<IdList<ManagementKeyId>>(&layout::space(account), list_name())
            .await?
            .unwrap_or_default();
        if idempotency.is_none() && !has_room(&list, id, key.most) {
            return Err(Error::Refused(ManagementKeyNotMade::TooMany));
        }
        let (space, of_owner) = owner_record(id);
        let owner = ManagementKeyOwner { account };
        let own = |view: &mut View| {
            view.presume_absent(&of_owner);
            if !view.has(&of_owner) {
                view.put(&of_owner, owner);
            }
            Ok(())
        };
        self.change(&space, own).await?;
        let request = OnceRequest { account, makes: *id.as_bytes(), idempotency };
        let find = |_: &mut Change<'_>, id: [u8; 16]| {
            Ok(ManagementKeyId::from_slice(&id).ok_or_else(|| damaged("an id"))?)
        };
        let create = |change: &mut Change<'_>| {
            let is_there = add_key(change, &key, act)?;
            if is_there { Ok(Made::New(id)) } else { Err(Error::Refused(ManagementKeyNotMade::TooMany)) }
        };
        let made = self.make_once(request, find, create).await;
        match &made {
            Ok(Made::New(_)) => {
                let owner = Principal::ManagementKey(account, id);
                self.put_credential(&key.digest, Credential::first(owner)).await?;
            }
            Ok(Made::Existing(_) | Made::Replayed(_)) | Err(Error::Refused(_)) => self.disown(id).await,
            // The key may have been made.
            Err(Error::Store(_)) => {}
        }
        made
    }

    /// Removes the record of the owner of a key that was not made. If the store cannot be reached, the record stays,
    /// but it leads to no key.
    async fn disown(&self, id: ManagementKeyId) {
        let (space, of_owner) = owner_record(id);
        let disowned = self.note(&space, |view| {
            view.remove(&of_owner);
            Ok(())
        });
        if let Err(error) = disowned.await {
            tracing::warn!(%error, "cannot remove the owner of a management key that was not made");
        }
    }

    /// Lists the account's management keys, oldest first.
    pub async fn management_keys(&self, account: AccountId) -> Result<Vec<ManagementKey>, StoreError> {
        let space = layout::space(account);
        let list = self.read().get::<IdList<ManagementKeyId>>(&space, list_name()).await?.unwrap_or_default();
        let names = list.ids.iter().map(|id| key_name(*id)).collect();
        let keys = self.read().get_all(&space, names).await?;
        Ok(list.ids.into_iter().zip(keys).filter_map(|(id, key)| Some(read_key(id, key?))).collect())
    }

    /// Finds a management key of the account.
    pub async fn management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<Option<ManagementKey>, StoreError> {
        let key = self.read().get(&layout::space(account), key_name(id)).await?;
        Ok(key.map(|key| read_key(id, key)))
    }

    /// Finds a management key of the account, and the account's standing at the same moment.
    pub async fn management_key_and_standing(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<Option<(ManagementKey, Option<Standing>)>, StoreError> {
        let asked = vec![key_name(id).into(), names::account().into()];
        let found = self.read().records_of(&layout::space(account), asked).await?;
        let [Some(key), money] = &found[..] else { return Ok(None) };
        let money = money.as_ref().map(value::<AccountRecord>).transpose()?;
        Ok(Some((read_key(id, value(key)?), money.and_then(|account| account.money.standing))))
    }

    /// Records the use of a management key, unless the last recorded use was less than
    /// [`domain::access::USE_NOTED_EVERY`] earlier. Returns whether this use was recorded.
    pub async fn use_management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let name = key_name(id);
        let note = |view: &mut View| {
            let Some(mut key) = view.get::<ManagementKeyRecord>(&name)? else { return Ok(false) };
            if !is_noted(key.last_used_at, now) {
                return Ok(false);
            }
            key.last_used_at = Some(now);
            view.put(&name, key);
            Ok(true)
        };
        self.note(&layout::space(account), note).await
    }

    /// Revokes a management key of any account. Repeating this changes nothing. `None` if there is no such key.
    pub async fn revoke_management_key(
        &self,
        id: ManagementKeyId,
        act: &Act,
    ) -> Result<Option<ManagementKey>, StoreError> {
        let (space, of_owner) = owner_record(id);
        let Some(owner) = self.read().get::<ManagementKeyOwner>(&space, of_owner).await? else {
            return Ok(None);
        };
        self.lanes.change(owner.account, |change| revoke(change, id, act)).await
    }
}

/// Adds a key, unless the account has too many. Returns whether the key exists afterwards.
fn add_key(change: &mut Change<'_>, new: &NewManagementKey, act: &Act) -> Result<bool, StoreError> {
    let NewManagementKey { account, key, digest: _, most } = new;
    let name = key_name(key.id);
    change.presume_absent(&name);
    let (money, list) = (change.account()?, change.get::<IdList<ManagementKeyId>>(&list_name())?);
    if money.is_none() {
        return Err(StoreError::no_account(*account));
    }
    let mut list = list.unwrap_or_default();
    if !has_room(&list, key.id, *most) {
        return Ok(false);
    }
    if change.has(&name) {
        return Ok(true);
    }
    insert_id(&mut list, key.id);
    change.put(&list_name(), list);
    change.put(&name, write_key(key));
    change.event(act.event(0, None, None, key.creation()));
    Ok(true)
}

/// Revokes a key, unless it is already revoked.
fn revoke(
    change: &mut Change<'_>,
    id: ManagementKeyId,
    act: &Act,
) -> Result<Option<ManagementKey>, StoreError> {
    let name = key_name(id);
    let Some(mut key) = change.get::<ManagementKeyRecord>(&name)? else { return Ok(None) };
    if key.revoked_at.is_none() {
        key.revoked_at = Some(act.at.to_whole_seconds());
        change.put(&name, key.clone());
        let revoked = EventKind::ManagementKeyRevoked { management_key_id: id, name: key.name.clone() };
        change.event(act.event(0, None, None, revoked));
    }
    Ok(Some(read_key(id, key)))
}

/// Returns whether a key is already in the list, or there is room for it.
fn has_room(list: &IdList<ManagementKeyId>, id: ManagementKeyId, most: u64) -> bool {
    (list.ids.len() as u64) < most || list.ids.contains(&id)
}

fn list_name() -> RecordName<IdList<ManagementKeyId>> {
    layout::name(layout::MANAGEMENT_KEYS, *b"l")
}

fn key_name(id: ManagementKeyId) -> RecordName<ManagementKeyRecord> {
    layout::name(layout::MANAGEMENT_KEYS, layout::tagged(b'k', id.as_bytes()))
}

/// Returns the space and name of the record for a key's owner.
fn owner_record(id: ManagementKeyId) -> (Space, RecordName<ManagementKeyOwner>) {
    let space = layout::part_of("management-keys", id.as_bytes());
    (space, layout::name(layout::MANAGEMENT_KEY_OWNERS, *id.as_bytes()))
}

fn write_key(key: &ManagementKey) -> ManagementKeyRecord {
    let ManagementKey { id: _, name, hint, access, created_at, expires_at, last_used_at, revoked_at } =
        key.clone();
    ManagementKeyRecord { name, hint, access, created_at, expires_at, last_used_at, revoked_at }
}

fn read_key(id: ManagementKeyId, key: ManagementKeyRecord) -> ManagementKey {
    let ManagementKeyRecord { name, hint, access, created_at, expires_at, last_used_at, revoked_at } = key;
    ManagementKey { id, name, hint, access, created_at, expires_at, last_used_at, revoked_at }
}
