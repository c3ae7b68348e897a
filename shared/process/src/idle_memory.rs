//! Returns the memory of an idle process to the system.
//!
//! mimalloc returns memory after about ten thousand allocations, or when a thread ends. An idle process does neither,
//! and would keep the memory of its last busy moment.

use std::{hint::black_box, thread, time::Duration};

use tokio::time::sleep;

/// Time between two checks. mimalloc keeps freed memory for a second in case it is needed.
const EVERY: Duration = Duration::from_secs(5);

/// Returns freed memory to the system regularly, until the runtime ends.
pub(super) fn return_regularly() {
    tokio::spawn(async {
        loop {
            sleep(EVERY).await;
            // mimalloc ignores a thread that allocates nothing. If no thread can be started, the next check comes soon.
            let _ =
                thread::Builder::new().name("idle-memory".into()).spawn(|| drop(black_box(Box::new(0_u8))));
        }
    });
}
