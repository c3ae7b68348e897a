//! How long tests wait.

use std::time::{Duration, Instant};

use tokio::time::sleep;

/// Maximum time to wait for anything. With it, a test fails instead of hanging.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum time to wait until servers start, end, find each other, or send something without a request. However busy
/// the machine is, only a server that hangs needs so much time.
pub const SERVER_PATIENCE: Duration = Duration::from_mins(5);
/// Time between two checks of a condition.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until a condition holds. Checks it again and again.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + SERVER_PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        sleep(LOOK_EVERY).await;
    }
}
