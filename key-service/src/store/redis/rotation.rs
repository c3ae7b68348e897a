//! Rotation of keys.

use shared::rpc::Principal;

use super::{
    Redis,
    idempotency::idempotency_record,
    records::{damaged, write_rotation},
    script::Arguments,
};
use crate::store::{Credential, Idempotency, Keys as _, Rotated, StoreError};
use domain::{
    digest::Digest,
    event::Act,
    key::{ApiKey, KeyNotRotated, NewCredential},
    ledger::Rotation,
};

/// Result of `scripts/rotate_key.lua`, the number of the credential, and the digest of an outdated one, if any.
type Answer = (String, u64, Vec<u8>);

impl Redis {
    /// Computes the rotation from what was read, and writes the rotation unless the key has another revision by then. The
    /// credential is written last: until then nobody knows its plaintext.
    pub(super) async fn rotate(
        &self,
        new: NewCredential,
        attempt: Option<Idempotency>,
        act: &Act,
    ) -> Result<Rotated, StoreError> {
        let mut turn = self.turn(new.key.as_bytes()).await?;
        loop {
            turn.attempt().await?;
            let Some((key, revision)) = self.key_with_revision(new.account, new.key).await? else {
                return Ok(Rotated::NotFound);
            };
            let judged = key.rotated(&new, act.at);
            let event =
                |key: &ApiKey| act.event(0, Some(key.id), key.spend.group, key.rotation_event(act.at));
            let event = judged.as_ref().ok().map(event);
            let judged = judged.map(|key| key.spend.rotation);
            let arguments = self.rotation(&new, attempt.as_ref(), (revision.number, judged));
            let arguments = self.with_event(arguments, new.account, event.as_ref());
            let answer: Option<Answer> = self.client.run(&self.scripts.rotate_key, &arguments).await?;
            let Some((result, number, outdated)) = answer else { return Ok(Rotated::NotFound) };
            let key = self.key(new.account, new.key).await?.ok_or_else(|| damaged("a rotated key"))?;
            return Ok(match (result.as_str(), judged) {
                ("rotated", _) => {
                    self.confirm_account(new.account).await?;
                    let owner = Principal::ApiKey(new.account, new.key);
                    self.put_credential(&new.digest, Credential { owner, number }).await?;
                    self.forget_credential(&outdated).await?;
                    Rotated::New(key)
                }
                ("replayed", _) => Rotated::Replayed(key),
                ("reused", _) => Rotated::Reused,
                ("refused", Err(reason)) => Rotated::Refused(reason),
                ("stale", _) => continue,
                _ => return Err(damaged("the answer to a rotation")),
            });
        }
    }

    /// Arguments of a rotation, computed from a revision of the key, or of the refusal of one.
    fn rotation(
        &self,
        new: &NewCredential,
        attempt: Option<&Idempotency>,
        (revision, judged): (String, Result<Rotation, KeyNotRotated>),
    ) -> Arguments {
        let arguments = Arguments::keys([
            self.key_space.account(new.account),
            self.key_space.key(new.account, new.key),
            self.idempotency_name(new.account, attempt),
        ]);
        let arguments = arguments.with(*new.key.as_bytes()).with(new.key.to_string());
        let arguments = arguments.with_all(idempotency_record(attempt).into()).with(revision);
        let rotation = judged.map(write_rotation).unwrap_or_default();
        arguments.with(rotation).with(*new.digest.as_bytes()).with(new.hint.as_str())
    }

    /// Forgets a credential that no key accepts any more.
    async fn forget_credential(&self, digest: &[u8]) -> Result<(), StoreError> {
        let Ok(digest) = <[u8; 32]>::try_from(digest) else { return Ok(()) };
        let name = self.key_space.credential(&Digest::from_bytes(digest));
        Ok(self.client.ask::<()>(redis::cmd("DEL").arg(name)).await?)
    }
}
