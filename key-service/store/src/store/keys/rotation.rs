//! Rotation of API keys.
//!
//! The credential is stored separately from the key but gets its number from it. So the number is predicted, the
//! credential is written with it, and the key is rotated if that number is still the next one. If not, the number is
//! predicted again. Nobody knows the plaintext before the call has succeeded, so nobody has used the credential under
//! an earlier number.

use domain::{
    digest::Digest,
    event::Act,
    key::{ApiKey, NewCredential},
};
use key_service_ledger::{
    Change, StoreError,
    stored::{self, KeyProfile},
};
use shared::{ids::Principal, time::Timestamp};

use crate::{
    data::{Credential, Idempotency, Rotated},
    store::{
        base::Store,
        idempotency::{self, Earlier},
        keys::stored::{find, put},
    },
};

/// Most attempts at a rotation. Each failed one has lost its number to another rotation of the key.
const MOST_ATTEMPTS: u32 = 100;

/// Outcome of a decision on a rotation.
#[expect(clippy::large_enum_variant, reason = "an answer is moved once")]
enum RotationOutcome {
    /// The answer, and the credentials that the key no longer accepts.
    Answered(Rotated, Vec<stored::Rotated>),
    /// The credential does not have the next number.
    Stale,
}

impl Store {
    /// Gives an API key a new credential by [`ApiKey::rotated`], unless the idempotency key is in use. Repeating a call
    /// with the same digest changes nothing.
    pub async fn rotate_key(
        &self,
        new: NewCredential,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<Rotated, StoreError> {
        let (attempt, owner) = (idempotency.as_ref(), Principal::ApiKey(new.account, new.key));
        let ended = self.ended_attempts(new.account, attempt).await?;
        for _ in 0..MOST_ATTEMPTS {
            let Some((key, profile)) = self.key_with_profile(new.account, new.key).await? else {
                return Ok(Rotated::NotFound);
            };
            let mut written = None;
            if let Some(number) = foreseen(&key, &profile, &new, act.at) {
                let credential = self.offer_credential(&new.digest, Credential { owner, number }).await?;
                if credential.owner != owner || credential.number == 0 {
                    return Ok(Rotated::New(key)); // the digest is that of an earlier credential
                }
                written = Some(credential);
            }
            let number = written.map(|credential| credential.number);
            let decide = |change: &mut Change<'_>| {
                idempotency::prune(change, &ended)?;
                rotate(change, &new, number, attempt, act)
            };
            let (rotated, outdated) = match self.lanes.change(new.account, decide).await? {
                RotationOutcome::Answered(rotated, outdated) => (rotated, outdated),
                RotationOutcome::Stale => continue,
            };
            for stored::Rotated { number, digest } in outdated {
                self.forget_credential(&digest, Credential { owner, number }).await;
            }
            match (&rotated, written) {
                (Rotated::New(_), _) | (_, None) => {}
                (
                    Rotated::Replayed(_) | Rotated::Reused | Rotated::Refused(_) | Rotated::NotFound,
                    Some(credential),
                ) => self.forget_credential(&new.digest, credential).await,
            }
            return Ok(rotated);
        }
        Err(StoreError::Busy("others rotate the key"))
    }

    /// Writes a credential with a predicted number, replacing a lower prediction. Returns the stored credential, which
    /// belongs to another key if the digest is taken.
    async fn offer_credential(
        &self,
        digest: &Digest,
        credential: Credential,
    ) -> Result<Credential, StoreError> {
        let Credential { owner, number } = credential;
        self.change_credential(digest, |present| match present {
            // A key's first credential does not come from a rotation. A higher number belongs to a later attempt.
            Some(present) if present.owner != owner || present.number == 0 || present.number > number => {
                present
            }
            Some(_) | None => credential,
        })
        .await
    }
}

/// Returns the number that a rotation's credential has or will have; `None` if the key cannot be rotated.
fn foreseen(key: &ApiKey, profile: &KeyProfile, new: &NewCredential, now: Timestamp) -> Option<u64> {
    let rotated = || key.clone().rotated(new, now).ok().map(|key| key.spend.rotation.current);
    number_of(profile, &new.digest).or_else(rotated)
}

/// Number of the credential that an earlier rotation made with this digest.
fn number_of(profile: &KeyProfile, digest: &Digest) -> Option<u64> {
    let mut rotated = profile.rotated.iter();
    rotated.find(|rotated| rotated.digest == *digest).map(|rotated| rotated.number)
}

/// Gives a key a new credential that was written with the next number; a repetition changes nothing.
fn rotate(
    change: &mut Change<'_>,
    new: &NewCredential,
    written: Option<u64>,
    attempt: Option<&Idempotency>,
    act: &Act,
) -> Result<RotationOutcome, StoreError> {
    let answered = |rotated| Ok(RotationOutcome::Answered(rotated, Vec::new()));
    let earlier = idempotency::earlier(change, attempt)?;
    let Some((before, profile)) = find(change, new.key)? else { return answered(Rotated::NotFound) };
    if number_of(&profile, &new.digest).is_some() {
        return answered(Rotated::New(before));
    }
    match earlier {
        Some(Earlier::OtherRequest) => return answered(Rotated::Reused),
        Some(Earlier::Made(_)) => return answered(Rotated::Replayed(before)),
        None => {}
    }
    let key = match before.clone().rotated(new, act.at) {
        Ok(key) => key,
        Err(reason) => return answered(Rotated::Refused(reason)),
    };
    let number = key.spend.rotation.current;
    if written != Some(number) {
        return Ok(RotationOutcome::Stale);
    }
    // The key's first credential is not in the list and stays.
    let (mut kept, outdated): (Vec<_>, Vec<_>) =
        profile.rotated.iter().copied().partition(|rotated| rotated.number + 1 >= number);
    kept.push(stored::Rotated { number, digest: new.digest });
    put(change, &before, &key, KeyProfile { rotated: kept, ..profile })?;
    change.event(act.event(0, Some(new.key), key.spend.group, key.rotation_event(act.at)));
    idempotency::keep(change, attempt, new.key.as_bytes());
    Ok(RotationOutcome::Answered(Rotated::New(key), outdated))
}
