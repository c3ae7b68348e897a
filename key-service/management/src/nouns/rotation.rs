//! Rotation: gives a key a new plaintext.

use std::time::Duration;

use shared::{
    clock::random_bytes,
    ids::KeyId,
    key::{self, Class},
    secret::ExposeSecret,
    wire::Noun,
};

use crate::{
    error::Error,
    nouns::{
        governed::{Acted, Acting, Made},
        once::attempt,
        refused::Refused,
    },
};
use domain::{
    digest::Digest,
    key::{ApiKey, KeyNotRotated, NewCredential},
};
use key_service_store::store::Rotated;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RotationTerms {
    /// How long the previous plaintext still works.
    pub grace: Duration,
    /// Ends a running grace of an earlier rotation instead of refusing.
    pub is_forced: bool,
}

impl Acting<'_> {
    /// Gives a key a new plaintext, once for each idempotency key.
    pub async fn rotate(
        self,
        key: KeyId,
        RotationTerms { grace, is_forced }: RotationTerms,
        idempotency_key: Option<String>,
    ) -> Acted<Made<ApiKey>> {
        let Self { management, account, actor } = self;
        management.check_room_for_secret(Refused::StoreFull).await?;
        let act = management.act(actor);
        let (plaintext, digest) = management.credentials.mint(Class::Api, random_bytes(&*management.clock));
        let hint = key::hint(plaintext.expose_secret());
        let request = format!("rotate\n{key}\n{}\n{is_forced}", grace.as_secs());
        let attempt = attempt(idempotency_key, Digest::of(request.as_bytes()), act.at);
        let new = NewCredential { account, key, digest, hint, grace, is_forced };
        match management.store.rotate_key(new, attempt, &act).await? {
            Rotated::New(key) => Ok(Made::New(key, Some(plaintext))),
            Rotated::Replayed(key) => Ok(Made::Replayed(key)),
            Rotated::Reused => Err(Error::Refused(Refused::IdempotencyKeyReused)),
            Rotated::Refused(KeyNotRotated::Revoked) => Err(Error::Refused(Refused::KeyRevoked)),
            Rotated::Refused(KeyNotRotated::Expired) => Err(Error::Refused(Refused::KeyExpired)),
            Rotated::Refused(KeyNotRotated::InProgress) => Err(Error::Refused(Refused::RotationInProgress)),
            Rotated::NotFound => Err(Error::Refused(Refused::NotFound(Noun::Key))),
        }
    }
}
