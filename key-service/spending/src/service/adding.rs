//! When counters kept in memory are added to the store.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Time between two additions to the store. A process that dies loses what it counted since the last one.
const ADD_EVERY: Duration = Duration::from_secs(10);

/// Waits for the next addition, or for the shutdown, when the last one is due.
pub(super) async fn due(shutdown: &CancellationToken) {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = sleep(ADD_EVERY) => {}
    }
}
