//! Creates credentials, and finds the keys to which presented credentials belong.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::RwLock;
use quick_cache::sync::Cache;
use ring::digest::{SHA256, digest as hash};
use shared::{
    ids::{AccountId, AlertId, MemberId, Principal, WebhookId},
    key::{Class, Prefix, Presented},
    refusal::Refusal,
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
};

use domain::{
    alert::{Alert, AlertAddress, AlertDestination, Sealed},
    digest::{Digest, ForeignKey, Peppers},
    key::{ApiKey, Status},
    ledger::Standing,
    pepper_record::{PepperRecord, Verdict},
    second_factor::{FactorId, SecondFactor, TotpSecret},
    webhook::{Webhook, WebhookSecret},
};
use key_service_store::store::{Credential, ManagementKey, OperatorKey, Store, StoreError, operators};

/// Maximum number of cached credentials. Each takes about 100 bytes.
const CACHED_CREDENTIALS: usize = 100_000;

/// Creates and identifies credentials. No other type has the peppers.
pub struct Credentials {
    store: Arc<Store>,
    peppers: Peppers,
    prefix: Prefix,
    /// Credentials by digest. A credential's owner and number never change, so entries never become stale. Two things
    /// are not cached: that a digest is unknown, and whether a key still accepts a credential.
    known: Cache<Digest, Credential>,
    /// The store's record of its pepper, as long as nothing proves that this process has the same pepper.
    unproven: RwLock<Option<PepperRecord>>,
    /// Whether the peppers have been compared with the store's record and match it.
    fit: AtomicBool,
}

/// Reason why the peppers cannot be used with this store.
#[derive(Debug, thiserror::Error)]
pub enum PepperFault {
    /// The store's keys were made with another pepper.
    #[error(
        "is not the pepper that this store's keys were hashed with, so no key would be found. Set that pepper \
         (FAREGATE_PEPPER or FAREGATE_PEPPER_FILE; for `faregate` also the file `pepper` in its data directory), and \
         during a rotation FAREGATE_PREVIOUS_PEPPER as well"
    )]
    Wrong,
    /// The store's record could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a presented credential turns out to be on a route that requires one class of keys.
#[derive(Clone, Debug)]
pub enum Identified {
    /// A live API key, on a route for API keys.
    ApiKey(AccountId, Box<ApiKey>),
    /// A live management key of an account that is not closed, on a route for management keys.
    ManagementKey(AccountId, ManagementKey, Option<Standing>),
    /// A live operator key, on a route for operator keys.
    OperatorKey(Box<OperatorKey>),
    /// The credential is unknown, or its class does not fit the route.
    Refused(Refusal),
}

impl Identified {
    pub fn principal(self) -> Result<Principal, Refusal> {
        match self {
            Self::ApiKey(account, key) => Ok(Principal::ApiKey(account, key.id)),
            Self::ManagementKey(account, key, _) => Ok(Principal::ManagementKey(account, key.id)),
            Self::OperatorKey(key) => Ok(Principal::OperatorKey(operators(), key.id)),
            Self::Refused(refusal) => Err(refusal),
        }
    }
}

impl Credentials {
    /// Creates an instance for this store, whose credentials are hashed with these peppers.
    pub fn new(store: Arc<Store>, peppers: Peppers, prefix: Prefix) -> Self {
        let known = Cache::new(CACHED_CREDENTIALS);
        Self { store, peppers, prefix, known, unproven: RwLock::default(), fit: AtomicBool::new(false) }
    }

    /// Returns whether this store has no keys and no program has used it yet.
    pub async fn are_unused(&self) -> Result<bool, StoreError> {
        Ok(self.store.pepper_record().await?.is_none() && !has_keys(&self.store).await?)
    }

    /// Compares the peppers with the store's record, and updates the record.
    pub async fn check_peppers(&self, now: Timestamp) -> Result<(), PepperFault> {
        loop {
            let text = self.store.pepper_record().await?;
            let record = text.as_deref().map(read_record).transpose()?;
            let has_keys = record.is_none() && has_keys(&self.store).await?;
            match PepperRecord::judge(record, &self.peppers, has_keys, now) {
                Verdict::Wrong => return Err(PepperFault::Wrong),
                Verdict::Replace(record) => {
                    self.store.replace_pepper_record(text, record.to_string()).await?;
                }
                Verdict::Fits => {
                    *self.unproven.write() =
                        record.filter(|record| matches!(record, PepperRecord::Unproven { .. }));
                    self.fit.store(true, Ordering::Release);
                    return Ok(());
                }
            }
        }
    }

    /// Fails unless the peppers match the store, because keys created with a wrong pepper could not be used later. If
    /// the store's pepper record could not be read at startup, this compares the peppers now.
    pub async fn must_fit(&self, now: Timestamp) -> Result<(), StoreError> {
        if self.fit.load(Ordering::Acquire) {
            return Ok(());
        }
        self.check_peppers(now).await.map_err(|fault| match fault {
            PepperFault::Store(e) => e,
            wrong @ PepperFault::Wrong => StoreError::Unavailable(format!("the pepper {wrong}")),
        })
    }

    /// Records that the peppers are right if they found this credential and its key is older than the record.
    async fn prove(&self, found: Credential) -> Result<(), StoreError> {
        let Some(record) = *self.unproven.read() else { return Ok(()) };
        let created_at = found.owner.created_at();
        // Only a key's first credential is as old as the key. A later credential may have been hashed with another
        // pepper.
        if found == Credential::first(found.owner) && record.is_proven_by(created_at) {
            let proven = PepperRecord::of(&self.peppers).to_string();
            self.store.replace_pepper_record(Some(record.to_string()), proven).await?;
            *self.unproven.write() = None;
            tracing::info!("a key proves that the pepper is right");
        }
        Ok(())
    }

    /// Finds a credential and its owner; `None` if it is unknown.
    pub async fn find(&self, presented: &str) -> Result<Option<Credential>, StoreError> {
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
                self.prove(credential).await?;
                self.known.insert(digest, credential);
                return Ok(Some(credential));
            }
        }
        Ok(None)
    }

    /// Identifies the credential's owner on a route that requires this class of keys.
    ///
    /// For a live key of the wrong class, the refusal says which class the route requires. A revoked key, and a
    /// credential that no longer works after a rotation, are refused like an unknown credential. The ledger decides
    /// whether an API key may spend.
    pub async fn identify(
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
                    (Some(_), Class::Operator) => Refusal::OperatorKeyRequired,
                    (None, required) => unknown(required),
                }
            }
            Some(Credential { owner: Principal::ManagementKey(account, id), number: _ }) => {
                let found = self.store.management_key_and_standing(account, id).await?;
                match (found.filter(|(key, _)| key.revoked_at.is_none()), required) {
                    (Some(_), Class::Api) => Refusal::ManagementKeyNotAllowed,
                    (Some(_), Class::Operator) => Refusal::OperatorKeyRequired,
                    (Some((key, _)), Class::Management) if key.status(now) == Status::Expired => {
                        Refusal::KeyExpired
                    }
                    (Some((_, Some(standing))), Class::Management) if standing.is_closed() => {
                        Refusal::AccountClosed
                    }
                    (Some((key, standing)), Class::Management) => {
                        return Ok(Identified::ManagementKey(account, key, standing));
                    }
                    (None, required) => unknown(required),
                }
            }
            Some(Credential { owner: Principal::OperatorKey(_, id), number: _ }) => {
                let key = self.store.operator_key(id).await?.map(|key| (key.status(now), key));
                match (key, required) {
                    (Some((Status::Active, key)), Class::Operator) => {
                        return Ok(Identified::OperatorKey(Box::new(key)));
                    }
                    (Some((Status::Active, _)), Class::Api | Class::Management) => {
                        Refusal::OperatorKeyNotAllowed
                    }
                    (Some((Status::Expired, _)), Class::Operator) => Refusal::KeyExpired,
                    // Of a key that has ended, the answer does not even say that it existed.
                    (Some((Status::Expired | Status::Revoked | Status::Disabled, _)) | None, required) => {
                        unknown(required)
                    }
                }
            }
        };
        Ok(Identified::Refused(refusal))
    }

    /// Creates a key. Returns the plaintext, and the digest to store.
    pub fn mint(&self, class: Class, random: [u8; 32]) -> (SecretString, Digest) {
        let plaintext = self.prefix.mint(class, random);
        let digest = self.peppers.digest(&plaintext);
        (plaintext, digest)
    }

    /// Returns the secret of a new webhook.
    pub fn webhook_secret(&self, id: WebhookId) -> WebhookSecret {
        WebhookSecret::new(&self.peppers.current, id)
    }

    /// Derives a stored webhook's secret from whichever pepper reproduces the stored digest; `None` if none does.
    pub fn secret_of(&self, webhook: &Webhook) -> Option<WebhookSecret> {
        WebhookSecret::of(&self.peppers, webhook.id, &webhook.secret)
    }

    /// Seals an address of an alert. `nonce` is random.
    pub fn seal(
        &self,
        alert: AlertId,
        destination: &AlertDestination,
        address: &SecretString,
        nonce: [u8; 12],
    ) -> AlertAddress {
        let sealed = Sealed::new(&self.peppers.current, alert, address, nonce);
        AlertAddress { shown: destination.shown(), sealed }
    }

    /// Opens the address of an alert; `None` if another pepper sealed it.
    pub fn open(&self, alert: &Alert) -> Option<AlertDestination> {
        let address = alert.address.sealed.open(&self.peppers, alert.id)?;
        AlertDestination::parse(alert.channel, address.expose_secret()).ok()
    }

    /// Returns the secret of a new second factor.
    pub fn totp_secret(&self, member: MemberId, id: FactorId) -> TotpSecret {
        TotpSecret::new(&self.peppers.current, member, id)
    }

    /// Derives the secret of a stored second factor; `None` if another pepper made it.
    pub fn totp_secret_of(&self, member: MemberId, factor: &SecondFactor) -> Option<TotpSecret> {
        TotpSecret::of(&self.peppers, member, factor)
    }

    /// Returns the digest of another gateway's key: under the previous pepper if the store has that digest, otherwise
    /// under the current pepper.
    pub async fn digest_of(&self, key: &ForeignKey) -> Result<Digest, StoreError> {
        let text = key.text();
        let current = self.peppers.digest(&text.clone().into());
        for digest in self.peppers.candidates(&text).filter(|digest| *digest != current) {
            if self.store.find_credential(digest).await?.is_some() {
                return Ok(digest);
            }
        }
        Ok(current)
    }

    /// Digests a text that is not a key, with the pepper. The text must contain a NUL, which no key has.
    pub fn keyed_digest(&self, text: String) -> Digest {
        self.peppers.digest(&text.into())
    }

    /// Returns the digests under which a text may be stored: one for each pepper, as [`Self::keyed_digest`] computes
    /// it.
    pub fn keyed_digests(&self, text: &str) -> Vec<Digest> {
        self.peppers.candidates(text).collect()
    }
}

/// Returns the refusal for an unknown credential on a route for this class of keys.
const fn unknown(required: Class) -> Refusal {
    match required {
        Class::Api => Refusal::InvalidApiKey,
        Class::Management => Refusal::InvalidManagementKey,
        Class::Operator => Refusal::InvalidOperatorKey,
    }
}

/// Treats a plaintext as another gateway's key, and hashes it with SHA-256.
fn foreign(plaintext: &str) -> ForeignKey {
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(hash(&SHA256, plaintext.as_bytes()).as_ref());
    ForeignKey::new(sha256)
}

fn read_record(text: &str) -> Result<PepperRecord, StoreError> {
    text.parse().map_err(|()| StoreError::Damaged("the record of peppers".into()))
}

/// Returns whether a store has keys of any kind.
async fn has_keys(store: &Store) -> Result<bool, StoreError> {
    for account in store.accounts().await? {
        if account.keys > 0 || !store.management_keys(account.id).await?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use shared::{ids::KeyId, secret::ExposeSecret};

    use super::*;
    use domain::{digest::Pepper, key::NewKey, ledger::histories::START};
    use key_service_store::store::suite::{act, in_maps, open_account_with};

    /// Time of the upgrade to a version that records the pepper, a few hours after the first keys.
    const UPGRADE: Timestamp = Timestamp::from_millis(START.millis() + 10_000_000);

    fn with_pepper(store: &Arc<Store>, pepper: u8) -> Credentials {
        let peppers = Peppers { current: Pepper::new([pepper; 32]), previous: None };
        Credentials::new(store.clone(), peppers, Prefix::parse("fg").unwrap())
    }

    /// Creates a key at this time, and returns its plaintext.
    async fn make_key(store: &Store, by: &Credentials, account: AccountId, at: Timestamp) -> SecretString {
        let (plaintext, digest) = by.mint(Class::Api, [at.millis().to_be_bytes()[7]; 32]);
        let key = ApiKey::new(KeyId::new(at, [7; 10]), "fg_api_…".into(), at);
        store.create_key(NewKey { account, key, digest, most: 9 }, None, &act(at)).await.unwrap();
        plaintext
    }

    #[tokio::test]
    async fn a_store_of_an_earlier_version_is_proven_by_an_older_key_and_by_no_newer_one() {
        let store = in_maps();
        let account = open_account_with(&store, 1, 1_000).await;
        let (right, wrong) = (with_pepper(&store, 1), with_pepper(&store, 2));
        let older = make_key(&store, &right, account, START).await;
        assert!(wrong.check_peppers(UPGRADE).await.is_ok(), "nothing tells");
        let newer = make_key(&store, &wrong, account, UPGRADE).await;
        assert!(wrong.find(newer.expose_secret()).await.unwrap().is_some());
        assert!(wrong.check_peppers(UPGRADE).await.is_ok(), "it is not sealed in");
        assert!(right.check_peppers(UPGRADE).await.is_ok());
        assert!(right.find(older.expose_secret()).await.unwrap().is_some());
        assert!(matches!(wrong.check_peppers(UPGRADE).await, Err(PepperFault::Wrong)));
        assert!(right.check_peppers(UPGRADE).await.is_ok());
    }

    #[tokio::test]
    async fn an_empty_store_takes_the_first_pepper_and_no_other() {
        let store = in_maps();
        assert!(with_pepper(&store, 1).check_peppers(START).await.is_ok());
        assert!(matches!(with_pepper(&store, 2).check_peppers(START).await, Err(PepperFault::Wrong)));
    }
}
