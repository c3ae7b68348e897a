//! Memory of a process that has become idle.
//!
//! mimalloc looks for memory to return to the system after some ten thousand allocations, or when a thread ends. An
//! idle process does neither, and would keep the memory of its last busy moment.

use std::{hint::black_box, thread, time::Duration};

use tokio::time::sleep;

/// Time between two looks. mimalloc itself keeps freed memory for a second, in case of a new demand.
const EVERY: Duration = Duration::from_secs(5);

/// Has freed memory returned for as long as the runtime lasts.
pub(super) fn return_regularly() {
    tokio::spawn(async {
        loop {
            sleep(EVERY).await;
            // A thread that allocates nothing goes unnoticed by mimalloc. If no thread can be started, the next look
            // comes soon.
            let _ =
                thread::Builder::new().name("idle-memory".into()).spawn(|| drop(black_box(Box::new(0_u8))));
        }
    });
}
