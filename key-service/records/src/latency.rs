//! Time that the store takes.

use tokio::time::Instant;

/// A call to the store under way, measured when dropped: also a call that fails, or whose caller gives up.
pub struct Timed {
    operation: &'static str,
    began: Instant,
}

/// Begins to measure a call.
pub fn timed(operation: &'static str) -> Timed {
    Timed { operation, began: Instant::now() }
}

impl Drop for Timed {
    fn drop(&mut self) {
        metrics::histogram!("keyservice_store_duration_seconds", "operation" => self.operation)
            .record(self.began.elapsed());
    }
}
