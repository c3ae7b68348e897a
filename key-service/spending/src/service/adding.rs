//! Decides when counters in memory are added to the store.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Time between two additions. A process that crashes loses what it has counted since the last one.
const ADD_EVERY: Duration = Duration::from_secs(10);

/// Waits for the next addition. Also returns at shutdown, when one last addition is due.
pub(super) async fn due(shutdown: &CancellationToken) {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = sleep(ADD_EVERY) => {}
    }
}
