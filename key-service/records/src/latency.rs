//! Measures how long calls to the store take.

use tokio::time::Instant;

/// Measures how long a call to the store takes: until this value is dropped. So calls that fail or are given up are
/// measured too.
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
