//! The rhythm in which what is noted in memory is added to the store.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Time between two additions to the store. If a process dies, it loses what it noted since the last one.
const ADD_EVERY: Duration = Duration::from_secs(10);

/// Waits for the time of the next addition, or for the shutdown, at which the last one is due.
pub(super) async fn due(shutdown: &CancellationToken) {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = sleep(ADD_EVERY) => {}
    }
}
