//! Use-cases of operator keys: create, list, rotate, revoke, and authenticate a request. No key of any kind may create
//! an operator key.

use std::{net::IpAddr, time::Duration};

use shared::{
    clock::random_bytes,
    ids::{OperatorKeyId, Principal},
    key::{self, Class},
    money::NanoUsd,
    network::Network,
    refusal::Refusal,
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
    wire::{MAX_GRACE_SECONDS, OperatorScope},
};

use crate::management::Management;
use domain::{
    access::{OperatorForbidden, OperatorRights},
    event::Actor,
};
use key_service_credentials::Identified;
use key_service_store::store::{
    Error, NewOperatorKey, OperatorKey, OperatorKeyMade, OperatorRotation, StoreError, operators,
};

/// Maximum number of operator keys, including revoked keys.
const MAX_OPERATOR_KEYS: u64 = 100;
/// Maximum number of networks that an operator key may work from.
pub const MAX_NETWORKS: usize = 16;
/// Largest payment that a key may make, unless another maximum was chosen when the key was created.
pub const DEFAULT_MAX_PAYMENT: NanoUsd = NanoUsd::from_usd(1_000);

/// Reason why an operator key was not created or found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperatorKeyRefused {
    /// No operator key has this id.
    #[error("there is no such operator key")]
    NotFound,
    /// A key that has expired or was revoked cannot be rotated.
    #[error("this operator key is revoked or has expired; create another one")]
    Ended,
    /// A key without a scope could do nothing.
    #[error("an operator key needs at least one scope")]
    NoScope,
    #[error("an operator key has at most {MAX_NETWORKS} networks")]
    TooManyNetworks,
    /// The largest payment is below zero or above [`NanoUsd::MAX`].
    #[error("the largest payment must be 0 to {} USD", NanoUsd::MAX)]
    BadPayment,
    #[error("the previous key may work for at most {MAX_GRACE_SECONDS} seconds more")]
    LongGrace,
    /// The maximum number of operator keys is reached.
    #[error(
        "there are already {MAX_OPERATOR_KEYS} operator keys, including revoked ones, which is the maximum"
    )]
    TooMany,
}

/// Why a request with an operator key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorRefusal {
    /// The credential is not a live operator key.
    Credential(Refusal),
    Forbidden(OperatorForbidden),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorKeySettings {
    /// Name, chosen by the operator.
    pub name: String,
    pub scopes: Vec<OperatorScope>,
    /// Time from which the key is refused, if any.
    pub expires_at: Option<Timestamp>,
    /// Networks that the key works from; `None` for any.
    pub networks: Option<Vec<Network>>,
    /// The largest payment that the key may make.
    pub max_payment: NanoUsd,
}

impl OperatorKeySettings {
    /// Checks the settings, sorts the scopes, and removes repeated scopes.
    fn rights(&self) -> Result<OperatorRights, OperatorKeyRefused> {
        let mut scopes = self.scopes.clone();
        scopes.sort_unstable();
        scopes.dedup();
        if scopes.is_empty() {
            return Err(OperatorKeyRefused::NoScope);
        }
        if self.networks.as_ref().is_some_and(|networks| networks.len() > MAX_NETWORKS) {
            return Err(OperatorKeyRefused::TooManyNetworks);
        }
        if !(NanoUsd::ZERO..=NanoUsd::MAX).contains(&self.max_payment) {
            return Err(OperatorKeyRefused::BadPayment);
        }
        let networks = self.networks.clone().filter(|networks| !networks.is_empty());
        Ok(OperatorRights { scopes, networks, max_payment: self.max_payment })
    }
}

impl Management {
    /// Authenticates an operator key on a route for any of these scopes, and records the use of the key. `from` is the
    /// client's address, if it is known.
    pub async fn authenticate_operator(
        &self,
        presented: &str,
        from: Option<IpAddr>,
        scopes: &[OperatorScope],
    ) -> Result<OperatorKey, Error<OperatorRefusal>> {
        let refused = |refusal| Err(Error::Refused(refusal));
        let (owner, now) = (self.credentials.find(presented).await?, self.clock.now());
        let key = match self.credentials.identify(owner, Class::Operator, now).await? {
            Identified::OperatorKey(key) => *key,
            Identified::ApiKey(..) | Identified::ManagementKey(..) => {
                return refused(OperatorRefusal::Credential(Refusal::OperatorKeyRequired));
            }
            Identified::Refused(refusal) => return refused(OperatorRefusal::Credential(refusal)),
        };
        if let Err(reason) = key.rights.may(from, scopes) {
            return refused(OperatorRefusal::Forbidden(reason));
        }
        let used = Principal::OperatorKey(operators(), key.id);
        self.last_uses.note(&self.store, used, key.last_used_at, now.to_whole_seconds());
        Ok(key)
    }

    /// Creates an operator key and returns the plaintext, which cannot be recovered later.
    pub async fn create_operator_key(
        &self,
        settings: OperatorKeySettings,
        actor: Actor,
    ) -> Result<SecretString, Error<OperatorKeyRefused>> {
        let rights = settings.rights().map_err(Error::Refused)?;
        self.check_room_for_secret().await?;
        let act = self.act(actor);
        self.store.open_operators(act.at).await?;
        let (new, plaintext) = self.new_operator_key(settings.name, rights, settings.expires_at, act.at);
        made(self.store.create_operator_key(new, &act).await?)?;
        Ok(plaintext)
    }

    /// Creates a key with the name and the rights of the key `id`, which keeps working for `grace`. The new key gets
    /// the same lifetime that the key `id` got when it was created.
    pub async fn rotate_operator_key(
        &self,
        id: OperatorKeyId,
        grace: Duration,
        actor: Actor,
    ) -> Result<SecretString, Error<OperatorKeyRefused>> {
        if grace > Duration::from_secs(MAX_GRACE_SECONDS) {
            return Err(Error::Refused(OperatorKeyRefused::LongGrace));
        }
        self.check_room_for_secret().await?;
        let act = self.act(actor);
        let previous = self.find_operator_key(id).await?;
        let expires_at = previous.expires_at.map(|end| {
            let life = end.millis().saturating_sub(previous.created_at.millis());
            Timestamp::from_millis(act.at.millis().saturating_add(life)).to_whole_seconds()
        });
        let (new, plaintext) = self.new_operator_key(previous.name, previous.rights, expires_at, act.at);
        let rotation = OperatorRotation { previous: id, new, ends_at: act.at.plus(grace) };
        made(self.store.rotate_operator_key(rotation, &act).await?)?;
        Ok(plaintext)
    }

    fn new_operator_key(
        &self,
        name: String,
        rights: OperatorRights,
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) -> (NewOperatorKey, SecretString) {
        let id = OperatorKeyId::new(self.later_than_the_last(now), random_bytes(&*self.clock));
        let (plaintext, digest) = self.credentials.mint(Class::Operator, random_bytes(&*self.clock));
        let key = OperatorKey {
            id,
            name,
            hint: key::hint(plaintext.expose_secret()),
            rights,
            created_at: now.to_whole_seconds(),
            expires_at,
            last_used_at: None,
            revoked_at: None,
            ends_at: None,
        };
        (NewOperatorKey { key, digest, most: MAX_OPERATOR_KEYS }, plaintext)
    }

    /// Lists the operator keys, oldest first.
    pub async fn operator_keys(&self) -> Result<Vec<OperatorKey>, StoreError> {
        self.store.operator_keys().await
    }

    pub async fn find_operator_key(
        &self,
        id: OperatorKeyId,
    ) -> Result<OperatorKey, Error<OperatorKeyRefused>> {
        self.store.operator_key(id).await?.ok_or(Error::Refused(OperatorKeyRefused::NotFound))
    }

    /// Revokes an operator key; revoking it again changes nothing.
    pub async fn revoke_operator_key(
        &self,
        id: OperatorKeyId,
        actor: Actor,
    ) -> Result<OperatorKey, Error<OperatorKeyRefused>> {
        // If the operators' account does not exist yet, there is no key, and the account must not be changed.
        self.find_operator_key(id).await?;
        let revoked = self.store.revoke_operator_key(id, &self.act(actor)).await?;
        revoked.ok_or(Error::Refused(OperatorKeyRefused::NotFound))
    }
}

const fn made(made: OperatorKeyMade) -> Result<(), Error<OperatorKeyRefused>> {
    match made {
        OperatorKeyMade::Made => Ok(()),
        OperatorKeyMade::TooMany => Err(Error::Refused(OperatorKeyRefused::TooMany)),
        OperatorKeyMade::NoPrevious => Err(Error::Refused(OperatorKeyRefused::Ended)),
    }
}

#[cfg(test)]
mod tests {
    use domain::key::Status;

    use super::*;
    use crate::testing::{Office, refused};

    fn settings(scopes: &[OperatorScope]) -> OperatorKeySettings {
        OperatorKeySettings {
            name: "billing".into(),
            scopes: scopes.to_vec(),
            expires_at: None,
            networks: None,
            max_payment: DEFAULT_MAX_PAYMENT,
        }
    }

    async fn may(office: &Office, key: &SecretString) -> Result<OperatorKey, OperatorRefusal> {
        let scopes = [OperatorScope::Read];
        match office.management.authenticate_operator(key.expose_secret(), None, &scopes).await {
            Ok(key) => Ok(key),
            Err(Error::Refused(refusal)) => Err(refusal),
            Err(Error::Store(error)) => panic!("{error}"),
        }
    }

    #[tokio::test]
    async fn a_rotated_key_works_until_its_grace_ends_and_the_new_one_has_its_rights_and_its_life() {
        let office = Office::open();
        let desk = &office.management;
        let expires_at = Timestamp::parse("2026-11-30T02:11:05Z");
        let settings = OperatorKeySettings { expires_at, ..settings(&[OperatorScope::Read]) };
        let old = desk.create_operator_key(settings, Actor::System).await.unwrap();
        let id = may(&office, &old).await.unwrap().id;
        office.clock.set("2026-11-25T02:11:05Z");
        let grace = Duration::from_hours(1);
        let new = desk.rotate_operator_key(id, grace, Actor::System).await.unwrap();
        let made = may(&office, &new).await.unwrap();
        assert_eq!(made.rights, may(&office, &old).await.unwrap().rights);
        assert_eq!(
            (made.name.as_str(), made.expires_at),
            ("billing", Timestamp::parse("2026-12-05T02:11:05Z"))
        );
        office.clock.set("2026-11-25T03:11:05Z");
        let ended = Err(OperatorRefusal::Credential(Refusal::KeyExpired));
        assert_eq!(may(&office, &old).await, ended);
        assert!(may(&office, &new).await.is_ok());
        let again = desk.rotate_operator_key(id, grace, Actor::System).await;
        assert_eq!(refused(again.map(drop)), OperatorKeyRefused::Ended);
        let newer = desk.rotate_operator_key(made.id, Duration::ZERO, Actor::System).await.unwrap();
        assert_eq!(may(&office, &new).await, ended, "without a grace the previous key ends at once");
        assert!(may(&office, &newer).await.is_ok());
        let listed = desk.operator_keys().await.unwrap();
        let states: Vec<_> = listed.iter().map(|key| key.status(desk.now())).collect();
        assert_eq!(states, [Status::Expired, Status::Expired, Status::Active]);
        let long = Duration::from_secs(MAX_GRACE_SECONDS + 1);
        let refusal = desk.rotate_operator_key(listed[2].id, long, Actor::System).await;
        assert_eq!(refused(refusal.map(drop)), OperatorKeyRefused::LongGrace);
    }

    #[tokio::test]
    async fn a_key_that_is_rotated_twice_within_its_grace_gives_its_whole_life_to_both_new_keys() {
        let office = Office::open();
        let desk = &office.management;
        let expires_at = Timestamp::parse("2026-11-30T02:11:05Z");
        let settings = OperatorKeySettings { expires_at, ..settings(&[OperatorScope::Read]) };
        let old = desk.create_operator_key(settings, Actor::System).await.unwrap();
        let id = may(&office, &old).await.unwrap().id;
        office.clock.set("2026-11-25T02:11:05Z");
        let [hour, day] = [1, 24].map(Duration::from_hours);
        for grace in [hour, day] {
            let new = desk.rotate_operator_key(id, grace, Actor::System).await.unwrap();
            let made = may(&office, &new).await.unwrap();
            assert_eq!((made.expires_at, made.ends_at), (Timestamp::parse("2026-12-05T02:11:05Z"), None));
        }
        let first = desk.find_operator_key(id).await.unwrap();
        let ends_at = Timestamp::parse("2026-11-25T03:11:05Z");
        assert_eq!((first.expires_at, first.ends_at, first.end()), (expires_at, ends_at, ends_at));
        office.clock.set("2026-11-25T03:11:05Z");
        let ended = Err(OperatorRefusal::Credential(Refusal::KeyExpired));
        assert_eq!(may(&office, &old).await, ended, "a longer grace does not move an end that is set");
    }

    #[tokio::test]
    async fn a_revoked_key_is_unknown_from_the_next_request_on_and_each_act_leaves_an_event() {
        let office = Office::open();
        let desk = &office.management;
        let actor = || Actor::Operator { name: "ann".into() };
        let key = desk.create_operator_key(settings(&[OperatorScope::Read]), actor()).await.unwrap();
        let id = may(&office, &key).await.unwrap().id;
        for _ in 0..2 {
            assert!(desk.revoke_operator_key(id, actor()).await.unwrap().revoked_at.is_some());
            let unknown = Err(OperatorRefusal::Credential(Refusal::InvalidOperatorKey));
            assert_eq!(may(&office, &key).await, unknown);
        }
        let events = office.store.events_after(operators(), 0, 9).await.unwrap().events;
        let kinds: Vec<_> = events.iter().map(|event| event.event.kind.as_str()).collect();
        assert_eq!(kinds, ["operator_key.created", "operator_key.revoked"]);
        assert!(events.iter().all(|event| event.event.actor == actor()));
    }

    #[tokio::test]
    async fn there_are_at_most_a_hundred_operator_keys_and_none_without_a_scope() {
        let office = Office::open();
        let desk = &office.management;
        let none = desk.create_operator_key(settings(&[]), Actor::System).await;
        assert_eq!(refused(none.map(drop)), OperatorKeyRefused::NoScope);
        let networks = Some(vec!["10.0.0.0/8".parse().unwrap(); MAX_NETWORKS + 1]);
        let many = OperatorKeySettings { networks, ..settings(&[OperatorScope::Read]) };
        let many = desk.create_operator_key(many, Actor::System).await;
        assert_eq!(refused(many.map(drop)), OperatorKeyRefused::TooManyNetworks);
        let mut last = None;
        for _ in 0..MAX_OPERATOR_KEYS {
            last = Some(
                desk.create_operator_key(settings(&[OperatorScope::Read]), Actor::System).await.unwrap(),
            );
        }
        let more = desk.create_operator_key(settings(&[OperatorScope::Read]), Actor::System).await;
        assert_eq!(refused(more.map(drop)), OperatorKeyRefused::TooMany);
        let last = may(&office, &last.unwrap()).await.unwrap();
        let rotated = desk.rotate_operator_key(last.id, Duration::ZERO, Actor::System).await;
        assert_eq!(refused(rotated.map(drop)), OperatorKeyRefused::TooMany);
        let still = desk.find_operator_key(last.id).await.unwrap();
        assert_eq!(still.status(desk.now()), Status::Active, "a refused rotation ends nothing");
    }
}
