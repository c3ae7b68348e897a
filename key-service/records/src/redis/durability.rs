//! Waits until writes are on disk, on servers that can report this, and on replicas, if the operator asks for it.
//!
//! `WAITAOF` and `WAIT` block a connection until the disk or the replicas have answered, so they need a separate
//! connection. Callers that come in the meantime share the next wait.

use std::{collections::HashSet, mem, time::Duration};

use futures_util::future::try_join_all;
use redis::{Cmd, RedisError, RedisResult, cmd};
use tokio::sync::{
    Mutex,
    oneshot::{self, error::TryRecvError},
};

use super::{admission::Sync, client::Client, connection::Connection};
use crate::records::Durability;

/// Longest wait for a disk: `everysec` takes a second, or two on a slow disk.
const LONGEST: Duration = Duration::from_millis(2_500);
/// Longest wait for replicas. They answer within a round trip unless they are gone, so callers learn in time to refuse.
const LONGEST_REPLICATION: Duration = Duration::from_secs(1);
/// Longest time for the connection to report the result.
const ANSWERING: Duration = Duration::from_secs(3);
/// Writes waiting at once; the client admits no more calls.
const WAITING: usize = 4096;

/// Queue of waiting writes, and the connection for the waits.
pub(super) struct DurabilityWait {
    queue: parking_lot::Mutex<Vec<Waiter>>,
    connection: Mutex<Option<Waiting>>,
    /// Number of replicas that must have a write before it is answered.
    replicas: u32,
}

/// A connection for waits, and the number that the client's connection had then. If that one was replaced since, this
/// one is broken too.
struct Waiting {
    connection: Connection,
    number: u64,
}

struct Waiter {
    write: Cmd,
    /// Waits for the disk, not only for replicas.
    disk: bool,
    reply: oneshot::Sender<RedisResult<()>>,
}

impl DurabilityWait {
    pub(super) fn new(replicas: u32) -> Self {
        Self { queue: parking_lot::Mutex::default(), connection: Mutex::default(), replicas }
    }

    /// Returns when all earlier writes to the slot of `write` are durable. It repeats `write` for this, so `write` must
    /// be idempotent.
    pub(super) async fn pass(&self, client: &Client, write: &Cmd, durability: Durability) -> RedisResult<()> {
        let disk = match (durability, client.sync().await) {
            (Durability::Volatile, _) => return Ok(()),
            (Durability::Replicated, _) | (Durability::Durable, Sync::BeforeAnswering | Sync::Behind) => {
                false
            }
            (Durability::Durable, Sync::Awaited) => true,
        };
        if !disk && self.replicas == 0 {
            return Ok(());
        }
        // The caller that gets the connection waits for all that have joined by then. If it gives up, the others join
        // again.
        let mut connection = loop {
            let (reply, mut answer) = oneshot::channel();
            self.join(Waiter { write: write.clone(), disk, reply })?;
            let connection = self.connection.lock().await;
            match answer.try_recv() {
                Ok(answer) => return answer,
                Err(TryRecvError::Empty) => break connection,
                Err(TryRecvError::Closed) => {}
            }
        };
        let waiters = mem::take(&mut *self.queue.lock());
        let outcome = self.wait(client, &mut connection, &waiters).await;
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
            return Err(unconfirmed("too many writes wait for the disk or for replicas"));
        }
        queue.push(waiter);
        Ok(())
    }

    async fn wait(
        &self,
        client: &Client,
        waiting: &mut Option<Waiting>,
        waiters: &[Waiter],
    ) -> RedisResult<()> {
        let number = client.number().await;
        waiting.take_if(|waiting| waiting.number != number);
        let Waiting { connection, .. } = match waiting {
            Some(waiting) => waiting,
            none => none.insert(Waiting { connection: client.another(ANSWERING).await?, number }),
        };
        // Writes to one space are alike, so one of them stands for all.
        let mut seen = HashSet::new();
        let distinct = waiters.iter().filter(|waiter| seen.insert(waiter.write.get_packed_command()));
        try_join_all(distinct.map(|waiter| {
            let mut connection = connection.clone();
            async move { waiter.write.query_async::<()>(&mut connection).await }
        }))
        .await?;
        if self.replicas > 0 {
            await_replicas(connection, self.replicas).await?;
        }
        if waiters.iter().any(|waiter| waiter.disk) {
            await_disk(connection).await?;
        }
        Ok(())
    }
}

async fn await_replicas(connection: &mut Connection, replicas: u32) -> RedisResult<()> {
    let mut wait = cmd("WAIT");
    wait.arg(replicas).arg(LONGEST_REPLICATION.as_millis().to_string());
    for answer in connection.ask_masters(wait).await? {
        if redis::from_redis_value::<u32>(answer)? < replicas {
            return Err(unconfirmed("too few replicas confirmed in time (FAREGATE_REDIS_WAIT_REPLICAS)"));
        }
    }
    Ok(())
}

async fn await_disk(connection: &mut Connection) -> RedisResult<()> {
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
