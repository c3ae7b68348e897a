//! The source of time and randomness. No other code reads the system's clock or randomness.

use std::time::{SystemTime, UNIX_EPOCH};

use rand::RngCore;

use crate::timing::time::Timestamp;

/// Source of time and of randomness: the system in production, simulated in tests.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// Fills `bytes` with randomness fit for secrets.
    fn random(&self, bytes: &mut [u8]);
}

/// The operating system's clock and randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Clock for System {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the ambient clock")]
    fn now(&self) -> Timestamp {
        // A clock before 1970 reads as 1970, so that keys do not expire by mistake.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// Uses a cryptographic generator that the operating system seeds and reseeds after every 64 kB. Asking the system
    /// directly took two system calls per request.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads ambient randomness")]
    fn random(&self, bytes: &mut [u8]) {
        rand::rng().fill_bytes(bytes);
    }
}

pub fn random_bytes<const N: usize>(clock: &dyn Clock) -> [u8; N] {
    let mut bytes = [0; N];
    clock.random(&mut bytes);
    bytes
}
