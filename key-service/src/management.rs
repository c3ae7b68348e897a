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
    ids::{AccountId, KeyId, ManagementKeyId},
    key::{self, Class},
    refusal::Refusal,
    rpc::Principal,
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
    wire::KeyField,
};

use crate::{
    credentials::Credentials,
    store::{self, Idempotency, Store, StoreError, Updated},
};
use domain::{
    digest::Digest,
    key::{ApiKey, KeyPatch, NewKey},
    ledger,
};

pub mod accounts;
pub mod books;
mod listing;
pub mod members;
pub mod reading;
pub mod spend;
#[cfg(test)]
pub(crate) mod testing;
mod turns;

/// API keys that an account may have unless configured otherwise: some 50 MB in Redis, or 180 MB with the longest labels and
/// idempotency keys.
pub const MAX_KEYS_PER_ACCOUNT: u64 = 100_000;

pub use listing::{KeyPage, Listing};

/// Lifetime of an idempotency key.
const IDEMPOTENCY_TTL: Duration = Duration::from_hours(24);

/// Manages keys and accounts. Cheap to share behind an `Arc`.
pub struct Management {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    credentials: Arc<Credentials>,
    /// API keys that an account may have.
    max_keys: u64,
    passwords: members::Passwords,
    turns: turns::ReadingTurns,
    /// Held while the owners of an account are counted and one of them is changed.
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
    /// Try again. The outcome is unknown.
    #[error(transparent)]
    Store(#[from] StoreError),
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
    /// The account is at its bound of keys.
    TooMany {
        /// Largest number of keys that the account may have.
        most: u64,
    },
    /// The idempotency key was used with another request.
    IdempotencyKeyReused,
    /// The store is nearly full.
    StoreFull,
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
    /// An earlier attempt with the same idempotency key made this key, whose plaintext is gone.
    Replayed(ApiKey),
}

impl Management {
    /// Management of the keys and accounts in this store.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, credentials: Arc<Credentials>) -> Self {
        let (max_keys, last_id) = (MAX_KEYS_PER_ACCOUNT, AtomicI64::new(i64::MIN));
        let passwords = members::Passwords::new();
        let (turns, owners) = (turns::ReadingTurns::default(), tokio::sync::Mutex::default());
        Self { store, clock, credentials, max_keys, passwords, turns, owners, last_id }
    }

    /// Sets the bound of API keys per account.
    #[must_use]
    pub fn with_max_keys(self, max_keys: u64) -> Self {
        Self { max_keys, ..self }
    }

    /// The account that a presented management key governs, and the key.
    pub async fn authenticate(
        &self,
        presented: &str,
    ) -> Result<(AccountId, ManagementKeyId), Error<Refusal>> {
        let owner = self.credentials.find(presented).await?;
        match self.credentials.identify(owner, Class::Management).await? {
            Ok(Principal::ManagementKey(account, key)) => Ok((account, key)),
            Ok(Principal::ApiKey(..)) => Err(Error::Refused(Refusal::ManagementKeyRequired)),
            Err(refusal) => Err(Error::Refused(refusal)),
        }
    }

    /// Creates a key, only once per idempotency key.
    pub async fn create(
        &self,
        account: AccountId,
        settings: KeyPatch,
        idempotency_key: Option<String>,
    ) -> Result<Created, Error<KeyRefused>> {
        if self.store.is_nearly_full().await? {
            return Err(Error::Refused(KeyRefused::StoreFull));
        }
        let now = self.clock.now();
        let (plaintext, digest) = self.credentials.mint(Class::Api, random_bytes(&*self.clock));
        let key = ApiKey {
            id: KeyId::new(self.later_than_the_last(now), random_bytes(&*self.clock)),
            label: String::new(),
            hint: key::hint(plaintext.expose_secret()),
            created_at: now.to_whole_seconds(),
            spend: ledger::Key::default(),
        };
        let key = key.with(&settings);
        let idempotency = idempotency_key.map(|idempotency_key| Idempotency {
            key: Digest::of(idempotency_key.as_bytes()),
            request: digest_of_settings(&key),
            now,
            expires_at: now.plus(IDEMPOTENCY_TTL),
        });
        match self.store.create_key(NewKey { account, key, digest, most: self.max_keys }, idempotency).await?
        {
            store::Created::New(key) => Ok(Created::New { key, plaintext }),
            store::Created::Replayed(key) => Ok(Created::Replayed(key)),
            store::Created::Reused => Err(Error::Refused(KeyRefused::IdempotencyKeyReused)),
            store::Created::TooMany => Err(Error::Refused(KeyRefused::TooMany { most: self.max_keys })),
        }
    }

    /// Returns the current time, or the first millisecond after the last id. Listings are in the order of ids, and keys
    /// made in succession within a millisecond keep their order.
    fn later_than_the_last(&self, now: Timestamp) -> Timestamp {
        let next = |last: i64| now.millis().max(last.saturating_add(1));
        let last = self.last_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        Timestamp::from_millis(next(last.unwrap_or_else(|last| last)))
    }

    /// Finds a key of the account.
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
        // A longer label takes memory. Limits and expiries protect money, and change in a full store too.
        let labels = patch.label.as_ref().is_some_and(|label| !label.is_empty());
        if labels && self.store.is_nearly_full().await? {
            return Err(Error::Refused(KeyRefused::StoreFull));
        }
        match self.store.update_key(account, id, patch).await? {
            Updated::Key(key) => Ok(key),
            Updated::Revoked => Err(Error::Refused(KeyRefused::Revoked)),
            Updated::NotFound => Err(Error::Refused(KeyRefused::NotFound)),
        }
    }

    /// Revokes a key permanently; repeating it changes nothing.
    pub async fn revoke(&self, account: AccountId, id: KeyId) -> Result<ApiKey, Error<KeyRefused>> {
        let now = self.clock.now().to_whole_seconds();
        self.store.revoke_key(account, id, now).await?.ok_or(Error::Refused(KeyRefused::NotFound))
    }
}

/// Digest of a new key's settings, equal for settings of equal meaning: `25` and `25.0` are the same limit.
fn digest_of_settings(key: &ApiKey) -> Digest {
    let text = |field: &KeyField| key.value(*field, key.created_at).to_string();
    // The label is last, so that no part of the label can pass for another field.
    let others = KeyField::ALL.iter().filter(|field| field.row().is_setting() && **field != KeyField::Label);
    let texts: Vec<String> = others.chain([&KeyField::Label]).map(text).collect();
    Digest::of(texts.join("\n").as_bytes())
}
