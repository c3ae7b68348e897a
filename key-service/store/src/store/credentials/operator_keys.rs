//! Operator keys, in the space of the operators.
//!
//! The credential is written before the key. A credential without a key is refused like an unknown one, so a caller
//! that dies in between leaves nothing that works, and a rotation never ends a key before the new one can be used.

use domain::{
    access::is_noted,
    event::{Act, EventKind},
    key::Status,
};
use key_service_ledger::{
    Change, StoreError,
    names::RecordName,
    stored::{IdList, OperatorKeyRecord},
    view::View,
};
use shared::{
    ids::{OperatorKeyId, Principal},
    time::Timestamp,
};

use crate::{
    data::{Credential, NewOperatorKey, OperatorKey, OperatorKeyMade, OperatorRotation},
    store::{accounts::insert_id, base::Store, layout, members::operators::operators},
};

impl Store {
    /// Creates an operator key, unless there are too many. The operators' account must exist.
    pub async fn create_operator_key(
        &self,
        new: NewOperatorKey,
        act: &Act,
    ) -> Result<OperatorKeyMade, StoreError> {
        let create = |change: &mut Change<'_>| {
            if is_there(change, &new) {
                return Ok(OperatorKeyMade::Made);
            }
            if !add(change, &new)? {
                return Ok(OperatorKeyMade::TooMany);
            }
            change.event(act.event(0, None, None, new.key.creation()));
            Ok(OperatorKeyMade::Made)
        };
        self.with_credential(&new, create).await
    }

    /// Creates a key in place of another key, which ends at the given time unless it ends earlier.
    pub async fn rotate_operator_key(
        &self,
        rotation: OperatorRotation,
        act: &Act,
    ) -> Result<OperatorKeyMade, StoreError> {
        let OperatorRotation { previous, new, ends_at } = &rotation;
        let rotate = |change: &mut Change<'_>| {
            if is_there(change, new) {
                return Ok(OperatorKeyMade::Made);
            }
            let name = key_name(*previous);
            let Some(record) = change.get::<OperatorKeyRecord>(&name)? else {
                return Ok(OperatorKeyMade::NoPrevious);
            };
            let before = read_key(*previous, record.clone());
            if before.status(act.at) != Status::Active {
                return Ok(OperatorKeyMade::NoPrevious);
            }
            if !add(change, new)? {
                return Ok(OperatorKeyMade::TooMany);
            }
            let end = before.end().map_or(*ends_at, |end| end.min(*ends_at));
            let rotated = EventKind::OperatorKeyRotated {
                operator_key_id: *previous,
                name: record.name.clone(),
                new_operator_key_id: new.key.id,
                previous_key_expires_at: end,
            };
            change.put(&name, OperatorKeyRecord { ends_at: Some(end), ..record });
            change.event(act.event(0, None, None, rotated));
            Ok(OperatorKeyMade::Made)
        };
        self.with_credential(new, rotate).await
    }

    /// Writes the credential of a key, and then the key as `decide` says.
    async fn with_credential(
        &self,
        new: &NewOperatorKey,
        decide: impl FnMut(&mut Change<'_>) -> Result<OperatorKeyMade, StoreError> + Send,
    ) -> Result<OperatorKeyMade, StoreError> {
        let credential = Credential::first(Principal::OperatorKey(operators(), new.key.id));
        self.put_credential(&new.digest, credential).await?;
        let made = self.lanes.change(operators(), decide).await?;
        if made != OperatorKeyMade::Made {
            self.forget_credential(&new.digest, credential).await;
        }
        Ok(made)
    }

    /// Lists the operator keys, oldest first.
    pub async fn operator_keys(&self) -> Result<Vec<OperatorKey>, StoreError> {
        let space = layout::space(operators());
        let list = self.read().get::<IdList<OperatorKeyId>>(&space, list_name()).await?.unwrap_or_default();
        let names = list.ids.iter().map(|id| key_name(*id)).collect();
        let keys = self.read().get_all(&space, names).await?;
        Ok(list.ids.into_iter().zip(keys).filter_map(|(id, key)| Some(read_key(id, key?))).collect())
    }

    pub async fn operator_key(&self, id: OperatorKeyId) -> Result<Option<OperatorKey>, StoreError> {
        let key = self.read().get(&layout::space(operators()), key_name(id)).await?;
        Ok(key.map(|key| read_key(id, key)))
    }

    /// Records the use of an operator key, unless a recent use is recorded. Returns whether it recorded this use.
    pub async fn use_operator_key(&self, id: OperatorKeyId, now: Timestamp) -> Result<bool, StoreError> {
        let name = key_name(id);
        let note = |view: &mut View| {
            let Some(key) = view.get::<OperatorKeyRecord>(&name)? else { return Ok(false) };
            if !is_noted(key.last_used_at, now) {
                return Ok(false);
            }
            view.put(&name, OperatorKeyRecord { last_used_at: Some(now), ..key });
            Ok(true)
        };
        self.note(&layout::space(operators()), note).await
    }

    /// Revokes an operator key; a repetition changes nothing. `None` if the key does not exist.
    pub async fn revoke_operator_key(
        &self,
        id: OperatorKeyId,
        act: &Act,
    ) -> Result<Option<OperatorKey>, StoreError> {
        let revoke = |change: &mut Change<'_>| {
            let name = key_name(id);
            let Some(mut key) = change.get::<OperatorKeyRecord>(&name)? else { return Ok(None) };
            if key.revoked_at.is_none() {
                key.revoked_at = Some(act.at.to_whole_seconds());
                change.put(&name, key.clone());
                let revoked = EventKind::OperatorKeyRevoked { operator_key_id: id, name: key.name.clone() };
                change.event(act.event(0, None, None, revoked));
            }
            Ok(Some(read_key(id, key)))
        };
        self.lanes.change(operators(), revoke).await
    }
}

/// Returns whether the key exists already: the call may be repeated because its answer was lost.
fn is_there(change: &mut Change<'_>, new: &NewOperatorKey) -> bool {
    let name = key_name(new.key.id);
    change.presume_absent(&name);
    change.has(&name)
}

/// Adds a key, unless there are too many. Returns whether there is room.
fn add(change: &mut Change<'_>, new: &NewOperatorKey) -> Result<bool, StoreError> {
    let name = key_name(new.key.id);
    let mut list = change.get::<IdList<OperatorKeyId>>(&list_name())?.unwrap_or_default();
    if list.ids.len() as u64 >= new.most {
        return Ok(false);
    }
    insert_id(&mut list, new.key.id);
    change.put(&list_name(), list);
    change.put(&name, write_key(&new.key));
    Ok(true)
}

fn list_name() -> RecordName<IdList<OperatorKeyId>> {
    layout::name(layout::OPERATOR_KEYS, *b"l")
}

fn key_name(id: OperatorKeyId) -> RecordName<OperatorKeyRecord> {
    layout::name(layout::OPERATOR_KEYS, layout::tagged(b'k', id.as_bytes()))
}

fn write_key(key: &OperatorKey) -> OperatorKeyRecord {
    let OperatorKey { id: _, name, hint, rights, created_at, expires_at, last_used_at, .. } = key.clone();
    let OperatorKey { revoked_at, ends_at, .. } = *key;
    OperatorKeyRecord { name, hint, rights, created_at, expires_at, last_used_at, revoked_at, ends_at }
}

fn read_key(id: OperatorKeyId, key: OperatorKeyRecord) -> OperatorKey {
    let OperatorKeyRecord { name, hint, rights, created_at, expires_at, last_used_at, revoked_at, ends_at } =
        key;
    OperatorKey { id, name, hint, rights, created_at, expires_at, last_used_at, revoked_at, ends_at }
}
