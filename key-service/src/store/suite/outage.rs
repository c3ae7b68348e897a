//! Simulated outages of a store, for tests of the store's callers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::StoreError;

/// Fails all calls after a number of successful calls.
#[derive(Debug)]
pub(crate) struct Outage {
    calls_left: AtomicU64,
}

impl Default for Outage {
    fn default() -> Self {
        Self { calls_left: AtomicU64::new(u64::MAX) }
    }
}

impl Outage {
    /// Fails after this many further calls.
    pub(crate) fn fail_after(&self, calls: u64) {
        self.calls_left.store(calls, Ordering::SeqCst);
    }

    /// Ends the outage.
    pub(crate) fn recover(&self) {
        self.fail_after(u64::MAX);
    }

    pub(crate) fn pass(&self) -> Result<(), StoreError> {
        let took =
            self.calls_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        took.map(drop).map_err(|_| StoreError::Unavailable("the disk at 10.0.0.7 is on fire".into()))
    }
}
