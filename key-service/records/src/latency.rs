//! Measures how long calls to the store take.

use tokio::time::Instant;

/// A call to the store, measured until it is dropped. Failed and abandoned calls are measured too.
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
