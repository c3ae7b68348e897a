//! Reach: the part of an account that a management key or a member may see.
//!
//! A caller limited to a group sees the keys in it and its child groups, and their activity. Everything else in the
//! account looks unknown, as if it were in another account. Reads take an [`AccountReach`] instead of an account, so
//! that no page can ask for more than its member may see.

use std::collections::HashMap;

use shared::{
    ids::{AccountId, GroupId, KeyId, Principal},
    wire::Noun,
};

use crate::management::Management;
use domain::{
    access::{Access, Effect, Scope, Subject, may},
    governed::Refused,
    group::Group,
    key::ApiKey,
    ledger::GroupChain,
};
use key_service_store::store::{Error, StoreError};

/// The part of an account that a caller may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountReach {
    pub account: AccountId,
    /// Limits the reach to the keys of this group and its child groups; `None` for the whole account.
    pub group: Option<GroupId>,
}

impl AccountReach {
    /// Returns a reach over the whole account.
    pub const fn whole(account: AccountId) -> Self {
        Self { account, group: None }
    }

    /// Returns whether keys and bills in this group, with this parent, are within reach.
    pub fn has(self, groups: GroupChain) -> bool {
        let access = Access { scope: Scope::Read, group: self.group };
        may(access, Effect::Read, Subject::Key(groups)).is_ok()
    }
}

impl Management {
    /// Reads a group and its parent. The parent is read only if the reach depends on it.
    pub(crate) async fn chain(
        &self,
        reach: AccountReach,
        group: Option<GroupId>,
    ) -> Result<GroupChain, StoreError> {
        let Some(id) = group.filter(|_| reach.group.is_some() && group != reach.group) else {
            return Ok([group, None]);
        };
        let found = self.store.group(reach.account, id).await?;
        Ok([group, found.and_then(|group| group.spend.parent)])
    }

    /// Lists the group that the reach is limited to, and its child groups; `None` if the whole account is within reach.
    pub(crate) async fn groups_in(
        &self,
        AccountReach { account, group }: AccountReach,
    ) -> Result<Option<Vec<GroupId>>, StoreError> {
        let Some(group) = group else { return Ok(None) };
        let mut groups = self.store.child_groups(account, group).await?;
        groups.push(group);
        Ok(Some(groups))
    }

    /// Finds a key within reach.
    pub async fn key_in(&self, reach: AccountReach, id: KeyId) -> Result<ApiKey, Error<Refused>> {
        let key = self.get(reach.account, id).await?;
        let is_reached = reach.has(self.chain(reach, key.spend.group).await?);
        if is_reached { Ok(key) } else { Err(Error::Refused(Refused::NotFound(Noun::Key))) }
    }

    /// Finds a group within reach.
    pub async fn group_in(&self, reach: AccountReach, id: GroupId) -> Result<Group, Error<Refused>> {
        let group = self.group(reach.account, id).await?;
        let is_reached = reach.has([Some(id), group.spend.parent]);
        if is_reached { Ok(group) } else { Err(Error::Refused(Refused::NotFound(Noun::Group))) }
    }

    /// Finds the key that has or had this plaintext. Only its hash leaves this function.
    pub async fn key_of_plaintext(
        &self,
        reach: AccountReach,
        plaintext: &str,
    ) -> Result<Option<Principal>, StoreError> {
        let found = self.credentials.find(plaintext).await?.map(|credential| credential.owner);
        let Some(owner) = found.filter(|owner| owner.account() == reach.account) else { return Ok(None) };
        let is_reached = match &owner {
            Principal::ApiKey(account, id) => {
                let group = self.store.key(*account, *id).await?.and_then(|key| key.spend.group);
                reach.has(self.chain(reach, group).await?)
            }
            Principal::ManagementKey(..) => reach.group.is_none(),
            Principal::OperatorKey(..) => false,
        };
        Ok(is_reached.then_some(owner))
    }

    /// Finds the keys within reach by id.
    pub async fn keys_by_id(
        &self,
        reach: AccountReach,
        ids: Vec<KeyId>,
    ) -> Result<HashMap<KeyId, ApiKey>, StoreError> {
        let found = self.store.keys_by_id(reach.account, &once(ids)).await?;
        let groups = self.groups_in(reach).await?;
        let is_reached = |key: &ApiKey| is_in(key.spend.group, groups.as_deref());
        Ok(found.into_iter().filter(is_reached).map(|key| (key.id, key)).collect())
    }

    /// Finds the groups within reach by id.
    pub async fn groups_by_id(
        &self,
        reach: AccountReach,
        ids: Vec<GroupId>,
    ) -> Result<HashMap<GroupId, Group>, StoreError> {
        let found = self.store.groups_by_id(reach.account, &once(ids)).await?;
        let is_reached = |group: &Group| reach.has([Some(group.id), group.spend.parent]);
        Ok(found.into_iter().filter(is_reached).map(|group| (group.id, group)).collect())
    }
}

fn once<Id: Ord>(mut ids: Vec<Id>) -> Vec<Id> {
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Returns whether a group is in `reached`; always true if that is `None`, which stands for the whole account.
pub(crate) fn is_in(group: Option<GroupId>, reached: Option<&[GroupId]>) -> bool {
    reached.is_none_or(|reached| group.is_some_and(|group| reached.contains(&group)))
}
