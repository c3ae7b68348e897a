//! Use-cases of groups: made once for each external id, changed, archived; all keys revoked at once.

use futures_util::future::try_join_all;
use shared::{
    clock::random_bytes,
    ids::{AccountId, GroupId, KeyId},
};

use super::{Error, Management, once::digest_of_request};
use domain::{
    event::Actor,
    group::{Group, GroupNotChanged, GroupPatch, NewGroup},
};
use key_service_store::store::{
    Capacity as _, GroupCreated, GroupPage, GroupUpdated, Order, Page, StoreError,
};

/// Keys of a group read at a time, to be revoked.
const REVOKED_AT_ONCE: usize = 500;
/// Keys of a group revoked side by side, which stores write together.
const REVOKED_TOGETHER: usize = 64;

/// Reason why a group was not made, changed or found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRefused {
    /// The account does not have the group.
    NotFound,
    /// The group cannot be changed so.
    NotChanged(GroupNotChanged),
    /// The account is at its bound of groups.
    TooMany {
        /// Largest number of groups that the account may have.
        most: u64,
    },
    /// The idempotency key was used with another request.
    IdempotencyKeyReused,
    /// The store is nearly full.
    StoreFull,
}

/// Answer to the creation of a group.
#[derive(Debug)]
pub enum MadeGroup {
    /// The group was made.
    New(Group),
    /// A group with the external id exists, and stays as it is.
    Existing(Group),
    /// An earlier attempt with the same idempotency key made this group.
    Replayed(Group),
}

impl Management {
    /// Creates a group, only once for each idempotency key and each external id.
    pub async fn create_group(
        &self,
        account: AccountId,
        settings: GroupPatch,
        idempotency_key: Option<String>,
        actor: Actor,
    ) -> Result<MadeGroup, Error<GroupRefused>> {
        let refused = |reason| Err(Error::Refused(reason));
        // With an idempotency key the store tells a repetition from a group that was there before.
        if let Some(external_id) = settings.external_id.as_ref().and_then(Option::as_ref)
            && idempotency_key.is_none()
            && let Some(group) = self.store.group_with_external_id(account, external_id).await?
        {
            return Ok(MadeGroup::Existing(group));
        }
        if self.store.is_nearly_full().await? {
            return refused(GroupRefused::StoreFull);
        }
        let act = self.act(actor);
        let now = act.at;
        let id = GroupId::new(self.later_than_the_last(now), random_bytes(&*self.clock));
        let (group, most) = (Group::new(id, now.to_whole_seconds()).with(&settings, now), self.max_keys);
        let request = digest_of_request("group", |field| group.value(field, now));
        let attempt = Self::attempt(idempotency_key, request, now);
        let new = NewGroup { account, group, most };
        match self.store.create_group(new, attempt, &act).await? {
            GroupCreated::New(group) => Ok(MadeGroup::New(group)),
            GroupCreated::Existing(group) => Ok(MadeGroup::Existing(group)),
            GroupCreated::Replayed(group) => Ok(MadeGroup::Replayed(group)),
            GroupCreated::Reused => refused(GroupRefused::IdempotencyKeyReused),
            GroupCreated::BadParent(bad) => refused(GroupRefused::NotChanged(GroupNotChanged::Parent(bad))),
            GroupCreated::TooMany => refused(GroupRefused::TooMany { most }),
        }
    }

    /// Finds a group of the account.
    pub async fn group(&self, account: AccountId, id: GroupId) -> Result<Group, Error<GroupRefused>> {
        self.store.group(account, id).await?.ok_or(Error::Refused(GroupRefused::NotFound))
    }

    /// Changes a group, completely or not at all, and returns the result.
    pub async fn update_group(
        &self,
        account: AccountId,
        id: GroupId,
        patch: GroupPatch,
        actor: Actor,
    ) -> Result<Group, Error<GroupRefused>> {
        let act = self.act(actor);
        // As of a key. What the store would refuse is left to the store.
        if self.store.is_nearly_full().await?
            && let Some(before) = self.store.group(account, id).await?
            && let Ok(after) = before.clone().updated(&patch, Ok(()), act.at)
            && !after.only_lowers(&before, act.at)
        {
            return Err(Error::Refused(GroupRefused::StoreFull));
        }
        match self.store.update_group(account, id, patch, &act).await? {
            GroupUpdated::Group(group) => Ok(group),
            GroupUpdated::NotChanged(reason) => Err(Error::Refused(GroupRefused::NotChanged(reason))),
            GroupUpdated::NotFound => Err(Error::Refused(GroupRefused::NotFound)),
        }
    }

    /// Archives a group for good; repeating it changes nothing.
    pub async fn archive_group(
        &self,
        account: AccountId,
        id: GroupId,
        actor: Actor,
    ) -> Result<Group, Error<GroupRefused>> {
        let archived = self.store.archive_group(account, id, &self.act(actor)).await?;
        archived.ok_or(Error::Refused(GroupRefused::NotFound))
    }

    /// Revokes all keys of a group, those of its child groups excepted, and returns the number of keys that were live.
    pub async fn revoke_keys(
        &self,
        account: AccountId,
        id: GroupId,
        actor: Actor,
    ) -> Result<u64, Error<GroupRefused>> {
        self.group(account, id).await?;
        let (mut after, mut revoked) = (None, 0);
        loop {
            let page = Page { after, order: Order::Ascending, status: None, limit: REVOKED_AT_ONCE };
            let keys = self.store.keys_of_group(account, id, page).await?;
            after = keys.last().map(|key| key.id);
            let live: Vec<_> =
                keys.iter().filter(|key| key.spend.revoked_at.is_none()).map(|key| key.id).collect();
            revoked += live.len() as u64;
            for together in live.chunks(REVOKED_TOGETHER) {
                let revoke = |key: &KeyId| self.revoke_one(account, *key, actor.clone());
                try_join_all(together.iter().map(revoke)).await?;
            }
            if keys.len() < REVOKED_AT_ONCE {
                return Ok(revoked);
            }
        }
    }

    /// The newest groups of the account.
    pub async fn newest_groups(&self, account: AccountId, limit: usize) -> Result<Vec<Group>, StoreError> {
        let page = GroupPage { after: None, order: Order::Descending, limit };
        self.store.groups(account, page).await
    }

    async fn revoke_one(&self, account: AccountId, key: KeyId, actor: Actor) -> Result<(), StoreError> {
        self.store.revoke_key(account, key, &self.act(actor)).await.map(drop)
    }

    /// A group and its parent, if the account has them.
    pub(crate) async fn group_with_parent(
        &self,
        account: AccountId,
        id: GroupId,
    ) -> Result<Option<(Group, Option<Group>)>, StoreError> {
        let Some(group) = self.store.group(account, id).await? else { return Ok(None) };
        let parent = match group.spend.parent {
            Some(parent) => self.store.group(account, parent).await?,
            None => None,
        };
        Ok(Some((group, parent)))
    }
}
