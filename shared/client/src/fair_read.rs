//! Reads that count by their bytes, so that a peer who sends without a pause does not keep other tasks of the thread
//! waiting.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::coop::poll_proceed,
};

/// Bytes of a read that count as one step of a task. The runtime switches tasks after 128 steps, and counts a read of
/// any size as one: megabytes of the smallest frames, which take a fifth of a second. With this number, a turn reads 32
/// KiB.
const BYTES_OF_A_STEP: usize = 256;

/// A connection whose reads count by their bytes.
pub struct FairRead<S>(S);

impl<S> FairRead<S> {
    pub const fn new(stream: S) -> Self {
        Self(stream)
    }
}

/// Counts the steps of a read beyond the first, which the runtime has counted.
fn count_read(context: &mut Context<'_>, bytes: usize) {
    for _ in 0..bytes / BYTES_OF_A_STEP {
        match poll_proceed(context) {
            Poll::Ready(step) => step.made_progress(),
            Poll::Pending => return,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FairRead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.0).poll_read(context, buffer);
        count_read(context, buffer.filled().len() - before);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FairRead<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl<S: Connection> Connection for FairRead<S> {
    fn connected(&self) -> Connected {
        self.0.connected()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::{
        io::{AsyncReadExt, repeat},
        task::yield_now,
    };

    use super::*;

    #[tokio::test]
    async fn a_peer_that_sends_without_a_pause_has_32_kib_read_until_others_go_on() {
        for size in [100, 4 << 10, 32 << 10] {
            let read = Arc::<AtomicUsize>::default();
            let counted = read.clone();
            let reading = tokio::spawn(async move {
                let (mut endless, mut buffer) = (FairRead::new(repeat(b'x')), vec![0; size]);
                while let Ok(bytes) = endless.read(&mut buffer).await {
                    counted.fetch_add(bytes, Ordering::Relaxed);
                }
            });
            yield_now().await;
            let read = read.load(Ordering::Relaxed);
            assert!(read > 0 && read <= 32 << 10, "{read} bytes by {size}");
            reading.abort();
        }
    }
}
