//! Checks whether the masters answer, accept writes and have room. A part of their memory is reserved for holds and
//! captures.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use redis::{Cmd, RedisResult, cmd};
use tokio::time::timeout;

use super::{
    admission::field,
    client::{Client, Served},
    key_space::{KeySpace, PARTS},
    masters::{self, Wanted, server::Server},
};
use crate::records::{Durability, MissingServers};

/// Percentage of a server's `maxmemory` above which nothing new is created. The rest is reserved for holds and
/// captures.
const NEARLY_FULL_PERCENT: u128 = 80;

/// Field in the marks that is written to check whether a server accepts writes.
const PROBE: &str = "probe";

/// Timeout of a ping. Readiness probes time out after 3 s, and before that they should learn which master is late.
const PINGING: Duration = Duration::from_millis(2_500);
/// How long a check of the memory may be reused.
const LOOK_SERVES: Duration = Duration::from_secs(1);
/// How many changes may reuse a check of the memory. Even if these are the largest possible changes, with long lists of
/// models, they write only a megabyte in total.
const LOOK_SERVES_ACTS: u32 = 16;

#[derive(Debug, Default)]
pub(super) struct MemoryWatch {
    last: Mutex<Option<Look>>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    /// Number of changes that have reused this check so far.
    served: u32,
    is_nearly_full: bool,
}

impl MemoryWatch {
    /// Returns whether any server is nearly full, according to a check now or to a recent check that may be reused.
    pub(super) async fn is_nearly_full(&self, client: &Client) -> RedisResult<bool> {
        if let Some(look) = &mut *self.last.lock()
            && look.at.elapsed() < LOOK_SERVES
            && look.served < LOOK_SERVES_ACTS
        {
            look.served += 1;
            return Ok(look.is_nearly_full);
        }
        // Simultaneous calls make separate checks, so that no call waits for the timeout of another call.
        let at = Instant::now();
        let is_nearly_full = memory(client).await?.iter().any(|info| judge(info));
        let before = self.last.lock().replace(Look { at, served: 0, is_nearly_full });
        if is_nearly_full && !before.is_some_and(|look| look.is_nearly_full) {
            tracing::error!(
                "Redis uses more than {NEARLY_FULL_PERCENT} % of its maxmemory: until it has more memory or less data, \
                 nothing is created, and changes are limited to revoking, disabling, archiving and lowering limits"
            );
        }
        Ok(is_nearly_full)
    }
}

/// Returns the share of memory that the fullest server uses.
pub(super) async fn fullest(client: &Client) -> RedisResult<Option<f64>> {
    Ok(memory(client).await?.iter().filter_map(|info| used_ratio(info)).reduce(f64::max))
}

/// Writes a field next to the marks of every part, so that each master of a cluster gets a write. Succeeds if at least
/// one master accepts it, and returns the others.
pub(super) async fn try_write(client: &Client, key_space: &KeySpace) -> RedisResult<MissingServers> {
    client
        .each(async |master: Arc<Server>| {
            let parts = (0..PARTS).filter(|part| client.is_of(&master, key_space.marks(*part).as_bytes()));
            let parts =
                try_join_all(parts.map(async |part| master.ask(&probe(key_space, part)).await)).await?;
            Ok(Served(!parts.is_empty()))
        })
        .await
}

/// Succeeds if at least one master answers, has loaded its data and has the required number of replicas. Returns the
/// masters that do not meet all three conditions.
pub(super) async fn ping(client: &Client, key_space: &KeySpace) -> RedisResult<MissingServers> {
    client
        .each(async |master: Arc<Server>| {
            let late = || Err(masters::server::failure(io::ErrorKind::TimedOut, "it did not answer in time"));
            timeout(PINGING, ping_one(client, key_space, &master)).await.unwrap_or_else(|_| late())
        })
        .await
}

async fn ping_one(client: &Client, key_space: &KeySpace, master: &Arc<Server>) -> RedisResult<Served> {
    master.ask(&cmd("PING")).await?;
    let since = master.term();
    let part = (0..PARTS).find(|part| client.is_of(master, key_space.marks(*part).as_bytes()));
    let Some(part) = part else { return Ok(Served(false)) };
    let (write, durability) = (probe(key_space, part), Durability::Replicated);
    // This writes something only if writes wait for replicas.
    master.settle(Wanted { write, durability, since, is_leaving: false }).await?;
    Ok(Served(true))
}

fn probe(key_space: &KeySpace, part: usize) -> Cmd {
    let mut write = cmd("HSET");
    write.arg(key_space.marks(part)).arg(PROBE).arg("");
    write
}

/// Returns the answer to `INFO memory` from every master that answers.
async fn memory(client: &Client) -> RedisResult<Vec<String>> {
    let mut question = cmd("INFO");
    question.arg("memory");
    let answers = client.ask_those_there(&question).await?;
    Ok(answers.into_iter().map(redis::from_redis_value).collect::<Result<_, _>>()?)
}

/// Returns whether a server with this `INFO memory` is nearly full. A `maxmemory` of 0 means no limit.
fn judge(info: &str) -> bool {
    let most = bytes(info, "maxmemory");
    most > 0 && 100 * used(info) > NEARLY_FULL_PERCENT * most
}

/// Returns the share of `maxmemory` that a server uses, or the share of its machine's memory if `maxmemory` is not set.
fn used_ratio(info: &str) -> Option<f64> {
    let most = match bytes(info, "maxmemory") {
        0 => bytes(info, "total_system_memory"),
        most => most,
    };
    #[expect(clippy::cast_precision_loss, reason = "a metric")]
    let ratio = used(info) as f64 / most as f64;
    (most > 0).then_some(ratio)
}

/// Returns the memory that counts against `maxmemory`, without the buffers for the append-only file and replicas.
fn used(info: &str) -> u128 {
    bytes(info, "used_memory").saturating_sub(bytes(info, "mem_not_counted_for_evict"))
}

fn bytes(info: &str, name: &str) -> u128 {
    field(info, name).parse().unwrap_or(0)
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

    #[test]
    fn without_a_bound_the_memory_of_the_machine_counts() {
        let info = |most: u64| {
            format!(
                "used_memory:300\r\nmem_not_counted_for_evict:100\r\nmaxmemory:{most}\r\ntotal_system_memory:1000\r\n"
            )
        };
        assert_eq!(used_ratio(&info(400)), Some(0.5));
        assert_eq!(used_ratio(&info(0)), Some(0.2));
        assert_eq!(used_ratio(""), None);
    }
}
