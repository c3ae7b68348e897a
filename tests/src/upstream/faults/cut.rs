//! Connections that are cut on purpose, and pauses.

use std::{io, time::Duration};

use bytes::Bytes;
use tokio::time::sleep;

/// Time in which a few small writes leave the machine's buffers.
const LEAVING: Duration = Duration::from_millis(20);

/// Returns the error that cuts a connection.
pub(crate) fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the script cuts here")
}

/// Cuts the connection after a pause. Without the pause, output that is still in a buffer would be lost too.
pub(crate) async fn cut_later() -> io::Result<Bytes> {
    sleep(LEAVING).await;
    Err(cut())
}

/// Sleeps for this number of milliseconds. If it is zero, returns at once.
pub(crate) async fn sleep_ms(ms: u64) {
    if ms > 0 {
        sleep(Duration::from_millis(ms)).await;
    }
}
