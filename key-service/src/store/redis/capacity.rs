//! The memory of Redis, part of which is kept for holds and captures.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use redis::cmd;

use super::{Redis, admission::field};
use crate::store::{Capacity, StoreError};

/// Share of a server's `maxmemory`, in percent, from which on nothing new is created. The rest serves holds and captures.
const NEARLY_FULL_PERCENT: u128 = 80;

/// Time for which a look at the memory serves.
const LOOK_SERVES: Duration = Duration::from_secs(1);
/// Acts for which a look at the memory serves: of the largest, with long lists of models, they write a megabyte.
const LOOK_SERVES_ACTS: u32 = 16;

/// The last look at the memory of all masters.
#[derive(Debug, Default)]
pub(super) struct MemoryWatch {
    last: Mutex<Option<Look>>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    /// Acts that have asked since.
    served: u32,
    is_nearly_full: bool,
}

impl MemoryWatch {
    /// Returns whether some server was nearly full at the last look.
    pub(super) fn was_nearly_full(&self) -> bool {
        self.last.lock().is_some_and(|look| look.is_nearly_full)
    }
}

#[async_trait]
impl Capacity for Redis {
    async fn is_nearly_full(&self) -> Result<bool, StoreError> {
        if let Some(look) = &mut *self.memory.last.lock()
            && look.at.elapsed() < LOOK_SERVES
            && look.served < LOOK_SERVES_ACTS
        {
            look.served += 1;
            return Ok(look.is_nearly_full);
        }
        // Simultaneous calls look at once, so that none waits out the timeout of another.
        let (at, mut is_nearly_full) = (Instant::now(), false);
        let mut question = cmd("INFO");
        question.arg("memory");
        for info in self.client.ask_masters(question).await? {
            is_nearly_full |= judge(&redis::from_redis_value::<String>(info)?);
        }
        let before = self.memory.last.lock().replace(Look { at, served: 0, is_nearly_full });
        if is_nearly_full && !before.is_some_and(|look| look.is_nearly_full) {
            tracing::error!(
                "Redis uses {NEARLY_FULL_PERCENT} % of its maxmemory: nothing is made or changed but revoked, \
                 archived and lowered until it has more, or less to keep"
            );
        }
        Ok(is_nearly_full)
    }
}

/// Returns whether a server with this `INFO memory` is nearly full. `maxmemory` 0 is no bound.
fn judge(info: &str) -> bool {
    let bytes = |name| field(info, name).parse::<u128>().unwrap_or(0);
    // The server's own count, without the buffers of the append-only file and the replicas.
    let used = bytes("used_memory").saturating_sub(bytes("mem_not_counted_for_evict"));
    let most = bytes("maxmemory");
    most > 0 && 100 * used > NEARLY_FULL_PERCENT * most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_memory_is_kept() {
        let info = |used: u64, buffers: u64, most: u64| {
            format!(
                "# Memory\r\nused_memory:{used}\r\nused_memory_human:1G\r\nmaxmemory:{most}\r\n\
                 mem_not_counted_for_evict:{buffers}\r\n"
            )
        };
        assert!(!judge(&info(800, 0, 1_000)));
        assert!(judge(&info(801, 0, 1_000)));
        assert!(!judge(&info(900, 100, 1_000)), "buffers are not counted");
        assert!(judge(&info(u64::MAX, 0, u64::MAX)));
        assert!(!judge(&info(u64::MAX, 0, 0)), "no bound");
        assert!(!judge(""));
    }
}
