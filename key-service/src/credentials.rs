//! Creates credentials, and finds the owner of a presented credential.

use std::sync::Arc;

use quick_cache::sync::Cache;
use shared::{
    ids::WebhookId,
    key::{Class, Prefix},
    refusal::Refusal,
    rpc::Principal,
    secret::SecretString,
};

use crate::store::{Store, StoreError};
use domain::{
    digest::{Digest, Peppers},
    webhook::{Webhook, WebhookSecret},
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

    /// Returns the owner if live and of the class that a route needs.
    ///
    /// A live key of the wrong class is refused with its class; a revoked key is refused like an unknown key. The
    /// ledger decides whether an API key may spend.
    pub async fn identify(
        &self,
        owner: Option<Principal>,
        required: Class,
    ) -> Result<Result<Principal, Refusal>, StoreError> {
        let (live, class) = match owner {
            None => (false, required),
            Some(Principal::ApiKey(account, id)) => {
                let key = self.store.key(account, id).await?;
                (key.is_some_and(|key| key.spend.revoked_at.is_none()), Class::Api)
            }
            Some(Principal::ManagementKey(account, id)) => {
                let key = self.store.management_key(account, id).await?;
                (key.is_some_and(|key| key.revoked_at.is_none()), Class::Management)
            }
        };
        Ok(match (owner.filter(|_| live), required) {
            (Some(owner), _) if class == required => Ok(owner),
            (Some(_), Class::Api) => Err(Refusal::ManagementKeyNotAllowed),
            (Some(_), Class::Management) => Err(Refusal::ManagementKeyRequired),
            (None, Class::Api) => Err(Refusal::InvalidApiKey),
            (None, Class::Management) => Err(Refusal::InvalidManagementKey),
        })
    }

    /// Creates a key: returns the plaintext, and the digest to store.
    pub fn mint(&self, class: Class, random: [u8; 32]) -> (SecretString, Digest) {
        let plaintext = self.prefix.mint(class, random);
        let digest = self.peppers.digest(&plaintext);
        (plaintext, digest)
    }

    /// The secret of a new webhook.
    pub(crate) fn webhook_secret(&self, id: WebhookId) -> WebhookSecret {
        WebhookSecret::new(&self.peppers.current, id)
    }

    /// The secret of a stored webhook; `None` where the webhook was made with another pepper.
    pub(crate) fn secret_of(&self, webhook: &Webhook) -> Option<WebhookSecret> {
        WebhookSecret::of(&self.peppers, webhook)
    }

    /// A digest that cannot be calculated without the pepper, of text that is no key: the text must contain a NUL.
    pub(crate) fn keyed_digest(&self, text: String) -> Digest {
        self.peppers.digest(&text.into())
    }
}
