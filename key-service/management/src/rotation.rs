//! Rotation of keys.

use std::time::Duration;

use shared::{
    clock::random_bytes,
    ids::{AccountId, KeyId},
    key::{self, Class},
    secret::ExposeSecret,
};

use super::{Error, Issued, KeyRefused, Management};
use domain::{
    digest::Digest,
    event::Actor,
    key::{KeyNotRotated, NewCredential},
};
use key_service_store::store::{Capacity as _, Rotated};

/// Terms of a rotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RotationTerms {
    /// Time for which the previous plaintext works as well.
    pub grace: Duration,
    /// Ends the grace of an earlier rotation instead of being refused.
    pub is_forced: bool,
}

impl Management {
    /// Gives a key a new plaintext, only once per idempotency key.
    pub async fn rotate(
        &self,
        (account, key): (AccountId, KeyId),
        RotationTerms { grace, is_forced }: RotationTerms,
        idempotency_key: Option<String>,
        actor: Actor,
    ) -> Result<Issued, Error<KeyRefused>> {
        if self.store.is_nearly_full().await? {
            return Err(Error::Refused(KeyRefused::StoreFull));
        }
        let act = self.act(actor);
        let (plaintext, digest) = self.credentials.mint(Class::Api, random_bytes(&*self.clock));
        let hint = key::hint(plaintext.expose_secret());
        let request = format!("rotate\n{key}\n{}\n{is_forced}", grace.as_secs());
        let attempt = Self::attempt(idempotency_key, Digest::of(request.as_bytes()), act.at);
        let new = NewCredential { account, key, digest, hint, grace, is_forced };
        match self.store.rotate_key(new, attempt, &act).await? {
            Rotated::New(key) => Ok(Issued::New { key, plaintext }),
            Rotated::Replayed(key) => Ok(Issued::Replayed(key)),
            Rotated::Reused => Err(Error::Refused(KeyRefused::IdempotencyKeyReused)),
            Rotated::Refused(KeyNotRotated::Revoked) => Err(Error::Refused(KeyRefused::Revoked)),
            Rotated::Refused(KeyNotRotated::Expired) => Err(Error::Refused(KeyRefused::Expired)),
            Rotated::Refused(KeyNotRotated::InProgress) => {
                Err(Error::Refused(KeyRefused::RotationInProgress))
            }
            Rotated::NotFound => Err(Error::Refused(KeyRefused::NotFound)),
        }
    }
}
