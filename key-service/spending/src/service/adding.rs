//! When to add counters from memory to the store.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Time between two additions. A process that dies loses its counts since the last one.
const ADD_EVERY: Duration = Duration::from_secs(10);

/// Waits for the next addition, or for the shutdown, before which a last one is due.
pub(super) async fn due(shutdown: &CancellationToken) {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = sleep(ADD_EVERY) => {}
    }
}
