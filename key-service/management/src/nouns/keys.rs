//! Use-cases for API keys: create once for each idempotency key, change, revoke.

use shared::{
    clock::random_bytes,
    ids::{AccountId, GroupId, KeyId},
    key::{self, Class},
    refusal::Refusal,
    secret::ExposeSecret,
    time::Timestamp,
    wire::{KeyField, KeyObject, Noun, Value},
};

use crate::{
    management::Management,
    nouns::{
        governed::{Acted, Acting, Governed, Issued},
        once::{AS_SENT, attempt, digest_of_request},
    },
};
use domain::{
    governed::{BadGroup, Refused},
    group::Group,
    key::{ApiKey, KeyPatch, NewKey, Status},
};
use key_service_credentials::Identified;
use key_service_store::store::{Capacity as _, Error, StoreError};

/// An API key as shown to its holder.
#[derive(Debug)]
pub struct OwnKey {
    pub account: AccountId,
    pub key: ApiKey,
    /// The key's group, and the group's parent.
    pub group: Option<(Group, Option<Group>)>,
}

impl Management {
    /// Finds the presented API key, even if it has no money left.
    pub async fn own_key(&self, presented: &str) -> Result<OwnKey, Error<Refusal>> {
        let refused = |refusal| Err(Error::Refused(refusal));
        let (owner, now) = (self.credentials.find(presented).await?, self.clock.now());
        let (account, key) = match self.credentials.identify(owner, Class::Api, now).await? {
            Identified::ApiKey(account, key) => (account, key),
            Identified::ManagementKey(..) => return refused(Refusal::ManagementKeyNotAllowed),
            Identified::OperatorKey(_) => return refused(Refusal::OperatorKeyNotAllowed),
            Identified::Refused(refusal) => return refused(refusal),
        };
        if let Some(standing) = self.store.standing(account).await? {
            return refused(standing.refusal());
        }
        let group = match key.spend.group {
            Some(group) => self.group_with_parent(account, group).await?,
            None => None,
        };
        let is_archived = |group: &Group| group.spend.archived_at.is_some();
        match key.status(now) {
            Status::Revoked => refused(Refusal::InvalidApiKey),
            Status::Disabled => refused(Refusal::KeyDisabled),
            Status::Expired => refused(Refusal::KeyExpired),
            Status::Active => match &group {
                Some((group, parent)) if is_archived(group) || parent.as_ref().is_some_and(is_archived) => {
                    refused(Refusal::GroupArchived)
                }
                Some(_) | None => Ok(OwnKey { account, key: *key, group }),
            },
        }
    }

    /// Returns the default settings for keys created in a group at this time.
    async fn key_defaults(
        &self,
        account: AccountId,
        id: GroupId,
        now: Timestamp,
    ) -> Result<KeyPatch, Error<Refused>> {
        let group = self.store.group(account, id).await?;
        let group = group.ok_or(Error::Refused(Refused::BadGroup("group_id", BadGroup::Unknown)))?;
        Ok(group.key_defaults.settings(now))
    }

    /// Finds a key of the account.
    pub async fn get(&self, account: AccountId, id: KeyId) -> Result<ApiKey, Error<Refused>> {
        self.store.key(account, id).await?.ok_or(Error::Refused(Refused::NotFound(Noun::Key)))
    }
}

impl Governed for ApiKey {
    type Object = KeyObject;
    type Settings = KeyPatch;

    fn value(&self, field: KeyField, now: Timestamp) -> Value {
        self.value(field, now)
    }

    async fn create(
        by: Acting<'_>,
        mut settings: KeyPatch,
        idempotency_key: Option<String>,
    ) -> Acted<Issued<Self>> {
        let Acting { management, account, actor } = by;
        management.check_room_for_secret().await?;
        management.name_by_id(settings.bounds.models.iter_mut().flatten());
        let act = management.act(actor);
        let now = act.at;
        let defaults = match settings.group.flatten() {
            Some(id) => management.key_defaults(account, id, now).await?,
            None => KeyPatch::default(),
        };
        let (plaintext, digest) = management.credentials.mint(Class::Api, random_bytes(&*management.clock));
        let id = KeyId::new(management.later_than_the_last(now), random_bytes(&*management.clock));
        let blank = ApiKey::new(id, key::hint(plaintext.expose_secret()), now.to_whole_seconds());
        let asked = blank.clone().with(&settings, now);
        let request = digest_of_request("key", |field: KeyField| asked.value(field, AS_SENT));
        let idempotency = attempt(idempotency_key, request, now);
        let key = blank.with(&defaults, now).with(&settings, now);
        let new = NewKey { account, key, digest, most: management.max_keys };
        let made = management.store.create_key(new, idempotency, &act).await?;
        Ok(Issued::new(made, plaintext))
    }

    async fn fetch(by: Acting<'_>, id: KeyId) -> Acted<Self> {
        by.management.get(by.account, id).await
    }

    async fn update(by: Acting<'_>, id: KeyId, mut change: KeyPatch) -> Acted<Self> {
        let Acting { management, account, actor } = by;
        management.name_by_id(change.bounds.models.iter_mut().flatten());
        let act = management.act(actor);
        // A change that only disables the key or lowers limits protects money, so a full store accepts it too.
        if management.store.is_nearly_full().await?
            && let Some(before) = management.store.key(account, id).await?
            && let Ok(after) = before.clone().updated(&change, act.at)
            && !after.only_lowers(&before, act.at)
        {
            return Err(StoreError::Full.into());
        }
        management.store.update_key(account, id, change, &act).await
    }

    async fn end(Acting { management, account, actor }: Acting<'_>, id: KeyId) -> Acted<Self> {
        management.store.revoke_key(account, id, &management.act(actor)).await
    }
}
