//! Decides when the counters in memory are added to the store.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Time between two additions. A process that crashes loses what it has counted since the last addition.
const ADD_EVERY: Duration = Duration::from_secs(10);

/// Waits until the next addition is due. Returns at shutdown too, because a last addition is due then.
pub(super) async fn due(shutdown: &CancellationToken) {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = sleep(ADD_EVERY) => {}
    }
}
