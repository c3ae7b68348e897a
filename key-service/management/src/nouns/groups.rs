//! Use-cases for groups: create once for each external id, change, archive, and revoke all keys.

use std::cmp::Reverse;

use futures_util::future::try_join_all;
use shared::{
    clock::random_bytes,
    ids::{AccountId, GroupId, KeyId},
    time::Timestamp,
    wire::{GroupField, GroupObject, Noun, Value},
};

use crate::{
    management::Management,
    nouns::{
        governed::{Acted, Acting, Governed, Issued},
        once::{AS_SENT, attempt, digest_of_request},
        reach::AccountReach,
    },
};
use domain::{
    event::Actor,
    governed::{Made, Refused},
    group::{Group, GroupPatch, NewGroup},
};
use key_service_store::store::{Capacity as _, Error, GroupPage, Order, Page, StoreError};

/// Number of a group's keys that are read at a time in order to revoke them.
const REVOKED_AT_ONCE: usize = 500;
/// Number of a group's keys that are revoked concurrently, so that stores can write them together.
const REVOKED_TOGETHER: usize = 64;

impl Governed for Group {
    type Object = GroupObject;
    type Settings = GroupPatch;

    fn value(&self, field: GroupField, now: Timestamp) -> Value {
        self.value(field, now)
    }

    /// Creates a group, once for each idempotency key and each external id.
    async fn create(
        by: Acting<'_>,
        mut settings: GroupPatch,
        idempotency_key: Option<String>,
    ) -> Acted<Issued<Self>> {
        let Acting { management, account, actor } = by;
        // With an idempotency key, the store can tell a repeated request from a group that already existed.
        if let Some(external_id) = settings.external_id.as_ref().and_then(Option::as_ref)
            && idempotency_key.is_none()
            && let Some(group) = management.store.group_with_external_id(account, external_id).await?
        {
            return Ok(Made::Existing(group).into());
        }
        management.check_room().await?;
        management.name_by_id(models(&mut settings));
        let act = management.act(actor);
        let now = act.at;
        let id = GroupId::new(management.later_than_the_last(now), random_bytes(&*management.clock));
        let (group, most) =
            (Group::new(id, now.to_whole_seconds()).with(&settings, now), management.max_keys);
        let request = digest_of_request("group", |field| group.value(field, AS_SENT));
        let attempt = attempt(idempotency_key, request, now);
        let new = NewGroup { account, group, most };
        Ok(management.store.create_group(new, attempt, &act).await?.into())
    }

    async fn fetch(by: Acting<'_>, id: GroupId) -> Acted<Self> {
        by.management.group(by.account, id).await
    }

    async fn update(by: Acting<'_>, id: GroupId, mut change: GroupPatch) -> Acted<Self> {
        let Acting { management, account, actor } = by;
        management.name_by_id(models(&mut change));
        let act = management.act(actor);
        // As with keys, a full store accepts a change that only lowers limits. Invalid changes are refused below.
        if management.store.is_nearly_full().await?
            && let Some(before) = management.store.group(account, id).await?
            && let Ok(after) = before.clone().updated(&change, Ok(()), act.at)
            && !after.only_lowers(&before, act.at)
        {
            return Err(StoreError::Full.into());
        }
        management.store.update_group(account, id, change, &act).await
    }

    async fn end(Acting { management, account, actor }: Acting<'_>, id: GroupId) -> Acted<Self> {
        management.store.archive_group(account, id, &management.act(actor)).await
    }
}

impl Acting<'_> {
    /// Revokes a group's keys, but not its child groups' keys. Returns how many were live.
    pub async fn revoke_keys(self, id: GroupId) -> Acted<u64> {
        let Self { management, account, actor } = self;
        management.group(account, id).await?;
        let (mut after, mut revoked) = (None, 0);
        loop {
            let page = Page { after, order: Order::Ascending, status: None, limit: REVOKED_AT_ONCE };
            let keys = management.store.keys_of_group(account, id, page).await?;
            after = keys.last().map(|key| key.id);
            let live: Vec<_> =
                keys.iter().filter(|key| key.spend.revoked_at.is_none()).map(|key| key.id).collect();
            revoked += live.len() as u64;
            for together in live.chunks(REVOKED_TOGETHER) {
                let revoke = |key: &KeyId| management.revoke_one(account, *key, actor.clone());
                try_join_all(together.iter().map(revoke)).await?;
            }
            if keys.len() < REVOKED_AT_ONCE {
                return Ok(revoked);
            }
        }
    }
}

/// Returns the lists of models in settings: the group's list, and the default for its keys.
fn models(settings: &mut GroupPatch) -> impl Iterator<Item = &mut Vec<String>> {
    let GroupPatch { bounds, key_defaults, .. } = settings;
    bounds.models.iter_mut().chain(key_defaults.bounds.models.iter_mut()).flatten()
}

impl Management {
    /// Finds a group of the account.
    pub async fn group(&self, account: AccountId, id: GroupId) -> Result<Group, Error<Refused>> {
        self.store.group(account, id).await?.ok_or(Error::Refused(Refused::NotFound(Noun::Group)))
    }

    /// Lists the newest groups within reach.
    pub async fn newest_groups(&self, reach: AccountReach, limit: usize) -> Result<Vec<Group>, StoreError> {
        if let Some(mut ids) = self.groups_in(reach).await? {
            ids.sort_unstable_by_key(|id| Reverse(*id));
            ids.truncate(limit);
            return self.store.groups_by_id(reach.account, &ids).await;
        }
        let page = GroupPage { after: None, order: Order::Descending, limit };
        self.store.groups(reach.account, page).await
    }

    async fn revoke_one(&self, account: AccountId, key: KeyId, actor: Actor) -> Result<(), Error<Refused>> {
        self.store.revoke_key(account, key, &self.act(actor)).await.map(drop)
    }

    /// Reads a group and its parent; `None` if the account does not have the group.
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
