//! Creates credentials, and finds the key of a presented credential.

use std::{borrow::Cow, sync::Arc};

use quick_cache::sync::Cache;
use ring::digest::{SHA256, digest as hash};
use shared::{
    ids::{AccountId, MemberId, WebhookId},
    key::{Class, Prefix, Presented},
    refusal::Refusal,
    rpc::Principal,
    secret::SecretString,
    time::Timestamp,
};

use crate::store::{Credential, ManagementKey, Store, StoreError};
use domain::{
    digest::{Digest, ForeignKey, Peppers},
    key::{ApiKey, Status},
    second_factor::{FactorId, SecondFactor, TotpSecret},
    webhook::{Webhook, WebhookSecret},
};

/// Number of mappings kept in memory; some 100 bytes each.
const CACHED_CREDENTIALS: usize = 100_000;

/// Creates and recognises credentials. The only type that has the peppers.
pub struct Credentials {
    store: Arc<dyn Store>,
    peppers: Peppers,
    prefix: Prefix,
    /// Credentials by digest. Owner and number never change, so an entry is never wrong. Unknown digests are not cached.
    /// The cache never answers whether the key still accepts the credential.
    known: Cache<Digest, Credential>,
}

/// Owner of a presented credential, as a route that needs a class of keys sees the owner.
#[derive(Clone, Debug)]
pub(crate) enum Identified {
    /// A live API key, on a route for API keys.
    ApiKey(AccountId, Box<ApiKey>),
    /// A live management key, on a route for management keys.
    ManagementKey(AccountId, ManagementKey),
    /// No such credential, or none for this route.
    Refused(Refusal),
}

impl Identified {
    /// The owner, or the refusal.
    pub(crate) fn principal(self) -> Result<Principal, Refusal> {
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
        Self { store, peppers, prefix, known: Cache::new(CACHED_CREDENTIALS) }
    }

    /// The credential, with its owner; `None` if the credential does not exist.
    pub(crate) async fn find(&self, presented: &str) -> Result<Option<Credential>, StoreError> {
        let text = match self.prefix.recognise(presented) {
            Presented::Own(_) => Cow::Borrowed(presented),
            Presented::Foreign => Cow::Owned(foreign(presented).text()),
            Presented::Malformed => return Ok(None),
        };
        for digest in self.peppers.candidates(&text) {
            if let Some(credential) = self.known.get(&digest) {
                return Ok(Some(credential));
            }
            if let Some(credential) = self.store.find_credential(digest).await? {
                self.known.insert(digest, credential);
                return Ok(Some(credential));
            }
        }
        Ok(None)
    }

    /// Identifies the owner on a route that needs this class of keys.
    ///
    /// A live key of the wrong class is refused with its class. A revoked key is refused like an unknown key, as is a
    /// credential that a rotation has ended. The ledger decides whether an API key may spend.
    pub(crate) async fn identify(
        &self,
        credential: Option<Credential>,
        required: Class,
        now: Timestamp,
    ) -> Result<Identified, StoreError> {
        let refusal = match credential {
            None => unknown(required),
            Some(Credential { owner: Principal::ApiKey(account, id), number }) => {
                let key = self.store.key(account, id).await?;
                let is_live =
                    |key: &ApiKey| key.spend.revoked_at.is_none() && key.spend.rotation.accepts(number, now);
                match (key.filter(is_live), required) {
                    (Some(key), Class::Api) => return Ok(Identified::ApiKey(account, Box::new(key))),
                    (Some(_), Class::Management) => Refusal::ManagementKeyRequired,
                    (None, required) => unknown(required),
                }
            }
            Some(Credential { owner: Principal::ManagementKey(account, id), number: _ }) => {
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

    /// The secret of a new webhook.
    pub(crate) fn webhook_secret(&self, id: WebhookId) -> WebhookSecret {
        WebhookSecret::new(&self.peppers.current, id)
    }

    /// The secret of a stored webhook; `None` where the webhook was made with another pepper.
    pub(crate) fn secret_of(&self, webhook: &Webhook) -> Option<WebhookSecret> {
        WebhookSecret::of(&self.peppers, webhook)
    }

    /// The secret of a new second factor.
    pub(crate) fn totp_secret(&self, member: MemberId, id: FactorId) -> TotpSecret {
        TotpSecret::new(&self.peppers.current, member, id)
    }

    /// The secret of a stored second factor; `None` where the second factor was made with another pepper.
    pub(crate) fn totp_secret_of(&self, member: MemberId, factor: &SecondFactor) -> Option<TotpSecret> {
        TotpSecret::of(&self.peppers, member, factor)
    }

    /// The digest to store for a key of another gateway, or the digest under which the key is stored.
    pub(crate) async fn digest_of(&self, key: &ForeignKey) -> Result<Digest, StoreError> {
        let text = key.text();
        let current = self.peppers.digest(&text.clone().into());
        for digest in self.peppers.candidates(&text).filter(|digest| *digest != current) {
            if self.store.find_credential(digest).await?.is_some() {
                return Ok(digest);
            }
        }
        Ok(current)
    }

    /// A digest that cannot be calculated without the pepper, of text that is no key: the text must contain a NUL.
    pub(crate) fn keyed_digest(&self, text: String) -> Digest {
        self.peppers.digest(&text.into())
    }

    /// The digests that a text may have been stored under, like [`Self::keyed_digest`].
    pub(crate) fn keyed_digests(&self, text: &str) -> Vec<Digest> {
        self.peppers.candidates(text).collect()
    }
}

/// Refusal of a credential that is not known, on a route that needs this class of keys.
const fn unknown(required: Class) -> Refusal {
    match required {
        Class::Api => Refusal::InvalidApiKey,
        Class::Management => Refusal::InvalidManagementKey,
    }
}

/// The key of another gateway with this plaintext.
fn foreign(plaintext: &str) -> ForeignKey {
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(hash(&SHA256, plaintext.as_bytes()).as_ref());
    ForeignKey::new(sha256)
}
