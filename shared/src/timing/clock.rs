//! The source of time and randomness. No other code reads the system's clock or randomness.

use std::time::{SystemTime, UNIX_EPOCH};

use rand::RngCore;

use crate::timing::time::Timestamp;

/// Source of time and of random bytes: the system in production, and a simulation in tests.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// Fills `bytes` with random bytes from which secrets can be made.
    fn random(&self, bytes: &mut [u8]);
}

/// The clock and the random bytes of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Clock for System {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the ambient clock")]
    fn now(&self) -> Timestamp {
        // If the clock shows a time before 1970, it is read as 1970, so that no key expires by mistake.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// Uses a cryptographic generator that the operating system seeds and reseeds after every 64 kB. Asking the system
    /// for each request would take two system calls.
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
