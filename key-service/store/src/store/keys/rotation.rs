//! Rotation of API keys.
//!
//! The credential is stored separately from the key, but its number comes from the key. So the number is predicted, and
//! the credential is written with this number. The key is then rotated if the number is still the key's next number.
//! Otherwise, the number is predicted again. Nobody knows the plaintext before the call has succeeded, so nobody has
//! used the credential with an earlier prediction.

use domain::{
    digest::Digest,
    event::Act,
    governed::{Made, Refused},
    key::{ApiKey, NewCredential},
};
use key_service_ledger::{
    Change, StoreError,
    stored::{self, KeyProfile},
};
use shared::{
    ids::{KeyId, Principal},
    time::Timestamp,
    wire::Noun,
};

use crate::{
    data::{Credential, Idempotency},
    error::Error,
    store::{
        base::Store,
        idempotency::OnceRequest,
        keys::stored::{find, put},
    },
};

/// Maximum number of attempts at a rotation. An attempt fails if another rotation of the key takes its number.
const MOST_ATTEMPTS: u32 = 100;

impl Store {
    /// Gives an API key a new credential as [`ApiKey::rotated`] does, unless the idempotency key is in use. Repeating a
    /// call with the same digest changes nothing.
    pub async fn rotate_key(
        &self,
        new: NewCredential,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<Made<ApiKey>, Error<Refused>> {
        let owner = Principal::ApiKey(new.account, new.key);
        for _ in 0..MOST_ATTEMPTS {
            let found = self.key_with_profile(new.account, new.key).await?;
            let (key, profile) = found.ok_or(Refused::NotFound(Noun::Key))?;
            let was_rotated = number_of(&profile, &new.digest).is_some();
            let mut written = None;
            if let Some(number) = foreseen(&key, &profile, &new, act.at) {
                let credential = self.offer_credential(&new.digest, Credential { owner, number }).await?;
                if credential.owner != owner || credential.number == 0 {
                    return Ok(Made::New(key)); // the digest is that of an earlier credential
                }
                written = Some(credential);
            }
            let number = written.map(|credential| credential.number);
            let (account, makes, idempotency) = (new.account, name_of(&new.digest), idempotency.clone());
            let rotated = self
                .make_once(
                    OnceRequest { account, makes, idempotency },
                    |change, _| found_key(change, new.key).map(|found| Rotation::unchanged(found, &new)),
                    |change| rotate(change, &new, number, act),
                )
                .await;
            let rotated = match rotated {
                Ok(Made::New(Rotation { key, outdated, is_listed: true })) => {
                    for stored::Rotated { number, digest } in outdated {
                        self.forget_credential(&digest, Credential { owner, number }).await;
                    }
                    return Ok(Made::New(key));
                }
                // Another rotation has taken the number.
                Ok(Made::Existing(_)) => continue,
                Ok(Made::New(Rotation { key, .. }) | Made::Replayed(Rotation { key, .. })) => {
                    Ok(Made::Replayed(key))
                }
                Err(error @ Error::Refused(_)) => Err(error),
                Err(error @ Error::Store(_)) => return Err(error),
            };
            if let Some(credential) = written.filter(|_| !was_rotated) {
                self.forget_credential(&new.digest, credential).await;
            }
            return rotated;
        }
        Err(StoreError::Busy("other requests are rotating the key").into())
    }

    /// Writes a credential with a predicted number. Replaces a lower predicted number. Returns the credential that is
    /// then stored: if the digest was taken, it belongs to another key.
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

/// A key after a rotation.
struct Rotation {
    key: ApiKey,
    /// Credentials that the key no longer accepts.
    outdated: Vec<stored::Rotated>,
    /// Whether the key still lists the rotation's credential. Two later rotations remove it from the list.
    is_listed: bool,
}

impl Rotation {
    fn unchanged((key, profile): (ApiKey, KeyProfile), new: &NewCredential) -> Self {
        Self { key, outdated: Vec::new(), is_listed: number_of(&profile, &new.digest).is_some() }
    }
}

/// Returns the number that a rotation's credential has or will have; `None` if the key cannot be rotated.
fn foreseen(key: &ApiKey, profile: &KeyProfile, new: &NewCredential, now: Timestamp) -> Option<u64> {
    let rotated = || key.clone().rotated(new, now).ok().map(|key| key.spend.rotation.current);
    number_of(profile, &new.digest).or_else(rotated)
}

/// Returns the number of the credential with this digest, if a rotation that the key still lists has created it.
fn number_of(profile: &KeyProfile, digest: &Digest) -> Option<u64> {
    let mut rotated = profile.rotated.iter();
    rotated.find(|rotated| rotated.digest == *digest).map(|rotated| rotated.number)
}

/// Returns the name by which the record of an idempotency key identifies a new credential.
fn name_of(digest: &Digest) -> [u8; 16] {
    let of_digest = Digest::of(digest.as_bytes());
    std::array::from_fn(|byte| of_digest.as_bytes()[byte])
}

fn found_key(change: &mut Change<'_>, id: KeyId) -> Result<(ApiKey, KeyProfile), Error<Refused>> {
    Ok(find(change, id)?.ok_or(Refused::NotFound(Noun::Key))?)
}

/// Gives a key a new credential, which must have been written with the key's next number. Repeating this changes
/// nothing. Returns [`Made::Existing`] if the credential does not have the next number.
fn rotate(
    change: &mut Change<'_>,
    new: &NewCredential,
    written: Option<u64>,
    act: &Act,
) -> Result<Made<Rotation>, Error<Refused>> {
    let (before, profile) = found_key(change, new.key)?;
    if number_of(&profile, &new.digest).is_some() {
        return Ok(Made::New(Rotation::unchanged((before, profile), new)));
    }
    let key = before.clone().rotated(new, act.at)?;
    let number = key.spend.rotation.current;
    if written != Some(number) {
        return Ok(Made::Existing(Rotation::unchanged((before, profile), new)));
    }
    // The key's first credential is not in this list, so it stays.
    let (mut kept, outdated): (Vec<_>, Vec<_>) =
        profile.rotated.iter().copied().partition(|rotated| rotated.number + 1 >= number);
    kept.push(stored::Rotated { number, digest: new.digest });
    put(change, &before, &key, KeyProfile { rotated: kept, ..profile })?;
    change.event(act.event(0, Some(new.key), key.spend.group, key.rotation_event(act.at)));
    Ok(Made::New(Rotation { key, outdated, is_listed: true }))
}
