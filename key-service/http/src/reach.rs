//! Reach of callers: objects of the account that a management key of a group may concern.

use shared::{
    error::ApiError,
    ids::{GroupId, KeyId},
};

use super::{Api, error::forbidden, parts::PathId};
use domain::{access::Subject, group::BadGroup, key::KeyPatch};
use key_service_management::{KeyRefused, api_error::bad_group, governor::Governor, groups::GroupRefused};

impl Api {
    /// The API key of the path. A key out of reach is as unknown as another account's.
    pub(super) async fn key_in_reach(
        &self,
        caller: &Governor,
        path: &PathId<KeyId>,
    ) -> Result<KeyId, ApiError> {
        let id = path.or(KeyRefused::NotFound)?;
        let judged = self.management.judge_key(caller, id).await;
        judged.map_err(|error| forbidden(error, KeyRefused::NotFound))?;
        Ok(id)
    }

    /// The group of the path, whose keys the request concerns.
    pub(super) async fn keys_of_group_in_reach(
        &self,
        caller: &Governor,
        path: &PathId<GroupId>,
    ) -> Result<GroupId, ApiError> {
        let id = path.or(GroupRefused::NotFound)?;
        let judged = self.management.judge_keys_of(caller, id).await;
        judged.map_err(|error| forbidden(error, GroupRefused::NotFound))?;
        Ok(id)
    }

    /// Puts a new key into the caller's group, unless the key is meant for a group in reach.
    pub(super) async fn place_new(&self, caller: &Governor, draft: &mut KeyPatch) -> Result<(), ApiError> {
        if caller.access.group.is_some() && draft.group.flatten().is_none() {
            draft.group = Some(caller.access.group);
        }
        self.judge_move(caller, draft).await
    }

    /// Judges the group that a key is moved to, if it is moved.
    pub(super) async fn judge_move(&self, caller: &Governor, patch: &KeyPatch) -> Result<(), ApiError> {
        let judged = match patch.group {
            None => Ok(()),
            // A key without a group is the account's.
            Some(None) => caller.may(Subject::Account),
            Some(Some(group)) => self.management.judge_keys_of(caller, group).await,
        };
        judged.map_err(|error| forbidden(error, bad_group("group_id", BadGroup::Unknown)))
    }
}
