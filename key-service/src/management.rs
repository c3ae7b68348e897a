//! Use-cases of management: authentication of management keys, and the life of API keys.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use shared::{
    clock::{Clock, random_bytes},
    digest::Digest,
    ids::{AccountId, KeyId},
    key::{self, Class},
    money::NanoUsd,
    refusal::Refusal,
    rpc::Principal,
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
};

use crate::{
    credentials::Credentials,
    domain::{
        key::{ApiKey, KeyPatch, NewKey, Status},
        ledger,
    },
    store::{self, Idempotency, Order, Page, Store, Unavailable, Updated},
};

pub mod accounts;
pub mod books;
#[cfg(test)]
pub(crate) mod testing;

/// Keys read from the store at a time while a listing filters by status.
const FILTERED_READ: usize = 500;

/// Lifetime of an idempotency key.
const IDEMPOTENCY_TTL: Duration = Duration::from_hours(24);

/// Manages keys and accounts. Cheap to share behind an `Arc`.
pub struct Management {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    credentials: Arc<Credentials>,
    /// Time of the last id in milliseconds.
    last_id: AtomicI64,
}

/// Reasons why a use-case failed, by what the caller does next.
#[derive(Debug, thiserror::Error)]
pub enum Error<R> {
    /// Answer the caller. Nothing changed.
    #[error("{0}")]
    Refused(R),
    /// Try again. The outcome is unknown.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Reason why a key was not changed or found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRefused {
    /// The account does not have the key.
    NotFound,
    /// A revoked key cannot be changed.
    Revoked,
    /// The `after` key of a listing does not exist in the account.
    UnknownCursor,
    /// The idempotency key was used with another request.
    IdempotencyKeyReused,
}

/// The keys to list.
#[derive(Clone, Copy, Debug)]
pub struct Listing {
    /// Only keys after this one.
    pub after: Option<KeyId>,
    /// Order of the listing.
    pub order: Order,
    /// Only keys with this status.
    pub status: Option<Status>,
    /// Largest number of keys.
    pub limit: usize,
}

/// Some of an account's keys.
#[derive(Debug)]
pub struct KeyPage {
    /// The keys, in the order that was asked for.
    pub keys: Vec<ApiKey>,
    /// More keys follow in the same listing.
    pub has_more: bool,
}

/// The owner's settings for a new key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyDraft {
    /// Its name, chosen by its owner.
    pub label: String,
    /// Largest amount that may ever be spent with it; `None` is no limit.
    pub limit: Option<NanoUsd>,
    /// Instant from which the key is refused; `None` is never.
    pub expires_at: Option<Timestamp>,
}

/// Answer to the creation of a key.
#[derive(Debug)]
pub enum Created {
    /// The key was made.
    New {
        /// The key.
        key: ApiKey,
        /// Plaintext of the key, which cannot be recovered later.
        plaintext: SecretString,
    },
    /// An earlier attempt with the same idempotency key made this key. Its plaintext is gone.
    Replayed(ApiKey),
}

impl Management {
    /// Management of the keys and accounts in this store.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, credentials: Arc<Credentials>) -> Self {
        Self { store, clock, credentials, last_id: AtomicI64::new(i64::MIN) }
    }

    /// The account that a presented management key governs.
    pub async fn authenticate(&self, presented: &str) -> Result<AccountId, Error<Refusal>> {
        let owner = self.credentials.find(presented).await?;
        match self.credentials.identify(owner, Class::Management).await? {
            Ok(Principal::ManagementKey(account, _) | Principal::ApiKey(account, _)) => Ok(account),
            Err(refusal) => Err(Error::Refused(refusal)),
        }
    }

    /// Lists keys of the account. Statuses are filtered here, so that stores need not compute them: a listing of one
    /// status reads all keys between its matches.
    pub async fn list(&self, account: AccountId, listing: Listing) -> Result<KeyPage, Error<KeyRefused>> {
        let Listing { mut after, order, status, limit } = listing;
        if let Some(id) = after
            && self.store.key(account, id).await?.is_none()
        {
            return Err(Error::Refused(KeyRefused::UnknownCursor));
        }
        let now = self.clock.now();
        // One more than the limit shows whether there are more.
        let wanted = limit.saturating_add(1);
        let read = if status.is_some() { FILTERED_READ } else { wanted };
        let mut keys = Vec::new();
        while keys.len() < wanted {
            let page = self.store.keys(account, Page { after, order, limit: read }).await?;
            let was_last = page.len() < read;
            after = page.last().map(|key| key.id);
            keys.extend(page.into_iter().filter(|key| status.is_none_or(|status| key.status(now) == status)));
            if was_last {
                break;
            }
        }
        let has_more = keys.len() > limit;
        keys.truncate(limit);
        Ok(KeyPage { keys, has_more })
    }

    /// Makes a key, once per idempotency key where one is given.
    pub async fn create(
        &self,
        account: AccountId,
        draft: KeyDraft,
        idempotency_key: Option<String>,
    ) -> Result<Created, Error<KeyRefused>> {
        let now = self.clock.now();
        let idempotency = idempotency_key.map(|key| Idempotency {
            key,
            request: draft.digest(),
            now,
            expires_at: now.plus(IDEMPOTENCY_TTL),
        });
        let (plaintext, digest) = self.credentials.mint(Class::Api, random_bytes(&*self.clock));
        let key = ApiKey {
            id: KeyId::new(self.later_than_the_last(now), random_bytes(&*self.clock)),
            label: draft.label,
            hint: key::hint(plaintext.expose_secret()),
            created_at: now.to_whole_seconds(),
            spend: ledger::Key { limit: draft.limit, expires_at: draft.expires_at, ..ledger::Key::default() },
        };
        match self.store.create_key(NewKey { account, key, digest }, idempotency).await? {
            store::Created::New(key) => Ok(Created::New { key, plaintext }),
            store::Created::Replayed(key) => Ok(Created::Replayed(key)),
            store::Created::Reused => Err(Error::Refused(KeyRefused::IdempotencyKeyReused)),
        }
    }

    /// Returns the current time, or the first millisecond after the last id. Listings are in the order of ids, and keys
    /// made one after the other within a millisecond keep their order.
    fn later_than_the_last(&self, now: Timestamp) -> Timestamp {
        let next = |last: i64| now.millis().max(last.saturating_add(1));
        let last = self.last_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        Timestamp::from_millis(next(last.unwrap_or_else(|last| last)))
    }

    /// One of the account's keys.
    pub async fn get(&self, account: AccountId, id: KeyId) -> Result<ApiKey, Error<KeyRefused>> {
        self.store.key(account, id).await?.ok_or(Error::Refused(KeyRefused::NotFound))
    }

    /// Changes a key, completely or not at all, and returns the result.
    pub async fn update(
        &self,
        account: AccountId,
        id: KeyId,
        patch: KeyPatch,
    ) -> Result<ApiKey, Error<KeyRefused>> {
        match self.store.update_key(account, id, patch).await? {
            Updated::Key(key) => Ok(key),
            Updated::Revoked => Err(Error::Refused(KeyRefused::Revoked)),
            Updated::NotFound => Err(Error::Refused(KeyRefused::NotFound)),
        }
    }

    /// Revokes a key for good; repeating it changes nothing.
    pub async fn revoke(&self, account: AccountId, id: KeyId) -> Result<ApiKey, Error<KeyRefused>> {
        let now = self.clock.now().to_whole_seconds();
        self.store.revoke_key(account, id, now).await?.ok_or(Error::Refused(KeyRefused::NotFound))
    }
}

impl KeyDraft {
    /// Digest of a draft, equal for drafts of equal meaning: `25` and `25.0` are the same limit.
    fn digest(&self) -> Digest {
        let limit = self.limit.map_or_else(String::new, |limit| limit.to_string());
        let expires_at = self.expires_at.map_or_else(String::new, |at| at.to_string());
        // The label is last, so that nothing in it can pass for another field.
        Digest::of(format!("{limit}\n{expires_at}\n{}", self.label).as_bytes())
    }
}

/// Fields that a patch leaves out or clears have their defaults in the draft.
impl From<KeyPatch> for KeyDraft {
    fn from(KeyPatch { label, limit, expires_at }: KeyPatch) -> Self {
        Self { label: label.unwrap_or_default(), limit: limit.flatten(), expires_at: expires_at.flatten() }
    }
}
