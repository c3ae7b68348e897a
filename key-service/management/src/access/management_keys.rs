//! Use-cases for management keys: create, list, revoke.

use async_trait::async_trait;
use shared::{
    clock::random_bytes,
    ids::{AccountId, ManagementKeyId},
    key::{self, Class},
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
};

use crate::{
    management::Management,
    nouns::{
        listing::{Listed, Listing, Paged},
        once::{Once, attempt},
    },
};
use domain::{access::Access, digest::Digest, event::Actor, governed::Made};
use key_service_store::store::{Error, ManagementKey, ManagementKeyNotMade, NewManagementKey, StoreError};

/// Maximum number of management keys per account, including revoked keys. A list of 100 keys fits on one page, and 100
/// keys suffice for a new key every month for eight years.
pub(crate) const MAX_MANAGEMENT_KEYS: u64 = 100;

/// Reason why a management key was not created or found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagementKeyRefused {
    /// No management key has this id.
    #[error("there is no such management key")]
    NotFound,
    /// The account does not have the group.
    #[error("the account has no such group")]
    UnknownGroup,
    /// The account has reached its maximum number of management keys.
    #[error(
        "the account already has {MAX_MANAGEMENT_KEYS} management keys, including revoked ones, which is the maximum"
    )]
    TooMany,
    /// The idempotency key was used with a different request.
    #[error("this idempotency key was used with a different request; choose a new one")]
    Reused,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementKeySettings {
    /// Name chosen by the owner.
    pub name: String,
    pub access: Access,
    /// When the key expires, if ever.
    pub expires_at: Option<Timestamp>,
}

impl ManagementKeySettings {
    /// Returns settings for a key that covers the whole account and does not expire.
    pub fn full(name: &str) -> Self {
        Self { name: name.to_owned(), access: Access::default(), expires_at: None }
    }
}

impl Management {
    /// Creates a management key and returns the plaintext, which cannot be recovered later.
    pub async fn create_management_key(
        &self,
        account: AccountId,
        settings: ManagementKeySettings,
        actor: Actor,
    ) -> Result<SecretString, Error<ManagementKeyRefused>> {
        let now = self.later_than_the_last(self.clock.now());
        let id = ManagementKeyId::new(now, random_bytes(&*self.clock));
        self.make_management_key((account, id), settings, None, actor).await.map(|(_, plaintext)| plaintext)
    }

    /// Creates a management key once for each idempotency key. The plaintext is `None` if an earlier request created
    /// the key.
    pub async fn issue_management_key(
        &self,
        account: AccountId,
        settings: ManagementKeySettings,
        idempotency_key: Option<String>,
        actor: Actor,
    ) -> Result<(ManagementKey, Option<SecretString>), Error<ManagementKeyRefused>> {
        let now = self.later_than_the_last(self.clock.now());
        let id = ManagementKeyId::new(now, random_bytes(&*self.clock));
        match self.make_management_key((account, id), settings, idempotency_key, actor).await? {
            (made, plaintext) if made == id => Ok((self.management_key(account, id).await?, Some(plaintext))),
            (earlier, _) => Ok((self.management_key(account, earlier).await?, None)),
        }
    }

    /// Creates a management key, once for each attempt with the same settings.
    pub async fn create_management_key_once(
        &self,
        account: AccountId,
        settings: ManagementKeySettings,
        attempt: &str,
        actor: Actor,
    ) -> Result<Once<SecretString>, Error<ManagementKeyRefused>> {
        let Some(shown) = self.shown_at(attempt) else { return Ok(Once::Stale) };
        let bytes = self.bytes_of_attempt("management key", account, attempt, &format!("{settings:?}"));
        let id = |at| ManagementKeyId::new(at, bytes);
        let keys = self.store.management_keys(account).await?;
        if keys.iter().any(|key| key.id == id(key.id.created_at())) {
            return Ok(Once::Replayed);
        }
        let made = self.make_management_key((account, id(shown)), settings, None, actor).await;
        made.map(|(_, plaintext)| Once::New(plaintext))
    }

    /// Creates a key with this id, or finds the key that an earlier request with the same idempotency key created. The
    /// plaintext belongs to a new key, and is useless if an earlier key was found.
    async fn make_management_key(
        &self,
        (account, id): (AccountId, ManagementKeyId),
        settings: ManagementKeySettings,
        idempotency_key: Option<String>,
        actor: Actor,
    ) -> Result<(ManagementKeyId, SecretString), Error<ManagementKeyRefused>> {
        let request = Digest::of(format!("management key {settings:?}").as_bytes());
        let ManagementKeySettings { name, access, expires_at } = settings;
        let refused = |reason| Err(Error::Refused(reason));
        self.check_room_for_secret().await?;
        // Groups are never deleted. If the group is archived, the management key can still read the group's keys.
        if let Some(group) = access.group
            && self.store.group(account, group).await?.is_none()
        {
            return refused(ManagementKeyRefused::UnknownGroup);
        }
        let act = self.act(actor);
        let (plaintext, digest) = self.credentials.mint(Class::Management, random_bytes(&*self.clock));
        let key = ManagementKey {
            id,
            name,
            hint: key::hint(plaintext.expose_secret()),
            access,
            created_at: act.at.to_whole_seconds(),
            expires_at,
            last_used_at: None,
            revoked_at: None,
        };
        let new = NewManagementKey { account, key, digest, most: MAX_MANAGEMENT_KEYS };
        let attempt = attempt(idempotency_key, request, act.at);
        match self.store.create_management_key_once(new, attempt, &act).await {
            Ok(Made::New(id) | Made::Existing(id) | Made::Replayed(id)) => Ok((id, plaintext)),
            Err(Error::Refused(ManagementKeyNotMade::Reused)) => refused(ManagementKeyRefused::Reused),
            Err(Error::Refused(ManagementKeyNotMade::TooMany)) => refused(ManagementKeyRefused::TooMany),
            Err(Error::Store(cause)) => Err(cause.into()),
        }
    }

    /// Lists the account's management keys, oldest first.
    pub async fn management_keys(&self, account: AccountId) -> Result<Vec<ManagementKey>, StoreError> {
        let _permit = self.read_permit(account).await?;
        self.store.management_keys(account).await
    }

    /// Finds a management key of the account.
    pub async fn management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<ManagementKey, Error<ManagementKeyRefused>> {
        let found = self.store.management_key(account, id).await?;
        found.ok_or(Error::Refused(ManagementKeyRefused::NotFound))
    }

    /// Permanently revokes a management key of any account; repeating this changes nothing.
    pub async fn revoke_management_key(
        &self,
        id: ManagementKeyId,
        actor: Actor,
    ) -> Result<ManagementKey, Error<ManagementKeyRefused>> {
        let revoked = self.store.revoke_management_key(id, &self.act(actor)).await?;
        revoked.ok_or(Error::Refused(ManagementKeyRefused::NotFound))
    }
}

#[async_trait]
impl Listed for ManagementKey {
    type Id = ManagementKeyId;
    type Filter = ();
    const NAME: &'static str = "a management key";

    fn id(&self) -> ManagementKeyId {
        self.id
    }

    async fn page(management: &Management, account: AccountId, listing: &Listing<Self>) -> Paged<Self> {
        listing.page_of(management.store.management_keys(account).await?)
    }
}

#[cfg(test)]
mod tests {
    use Once::{New, Replayed, Stale};

    use super::*;
    use crate::testing::Office;
    use domain::access::Scope;

    #[tokio::test]
    async fn a_form_that_is_sent_twice_makes_one_management_key() {
        let office = Office::open();
        let (account, _) = office.account("acme").await;
        let (other, _) = office.account("other").await;
        let desk = &office.management;
        let attempt = desk.form_attempt();
        let again = async |account, name: &str, attempt: &str| {
            let settings = ManagementKeySettings::full(name);
            desk.create_management_key_once(account, settings, attempt, Actor::System).await.unwrap()
        };
        assert!(matches!(again(account, "Deployment", &attempt).await, New(_)));
        assert!(matches!(again(account, "Deployment", &attempt).await, Replayed));
        assert_eq!(desk.management_keys(account).await.unwrap().len(), 2, "including the first key");
        assert!(matches!(again(account, "Another name", &attempt).await, New(_)));
        let access = Access { scope: Scope::Read, group: None };
        let reading = ManagementKeySettings { access, ..ManagementKeySettings::full("Deployment") };
        let reading =
            desk.create_management_key_once(account, reading, &attempt, Actor::System).await.unwrap();
        assert!(matches!(reading, New(_)), "other rights");
        assert!(matches!(again(other, "Deployment", &attempt).await, New(_)));
        assert!(matches!(again(account, "x", &desk.form_attempt()).await, New(_)));
        for old in ["f".repeat(64), "0".repeat(64)] {
            assert!(matches!(again(account, "Deployment", &old).await, New(_)));
            office.clock.set("2026-11-20T03:00:00Z");
            assert!(matches!(again(account, "Deployment", &old).await, Replayed));
        }
        for made_up in ["", "x", &attempt[1..], &format!("{attempt}0"), &"g".repeat(64)] {
            assert!(matches!(again(account, "Deployment", made_up).await, Stale), "{made_up}");
        }
    }
}
