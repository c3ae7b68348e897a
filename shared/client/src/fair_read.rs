//! Reads that count by their bytes, so that a peer that sends without a pause does not starve the thread's other tasks.

use std::{
    io,
    task::{Context, Poll},
};

use tokio::task::coop::poll_proceed;

use crate::watched_stream::{StreamWatch, WatchedStream};

/// Bytes of a read that count as one step of a task. The runtime switches tasks after 128 steps, and counts a read of
/// any size as one step. So a single turn could read megabytes of the smallest frames, which take a fifth of a second
/// to process. With this number, a turn reads 32 KiB.
const BYTES_OF_A_STEP: usize = 256;

/// A connection whose reads count by their bytes.
pub type FairRead<S> = WatchedStream<S, CountedReads>;

pub struct CountedReads;

impl StreamWatch for CountedReads {
    fn after_read(&mut self, context: &mut Context<'_>, _waits: bool, bytes: &[u8]) -> io::Result<()> {
        count_read(context, bytes.len());
        Ok(())
    }
}

/// Counts a read's steps beyond the first, which the runtime counts itself.
fn count_read(context: &mut Context<'_>, bytes: usize) {
    for _ in 0..bytes / BYTES_OF_A_STEP {
        match poll_proceed(context) {
            Poll::Ready(step) => step.made_progress(),
            Poll::Pending => return,
        }
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
                let (mut endless, mut buffer) = (FairRead::new(repeat(b'x'), CountedReads), vec![0; size]);
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
