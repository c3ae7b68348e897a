//! Management keys of accounts.
//!
//! The record of a key's owner is written before the key, and the credential after it. So whoever has the credential
//! finds the key, and whoever sees the key can revoke it.

use domain::{
    access::{Access, Scope, is_noted},
    event::{Act, EventKind},
};
use key_service_ledger::{
    Change, StoreError,
    messages::{self, IdList, ManagementKeyOwner},
    view::View,
};
use records::{Name, Space};
use shared::{
    ids::{AccountId, GroupId, ManagementKeyId, Principal},
    time::Timestamp,
};

use crate::{
    data::{Credential, ManagementKey, NewManagementKey},
    store::{accounts::insert_id, base::Store, layout},
};

impl Store {
    /// Creates a management key of an existing account; repeating it changes nothing. `false` if the account is at its
    /// bound of such keys.
    pub async fn create_management_key(&self, key: NewManagementKey, act: &Act) -> Result<bool, StoreError> {
        let (account, id) = (key.account, key.key.id);
        // A call that is refused here leaves no owner of a key behind.
        if self.account_money(account).await?.is_none() {
            return Err(StoreError::no_account(account));
        }
        let list = self.read().get::<IdList>(&layout::space(account), list_name()).await?.unwrap_or_default();
        if !has_room(&list, id, key.most) {
            return Ok(false);
        }
        let (space, of_owner) = owner_record(id);
        let owner = ManagementKeyOwner { account: account.as_bytes().to_vec() };
        let own = |view: &mut View| {
            view.presume_absent(&of_owner);
            if !view.has(&of_owner) {
                view.put(&of_owner, &owner);
            }
            Ok(())
        };
        self.change(&space, own).await?;
        let is_there = self.lanes.change(account, |change| add_key(change, &key, act)).await?;
        if is_there {
            let owner = Principal::ManagementKey(account, id);
            self.put_credential(&key.digest, Credential::first(owner)).await?;
        }
        Ok(is_there)
    }

    /// The account's management keys, oldest first.
    pub async fn management_keys(&self, account: AccountId) -> Result<Vec<ManagementKey>, StoreError> {
        let space = layout::space(account);
        let list = self.read().get::<IdList>(&space, list_name()).await?.unwrap_or_default();
        let id = |bytes: &Vec<u8>| ManagementKeyId::from_slice(bytes).ok_or_else(damaged);
        let ids: Vec<_> = list.ids.iter().map(id).collect::<Result<_, _>>()?;
        let keys = self.read().get_all(&space, ids.iter().map(|id| key_name(*id)).collect()).await?;
        let keys = ids.into_iter().zip(keys).filter_map(|(id, key)| Some((id, key?)));
        keys.map(|(id, key)| read_key(id, key).ok_or_else(damaged)).collect()
    }

    /// Finds a management key of the account.
    pub async fn management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<Option<ManagementKey>, StoreError> {
        let key = self.read().get(&layout::space(account), key_name(id)).await?;
        key.map(|key| read_key(id, key).ok_or_else(damaged)).transpose()
    }

    /// Records the use of a management key, unless a use within [`domain::access::USE_NOTED_EVERY`] before it is
    /// recorded. Returns whether it recorded this use.
    pub async fn use_management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let name = key_name(id);
        let note = |view: &mut View| {
            let Some(mut key) = view.get::<messages::ManagementKey>(&name)? else { return Ok(false) };
            if !is_noted(key.last_used_at.map(Timestamp::from_millis), now) {
                return Ok(false);
            }
            key.last_used_at = Some(now.millis());
            view.put(&name, &key);
            Ok(true)
        };
        self.note(&layout::space(account), note).await
    }

    /// Revokes a management key of any account; repeating it changes nothing. `None` if there is none.
    pub async fn revoke_management_key(
        &self,
        id: ManagementKeyId,
        act: &Act,
    ) -> Result<Option<ManagementKey>, StoreError> {
        let (space, of_owner) = owner_record(id);
        let Some(owner) = self.read().get::<ManagementKeyOwner>(&space, of_owner).await? else {
            return Ok(None);
        };
        let account = AccountId::from_slice(&owner.account)
            .ok_or_else(|| StoreError::Damaged("the owner of a management key".into()))?;
        self.lanes.change(account, |change| revoke(change, id, act)).await
    }
}

/// Adds a key, unless the account has as many as allowed. Returns whether the key exists.
fn add_key(change: &mut Change<'_>, new: &NewManagementKey, act: &Act) -> Result<bool, StoreError> {
    let NewManagementKey { account, key, digest: _, most } = new;
    let name = key_name(key.id);
    change.presume_absent(&name);
    let (money, list) = (change.account()?, change.get::<IdList>(&list_name())?);
    if money.is_none() {
        return Err(StoreError::no_account(*account));
    }
    let mut list = list.unwrap_or_default();
    if !has_room(&list, key.id, *most) {
        return Ok(false);
    }
    if change.has_record(&name) {
        return Ok(true);
    }
    insert_id(&mut list, key.id.as_bytes());
    change.put(&list_name(), &list);
    change.put(&name, &write_key(key));
    change.event(act.event(0, None, None, key.creation()));
    Ok(true)
}

/// Revokes a key, unless it is revoked already.
fn revoke(
    change: &mut Change<'_>,
    id: ManagementKeyId,
    act: &Act,
) -> Result<Option<ManagementKey>, StoreError> {
    let name = key_name(id);
    let Some(mut key) = change.get::<messages::ManagementKey>(&name)? else { return Ok(None) };
    if key.revoked_at.is_none() {
        key.revoked_at = Some(act.at.to_whole_seconds().millis());
        change.put(&name, &key);
        let revoked = EventKind::ManagementKeyRevoked { management_key_id: id, name: key.name.clone() };
        change.event(act.event(0, None, None, revoked));
    }
    read_key(id, key).map(Some).ok_or_else(damaged)
}

/// Returns whether a key is in the list or may be added.
fn has_room(list: &IdList, id: ManagementKeyId, most: u64) -> bool {
    (list.ids.len() as u64) < most || list.ids.iter().any(|other| other == id.as_bytes())
}

fn list_name() -> Name {
    layout::name(layout::MANAGEMENT_KEYS, *b"l")
}

fn key_name(id: ManagementKeyId) -> Name {
    layout::name(layout::MANAGEMENT_KEYS, layout::tagged(b'k', id.as_bytes()))
}

/// Space and name of the record of a key's owner.
fn owner_record(id: ManagementKeyId) -> (Space, Name) {
    let space = layout::part_of("management-keys", id.as_bytes());
    (space, layout::name(layout::MANAGEMENT_KEY_OWNERS, *id.as_bytes()))
}

fn damaged() -> StoreError {
    StoreError::Damaged("a management key".into())
}

fn write_key(key: &ManagementKey) -> messages::ManagementKey {
    let ManagementKey { id: _, name, hint, access, created_at, expires_at, last_used_at, revoked_at } = key;
    messages::ManagementKey {
        name: name.clone(),
        hint: hint.clone(),
        scope: access.scope.as_str().to_owned(),
        group: access.group.map(|group| group.as_bytes().to_vec()).unwrap_or_default(),
        created_at: created_at.millis(),
        expires_at: expires_at.map(Timestamp::millis),
        last_used_at: last_used_at.map(Timestamp::millis),
        revoked_at: revoked_at.map(Timestamp::millis),
    }
}

/// Reads a key; `None` if no program writes such a record.
fn read_key(id: ManagementKeyId, key: messages::ManagementKey) -> Option<ManagementKey> {
    let messages::ManagementKey {
        name,
        hint,
        scope,
        group,
        created_at,
        expires_at,
        last_used_at,
        revoked_at,
    } = key;
    let group = if group.is_empty() { None } else { Some(GroupId::from_slice(&group)?) };
    Some(ManagementKey {
        id,
        name,
        hint,
        access: Access { scope: Scope::parse(&scope)?, group },
        created_at: Timestamp::from_millis(created_at),
        expires_at: expires_at.map(Timestamp::from_millis),
        last_used_at: last_used_at.map(Timestamp::from_millis),
        revoked_at: revoked_at.map(Timestamp::from_millis),
    })
}

#[cfg(test)]
mod fuzz;
