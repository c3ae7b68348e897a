//! Deliberately cut connections, and pauses.

use std::{io, time::Duration};

use bytes::Bytes;
use tokio::time::sleep;

/// Time that a few small writes need to leave the machine's buffers.
const LEAVING: Duration = Duration::from_millis(20);

/// Returns the error that cuts a connection.
pub(crate) fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the script cuts here")
}

/// Cuts the connection after earlier output has been sent: bytes still in a buffer would be lost too.
pub(crate) async fn cut_later() -> io::Result<Bytes> {
    sleep(LEAVING).await;
    Err(cut())
}

/// Sleeps; returns at once for zero.
pub(crate) async fn sleep_ms(ms: u64) {
    if ms > 0 {
        sleep(Duration::from_millis(ms)).await;
    }
}
