//! Passwords as Argon2id hashes, in the PHC string format.

use std::{sync::Arc, time::Duration};

use argon2::{
    Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version,
    password_hash::{Error, phc},
};
use shared::secret::{ExposeSecret, SecretString};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

use domain::member::PasswordHash;
use key_service_store::store::StoreError;

/// Parameters of Argon2id that OWASP recommends: 19 MiB, two passes, one lane.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// Length of a salt and of a hash in bytes.
const SALT: usize = 16;
const HASH: usize = 32;

/// Maximum number of hashes calculated concurrently, each on one core with 19 MiB; others wait.
const HASHES_AT_ONCE: usize = 2;
/// How long a call waits for a permit to hash. A hash takes about 50 ms.
const HASH_TIMEOUT: Duration = Duration::from_secs(5);

/// Calculates password hashes, a few at a time.
pub(crate) struct Passwords {
    hashes: Arc<Semaphore>,
}

impl Passwords {
    pub(crate) fn new() -> Self {
        Self { hashes: Arc::new(Semaphore::new(HASHES_AT_ONCE)) }
    }

    pub(crate) async fn hash(
        &self,
        password: SecretString,
        salt: [u8; SALT],
    ) -> Result<PasswordHash, StoreError> {
        let hash = move || argon2()?.hash_password_with_salt(password.expose_secret().as_bytes(), &salt);
        let hash = self.calculate(hash).await?.map_err(unfit)?;
        Ok(PasswordHash(hash.to_string()))
    }

    /// Returns whether the password matches the hash. A missing hash never matches, but takes the same work.
    pub(crate) async fn verify(
        &self,
        password: SecretString,
        hash: Option<PasswordHash>,
    ) -> Result<bool, StoreError> {
        let Some(hash) = hash else {
            self.hash(password, [0; SALT]).await?;
            return Ok(false);
        };
        let damaged = || StoreError::Damaged("the hash of a password".into());
        let hash = phc::PasswordHash::new(&hash.0).map_err(|_| damaged())?;
        let verify = move || argon2()?.verify_password(password.expose_secret().as_bytes(), &hash);
        match self.calculate(verify).await? {
            Ok(()) => Ok(true),
            Err(Error::PasswordInvalid) => Ok(false),
            Err(_) => Err(damaged()),
        }
    }

    async fn calculate<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = timeout(HASH_TIMEOUT, self.hashes.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| StoreError::Busy("too many passwords are checked at once"))?;
        let calculated = spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        calculated.await.map_err(|e| StoreError::Unavailable(e.to_string()))
    }
}

/// Returns the hash function for new passwords. Verifying a hash uses the hash's own parameters.
fn argon2() -> Result<Argon2<'static>, Error> {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, Some(HASH))?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

fn unfit(error: Error) -> StoreError {
    StoreError::Unavailable(format!("a password cannot be hashed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_is_known_again_and_no_other() {
        let passwords = Passwords::new();
        let hash = passwords.hash("correct horse battery".into(), [7; SALT]).await.unwrap();
        assert!(hash.0.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", hash.0);
        assert!(passwords.verify("correct horse battery".into(), Some(hash.clone())).await.unwrap());
        assert!(!passwords.verify("correct horse batterY".into(), Some(hash)).await.unwrap());
        assert!(!passwords.verify("correct horse battery".into(), None).await.unwrap());
    }

    #[tokio::test]
    async fn a_damaged_hash_is_no_password() {
        for damaged in ["", "$argon2id$v=19$m=1,t=2,p=1$AAAA$AAAA", "$2b$x"] {
            let hash = Some(PasswordHash(damaged.into()));
            assert!(Passwords::new().verify("any".into(), hash).await.is_err(), "{damaged}");
        }
    }
}
