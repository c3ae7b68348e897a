//! Rotation: gives a key a new plaintext.

use std::time::Duration;

use shared::{
    clock::random_bytes,
    ids::KeyId,
    key::{self, Class},
    secret::ExposeSecret,
};

use crate::nouns::{
    governed::{Acted, Acting, Issued},
    once::attempt,
};
use domain::{
    digest::Digest,
    key::{ApiKey, NewCredential},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RotationTerms {
    /// How long the previous plaintext still works.
    pub grace: Duration,
    /// Ends the grace period of an earlier rotation instead of refusing.
    pub is_forced: bool,
}

impl Acting<'_> {
    /// Gives a key a new plaintext, once for each idempotency key.
    pub async fn rotate(
        self,
        key: KeyId,
        RotationTerms { grace, is_forced }: RotationTerms,
        idempotency_key: Option<String>,
    ) -> Acted<Issued<ApiKey>> {
        let Self { management, account, actor } = self;
        management.check_room_for_secret().await?;
        let act = management.act(actor);
        let (plaintext, digest) = management.credentials.mint(Class::Api, random_bytes(&*management.clock));
        let hint = key::hint(plaintext.expose_secret());
        let request = format!("rotate\n{key}\n{}\n{is_forced}", grace.as_secs());
        let attempt = attempt(idempotency_key, Digest::of(request.as_bytes()), act.at);
        let new = NewCredential { account, key, digest, hint, grace, is_forced };
        let made = management.store.rotate_key(new, attempt, &act).await?;
        Ok(Issued::new(made, plaintext))
    }
}
