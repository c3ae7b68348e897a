//! Creates credentials, and finds the owner of a presented credential.

use std::sync::Arc;

use quick_cache::sync::Cache;
use shared::{
    ids::AccountId,
    key::{Class, Prefix},
    refusal::Refusal,
    rpc::Principal,
    secret::SecretString,
    time::Timestamp,
};

use crate::store::{ManagementKey, Store, StoreError};
use domain::{
    digest::{Digest, Peppers},
    key::{ApiKey, Status},
};

/// Number of mappings kept in memory; some 100 bytes each.
const CACHED_OWNERS: usize = 100_000;

/// Creates and recognises credentials. The only type that has the peppers.
pub struct Credentials {
    store: Arc<dyn Store>,
    peppers: Peppers,
    prefix: Prefix,
    /// Owners by digest. A mapping never changes, so an entry is never wrong. Unknown digests are not cached, and
    /// revocation is never answered from the cache.
    owners: Cache<Digest, Principal>,
}

/// Owner of a presented credential, as a route that needs a class of keys sees the owner.
#[derive(Clone, Debug)]
pub enum Identified {
    /// A live API key, on a route for API keys.
    ApiKey(AccountId, Box<ApiKey>),
    /// A live management key, on a route for management keys.
    ManagementKey(AccountId, ManagementKey),
    /// No such credential, or none for this route.
    Refused(Refusal),
}

impl Identified {
    /// The owner, or the refusal.
    pub fn principal(self) -> Result<Principal, Refusal> {
        match self {
            Self::ApiKey(account, key) => Ok(Principal::ApiKey(account, key.id)),
            Self::ManagementKey(account, key) => Ok(Principal::ManagementKey(account, key.id)),
            Self::Refused(refusal) => Err(refusal),
        }
    }
}

impl Credentials {
    /// Credentials in this store, hashed with these peppers.
    pub fn new(store: Arc<dyn Store>, peppers: Peppers, prefix: Prefix) -> Self {
        Self { store, peppers, prefix, owners: Cache::new(CACHED_OWNERS) }
    }

    /// The owner of the credential; `None` if the credential does not exist.
    pub async fn find(&self, presented: &str) -> Result<Option<Principal>, StoreError> {
        if self.prefix.classify(presented).is_none() {
            return Ok(None);
        }
        for digest in self.peppers.candidates(presented) {
            if let Some(owner) = self.owners.get(&digest) {
                return Ok(Some(owner));
            }
            if let Some(owner) = self.store.find_credential(digest).await? {
                self.owners.insert(digest, owner);
                return Ok(Some(owner));
            }
        }
        Ok(None)
    }

    /// Identifies the owner on a route that needs this class of keys.
    ///
    /// A live key of the wrong class is refused with its class; a revoked key is refused like an unknown key. The
    /// ledger decides whether an API key may spend, and when it has expired.
    pub async fn identify(
        &self,
        owner: Option<Principal>,
        required: Class,
        now: Timestamp,
    ) -> Result<Identified, StoreError> {
        let refusal = match owner {
            None => unknown(required),
            Some(Principal::ApiKey(account, id)) => {
                let key = self.store.key(account, id).await?;
                match (key.filter(|key| key.spend.revoked_at.is_none()), required) {
                    (Some(key), Class::Api) => return Ok(Identified::ApiKey(account, Box::new(key))),
                    (Some(_), Class::Management) => Refusal::ManagementKeyRequired,
                    (None, required) => unknown(required),
                }
            }
            Some(Principal::ManagementKey(account, id)) => {
                let key = self.store.management_key(account, id).await?;
                match (key.filter(|key| key.revoked_at.is_none()), required) {
                    (Some(_), Class::Api) => Refusal::ManagementKeyNotAllowed,
                    (Some(key), Class::Management) if key.status(now) == Status::Expired => {
                        Refusal::KeyExpired
                    }
                    (Some(key), Class::Management) => return Ok(Identified::ManagementKey(account, key)),
                    (None, required) => unknown(required),
                }
            }
        };
        Ok(Identified::Refused(refusal))
    }

    /// Creates a key: returns the plaintext, and the digest to store.
    pub fn mint(&self, class: Class, random: [u8; 32]) -> (SecretString, Digest) {
        let plaintext = self.prefix.mint(class, random);
        let digest = self.peppers.digest(&plaintext);
        (plaintext, digest)
    }

    /// A digest that cannot be calculated without the pepper, of text that is no key: the text must contain a NUL.
    pub(crate) fn keyed_digest(&self, text: String) -> Digest {
        self.peppers.digest(&text.into())
    }
}

/// Refusal of a credential that is not known, on a route that needs this class of keys.
const fn unknown(required: Class) -> Refusal {
    match required {
        Class::Api => Refusal::InvalidApiKey,
        Class::Management => Refusal::InvalidManagementKey,
    }
}
