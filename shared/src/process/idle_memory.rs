//! Memory of a process that has become idle.
//!
//! mimalloc looks for memory that it may return to the system after some ten thousand allocations, or when a thread ends. A
//! process that is idle does neither, and would keep what its last busy moment took.

use std::{hint::black_box, thread, time::Duration};

use tokio::time::sleep;

/// Time between two looks. mimalloc itself keeps freed memory for a second, in case it is needed again.
const EVERY: Duration = Duration::from_secs(5);

/// Has freed memory returned for as long as the runtime lasts.
pub(super) fn return_regularly() {
    tokio::spawn(async {
        loop {
            sleep(EVERY).await;
            // It has to allocate, or mimalloc takes no notice of it. Where no thread can be started, the next look comes soon.
            let _ =
                thread::Builder::new().name("idle-memory".into()).spawn(|| drop(black_box(Box::new(0_u8))));
        }
    });
}
