//! Waits until writes are on disk, for servers that can report durability.
//!
//! `WAITAOF` blocks a connection until the disk has answered, and so needs a separate connection. Callers that arrive
//! meanwhile share the next wait.

use std::{mem, time::Duration};

use redis::{Cmd, RedisError, RedisResult, cmd};
use tokio::sync::{Mutex, oneshot};

use super::{admission::Sync, client::Client, connection::Connection};

/// Longest wait for a disk: `everysec` takes a second, and two on a slow disk.
const LONGEST: Duration = Duration::from_millis(2_500);
/// Longest time for the connection to report the result.
const ANSWERING: Duration = Duration::from_secs(3);
/// Writes waited for at once; the client admits no more calls.
const WAITING: usize = 4096;

/// Queue of waiting writes, and the connection for `WAITAOF`.
pub(super) struct DurabilityWait {
    queue: parking_lot::Mutex<Vec<Waiter>>,
    connection: Mutex<Option<Waiting>>,
}

/// A connection for `WAITAOF`, and the number of the client's connection at that time: if that was replaced since,
/// the connection for `WAITAOF` is broken as well.
struct Waiting {
    connection: Connection,
    number: u64,
}

struct Waiter {
    write: Cmd,
    reply: oneshot::Sender<RedisResult<()>>,
}

impl DurabilityWait {
    pub(super) fn new() -> Self {
        Self { queue: parking_lot::Mutex::default(), connection: Mutex::default() }
    }

    /// Returns when all earlier writes to the slot of `write` are durable. Repeats `write` to that end, so `write`
    /// must be idempotent.
    pub(super) async fn pass(&self, client: &Client, write: &Cmd) -> RedisResult<()> {
        match client.sync().await {
            Sync::BeforeAnswering | Sync::Behind => return Ok(()),
            Sync::Awaited => {}
        }
        let (reply, mut answer) = oneshot::channel();
        self.join(Waiter { write: write.clone(), reply })?;
        // The caller that gets the connection waits for all that have joined by then.
        let mut connection = self.connection.lock().await;
        if let Ok(answer) = answer.try_recv() {
            return answer;
        }
        let waiters = mem::take(&mut *self.queue.lock());
        let outcome = wait(client, &mut connection, &waiters).await;
        if outcome.is_err() {
            *connection = None;
        }
        for waiter in waiters {
            // Callers that gave up need no answer.
            let _ = waiter.reply.send(outcome.clone());
        }
        outcome
    }

    fn join(&self, waiter: Waiter) -> RedisResult<()> {
        let mut queue = self.queue.lock();
        if queue.len() >= WAITING {
            return Err(unconfirmed("too many writes wait for the disk"));
        }
        queue.push(waiter);
        Ok(())
    }
}

async fn wait(client: &Client, waiting: &mut Option<Waiting>, waiters: &[Waiter]) -> RedisResult<()> {
    let number = client.number().await;
    waiting.take_if(|waiting| waiting.number != number);
    let Waiting { connection, .. } = match waiting {
        Some(waiting) => waiting,
        none => none.insert(Waiting { connection: client.another(ANSWERING).await?, number }),
    };
    for waiter in waiters {
        waiter.write.query_async::<()>(connection).await?;
    }
    let mut wait = cmd("WAITAOF");
    wait.arg("1").arg("0").arg(LONGEST.as_millis().to_string());
    for answer in connection.ask_masters(wait).await? {
        let (here, _replicas): (u64, u64) = redis::from_redis_value(answer)?;
        if here == 0 {
            return Err(unconfirmed("the disk did not confirm in time"));
        }
    }
    Ok(())
}

/// Error of a write that took effect but may still be lost.
fn unconfirmed(why: &'static str) -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, why).into()
}
