//! Use-cases of management, and the life of API keys.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use shared::{
    clock::{Clock, random_bytes},
    ids::{AccountId, GroupId, KeyId},
    key::{self, Class},
    network::Network,
    refusal::Refusal,
    secret::ExposeSecret,
    time::Timestamp,
    wire::{KeyField, KeyObject, Noun, Value},
};
use shared_door::admission::{Owner, Permit, Quota};
use tokio::time::Instant;

use domain::{
    digest::Digest,
    event::{Act, Actor},
    group::{BadGroup, Group},
    key::{ApiKey, KeyPatch, NewKey, Status},
};
use governed::{Acted, Acting, Governed, Made};
use key_service_credentials::{Credentials, Identified};
use key_service_store::store::{self, Capacity as _, Idempotency, Store, StoreError, Updated};
use last_use::LastUses;
use once::{AS_SENT, digest_of_request};
pub use refused::Refused;

pub mod account_list;
pub mod accounts;
pub mod agents;
pub mod books;
pub mod children;
pub mod events;
pub mod generations;
pub mod governed;
pub mod governor;
pub mod groups;
pub mod installation;
mod last_use;
pub mod listing;
pub mod management_keys;
pub mod margin;
#[cfg(test)]
mod measure;
pub mod members;
pub mod moving;
pub mod once;
pub mod operators;
pub mod reached;
pub mod reading;
pub mod refusals;
pub mod refused;
pub mod requests;
pub mod rotation;
pub mod spend;
pub mod statement;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trouble;
pub mod upstreams;
pub mod usage;
pub mod webhooks;

/// API keys that an account may have unless configured otherwise: some 65 MB in Redis, or more with long labels.
pub const MAX_KEYS_PER_ACCOUNT: u64 = 100_000;

/// Timeout of an account for the permit to read. A page reads for some 20 ms, so a hundred pages get through.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Lifetime of an idempotency key.
const IDEMPOTENCY_TTL: Duration = Duration::from_hours(24);

/// Manages keys and accounts. Cheap to share behind an `Arc`.
pub struct Management {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    credentials: Arc<Credentials>,
    /// API keys that an account may have.
    max_keys: u64,
    /// Networks of receivers besides public ones.
    webhook_networks: Vec<Network>,
    passwords: members::Passwords,
    /// Permits to read for pages and listings. Accounts take turns, so that the store serves other accounts in between.
    reads: Quota,
    /// Records of uses of management keys.
    last_uses: LastUses,
    /// Held while the owners of an account are counted and one is changed.
    owners: tokio::sync::Mutex<()>,
    /// Time of the last id in milliseconds.
    last_id: AtomicI64,
}

/// Reasons for a failed use-case, by the caller's next step.
#[derive(Debug, thiserror::Error)]
pub enum Error<R> {
    /// Answer the caller. Nothing changed.
    #[error("{0}")]
    Refused(R),
    /// Try again; the outcome is unknown.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<R> Error<R> {
    /// The error with another form of the refusal.
    pub fn map<S>(self, form: impl FnOnce(R) -> S) -> Error<S> {
        match self {
            Self::Refused(reason) => Error::Refused(form(reason)),
            Self::Store(cause) => Error::Store(cause),
        }
    }
}

/// An API key as shown to the holder.
#[derive(Debug)]
pub struct OwnKey {
    pub account: AccountId,
    pub key: ApiKey,
    /// Group of the key, and the group's parent.
    pub group: Option<(Group, Option<Group>)>,
}

impl Management {
    /// Manages the keys and accounts in this store.
    pub fn new(store: Arc<Store>, clock: Arc<dyn Clock>, credentials: Arc<Credentials>) -> Self {
        let (max_keys, last_id) = (MAX_KEYS_PER_ACCOUNT, AtomicI64::new(i64::MIN));
        let passwords = members::Passwords::new();
        let (reads, owners) = (Quota::new(usize::MAX, 1), tokio::sync::Mutex::default());
        let (last_uses, webhook_networks) = (LastUses::default(), Vec::new());
        Self {
            store,
            clock,
            credentials,
            max_keys,
            webhook_networks,
            passwords,
            reads,
            last_uses,
            owners,
            last_id,
        }
    }

    /// Waits for the permit to read a page or listing of an account.
    async fn read_permit(&self, account: AccountId) -> Result<Permit, StoreError> {
        let permit = self.reads.wait(Owner::Account(account), 1, Instant::now() + READ_TIMEOUT).await;
        permit.ok_or(StoreError::Busy("the account reads too many pages at once"))
    }

    /// Sets the networks that webhooks may lead to besides public ones.
    #[must_use]
    pub fn with_webhook_networks(self, webhook_networks: Vec<Network>) -> Self {
        Self { webhook_networks, ..self }
    }

    /// Sets the bound of API keys per account.
    #[must_use]
    pub fn with_max_keys(self, max_keys: u64) -> Self {
        Self { max_keys, ..self }
    }

    /// An act of this actor, now.
    fn act(&self, actor: Actor) -> Act {
        Act { actor, at: self.clock.now(), chance: random_bytes(&*self.clock) }
    }

    /// Finds the presented API key, which may have no money left.
    pub async fn own_key(&self, presented: &str) -> Result<OwnKey, Error<Refusal>> {
        let refused = |refusal| Err(Error::Refused(refusal));
        let (owner, now) = (self.credentials.find(presented).await?, self.clock.now());
        let (account, key) = match self.credentials.identify(owner, Class::Api, now).await? {
            Identified::ApiKey(account, key) => (account, key),
            Identified::ManagementKey(..) => return refused(Refusal::ManagementKeyNotAllowed),
            Identified::Refused(refusal) => return refused(refusal),
        };
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

    /// Describes an attempt at a request with this digest, if the client named the request.
    fn attempt(name: Option<String>, request: Digest, now: Timestamp) -> Option<Idempotency> {
        let expires_at = now.plus(IDEMPOTENCY_TTL);
        name.map(|name| Idempotency { key: Digest::of(name.as_bytes()), request, now, expires_at })
    }

    /// Settings of keys made in a group at this time.
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

    /// Returns the current time, or the first millisecond after the last id. Listings are in the order of ids, and keys
    /// made within the same millisecond keep their order.
    fn later_than_the_last(&self, now: Timestamp) -> Timestamp {
        let next = |last: i64| now.millis().max(last.saturating_add(1));
        let last = self.last_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        Timestamp::from_millis(next(last.unwrap_or_else(|last| last)))
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
        settings: KeyPatch,
        idempotency_key: Option<String>,
    ) -> Acted<Made<Self>> {
        let Acting { management, account, actor } = by;
        if management.store.is_nearly_full().await? {
            return Err(Error::Refused(Refused::StoreFull));
        }
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
        let idempotency = Management::attempt(idempotency_key, request, now);
        let key = blank.with(&defaults, now).with(&settings, now);
        let new = NewKey { account, key, digest, most: management.max_keys };
        match management.store.create_key(new, idempotency, &act).await? {
            store::Created::New(key) => Ok(Made::New(key, Some(plaintext))),
            store::Created::Replayed(key) => Ok(Made::Replayed(key)),
            store::Created::Reused => Err(Error::Refused(Refused::IdempotencyKeyReused)),
            store::Created::BadGroup(bad) => Err(Error::Refused(Refused::BadGroup("group_id", bad))),
            store::Created::BadRaise(bad) => Err(Error::Refused(Refused::BadRaise(bad))),
            store::Created::TooMany => Err(Error::Refused(Refused::TooMany(Noun::Key, management.max_keys))),
        }
    }

    async fn fetch(by: Acting<'_>, id: KeyId) -> Acted<Self> {
        by.management.get(by.account, id).await
    }

    async fn update(by: Acting<'_>, id: KeyId, change: KeyPatch) -> Acted<Self> {
        let Acting { management, account, actor } = by;
        let act = management.act(actor);
        // An act that only disables the key or lowers bounds protects money, so a full store accepts it too.
        if management.store.is_nearly_full().await?
            && let Some(before) = management.store.key(account, id).await?
            && let Ok(after) = before.clone().updated(&change, act.at)
            && !after.only_lowers(&before, act.at)
        {
            return Err(Error::Refused(Refused::StoreFull));
        }
        match management.store.update_key(account, id, change, &act).await? {
            Updated::Key(key) => Ok(key),
            Updated::NotChanged(reason) => Err(Error::Refused(reason.into())),
            Updated::BadGroup(bad) => Err(Error::Refused(Refused::BadGroup("group_id", bad))),
            Updated::NotFound => Err(Error::Refused(Refused::NotFound(Noun::Key))),
        }
    }

    async fn end(Acting { management, account, actor }: Acting<'_>, id: KeyId) -> Acted<Self> {
        let revoked = management.store.revoke_key(account, id, &management.act(actor)).await?;
        revoked.ok_or(Error::Refused(Refused::NotFound(Noun::Key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::ledger::histories::account;

    #[tokio::test(start_paused = true)]
    async fn an_account_reads_one_page_at_a_time_and_keeps_no_other_waiting() {
        let management = testing::Office::open().management;
        let first = management.read_permit(account(1)).await.unwrap();
        assert!(management.read_permit(account(1)).await.is_err());
        drop(management.read_permit(account(2)).await.unwrap());
        drop(first);
        drop(management.read_permit(account(1)).await.unwrap());
    }
}
