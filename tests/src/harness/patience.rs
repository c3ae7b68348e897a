//! How long tests wait.

use std::time::{Duration, Instant};

use tokio::time::sleep;

/// Longest wait for anything, so that a test fails rather than hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for servers to start, to end, to find each other, or to send something without a request. Only a server
/// that hangs takes this long, however busy the machine is.
pub const SERVER_PATIENCE: Duration = Duration::from_mins(5);
/// Interval at which a condition is polled.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until a condition holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + SERVER_PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        sleep(LOOK_EVERY).await;
    }
}
