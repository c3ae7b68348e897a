//! A store that is away, for tests of those that use one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::Unavailable;

/// Lets so many more calls pass, and then none.
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
    /// Begins after so many more calls.
    pub(crate) fn fail_after(&self, calls: u64) {
        self.calls_left.store(calls, Ordering::SeqCst);
    }

    /// Ends.
    pub(crate) fn recover(&self) {
        self.fail_after(u64::MAX);
    }

    pub(crate) fn pass(&self) -> Result<(), Unavailable> {
        let took =
            self.calls_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        took.map(drop).map_err(|_| Unavailable("the disk at 10.0.0.7 is on fire".into()))
    }
}
