//! Returns the memory that an idle process does not need to the system.
//!
//! mimalloc returns memory after about ten thousand allocations, or when a thread ends. An idle process does neither,
//! so it would keep all the memory that it needed when it was last busy.

use std::{hint::black_box, thread, time::Duration};

use tokio::time::sleep;

/// Time between two checks. mimalloc keeps freed memory for a second, because it may be needed again.
const EVERY: Duration = Duration::from_secs(5);

/// Returns freed memory to the system regularly, until the runtime ends.
pub(super) fn return_regularly() {
    tokio::spawn(async {
        loop {
            sleep(EVERY).await;
            // The thread allocates something, because mimalloc ignores threads that allocate nothing. An error does not
            // matter, because the next attempt follows after `EVERY`.
            let _ =
                thread::Builder::new().name("idle-memory".into()).spawn(|| drop(black_box(Box::new(0_u8))));
        }
    });
}
