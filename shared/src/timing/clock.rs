//! The source of time and randomness, so that no other code depends on the system's.

use std::time::{SystemTime, UNIX_EPOCH};

use rand::RngCore;

use crate::timing::time::Timestamp;

/// Source of time and of randomness: the system in production, simulated in tests.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// Random bytes fit for secrets.
    fn random(&self, bytes: &mut [u8]);
}

/// The operating system's clock and randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Clock for System {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the ambient clock")]
    fn now(&self) -> Timestamp {
        // A clock before 1970 reads as 1970, so that expiry errs on the side of accepting keys.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// Draws from a generator for secrets, which the operating system seeds, again after every 64 kB. Asking the system
    /// itself took two system calls a request.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads ambient randomness")]
    fn random(&self, bytes: &mut [u8]) {
        rand::rng().fill_bytes(bytes);
    }
}

/// Returns this many random bytes.
pub fn random_bytes<const N: usize>(clock: &dyn Clock) -> [u8; N] {
    let mut bytes = [0; N];
    clock.random(&mut bytes);
    bytes
}
