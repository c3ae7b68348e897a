//! Time that the store takes.

use std::future::Future;

use tokio::time::Instant;

/// Measures a call to the store, a failed one too.
pub(super) async fn timed<T>(operation: &'static str, call: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let answer = call.await;
    metrics::histogram!("keyservice_store_duration_seconds", "operation" => operation)
        .record(began.elapsed());
    answer
}
