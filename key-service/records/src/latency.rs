//! Time that calls to the store take.

use tokio::time::Instant;

/// A call to the store, measured until it is dropped. A call that fails, or whose caller gives up, is measured too.
pub struct Timed {
    operation: &'static str,
    began: Instant,
}

pub fn timed(operation: &'static str) -> Timed {
    Timed { operation, began: Instant::now() }
}

impl Drop for Timed {
    fn drop(&mut self) {
        metrics::histogram!("keyservice_store_duration_seconds", "operation" => self.operation)
            .record(self.began.elapsed());
    }
}
