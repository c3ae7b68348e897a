//! Waits until writes are on disk, on servers that can report this, and on replicas, if the operator asks for it.
//!
//! `WAITAOF` and `WAIT` block a connection until the disk or the replicas have answered, so they need a separate
//! connection. It must lead to the server that carried out the commits: after a failover, or a crash before the disk had
//! them, another server would confirm what it lacks. Callers that come in the meantime share the next wait.

use std::{collections::HashSet, mem, time::Duration};

use futures_util::future::try_join_all;
use redis::{Cmd, RedisError, RedisResult, cmd};
use tokio::sync::{
    Mutex,
    oneshot::{self, error::TryRecvError},
};

use super::{
    admission::{CommitServer, Sync, run_id},
    client::Client,
    connection::Connection,
};
use crate::records::{Durability, Term};

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

/// A connection for waits, and the term in which it leads to the server of the commits.
struct Waiting {
    connection: Connection,
    term: Term,
}

struct Waiter {
    write: Cmd,
    /// Waits for the disk, not only for replicas.
    disk: bool,
    /// Term before the earlier writes.
    since: Term,
    reply: oneshot::Sender<RedisResult<()>>,
}

impl DurabilityWait {
    pub(super) fn new(replicas: u32) -> Self {
        Self { queue: parking_lot::Mutex::default(), connection: Mutex::default(), replicas }
    }

    /// Returns when all earlier writes to the slot of `write` are durable, which were made since this term began. It
    /// repeats `write` for this, so `write` must be idempotent. Fails if the term is over.
    pub(super) async fn pass(
        &self,
        client: &Client,
        write: &Cmd,
        durability: Durability,
        since: Term,
    ) -> RedisResult<()> {
        let disk = match (durability, client.server().await.sync) {
            (Durability::Volatile, _) => return Ok(()),
            (Durability::Durable, None) => {
                return Err(unconfirmed("the connection to Redis was lost before the write was confirmed"));
            }
            (Durability::Replicated, _)
            | (Durability::Durable, Some(Sync::BeforeAnswering | Sync::Behind)) => false,
            (Durability::Durable, Some(Sync::Awaited)) => true,
        };
        if !disk && self.replicas == 0 {
            return Ok(());
        }
        // The caller that gets the connection waits for all that have joined by then. If it gives up, the others join
        // again.
        let (mut connection, mut answer) = loop {
            let (reply, mut answer) = oneshot::channel();
            self.join(Waiter { write: write.clone(), disk, since, reply })?;
            let connection = self.connection.lock().await;
            match answer.try_recv() {
                Ok(answer) => return answer,
                Err(TryRecvError::Empty) => break (connection, answer),
                Err(TryRecvError::Closed) => {}
            }
        };
        let waiters = mem::take(&mut *self.queue.lock());
        let server = client.server().await;
        let (waiters, late): (Vec<_>, Vec<_>) =
            waiters.into_iter().partition(|waiter| waiter.since == server.term);
        for waiter in late {
            let over = unconfirmed("the connection to Redis was replaced before the write was confirmed");
            // Callers that gave up need no answer.
            let _ = waiter.reply.send(Err(over));
        }
        if !waiters.is_empty() {
            let outcome = self.wait(client, &mut connection, &server, &waiters).await;
            if outcome.is_err() {
                *connection = None;
            }
            for waiter in waiters {
                let _ = waiter.reply.send(outcome.clone());
            }
        }
        answer.try_recv().unwrap_or_else(|_| Err(unconfirmed("the wait was given up")))
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
        server: &CommitServer,
        waiters: &[Waiter],
    ) -> RedisResult<()> {
        waiting.take_if(|waiting| waiting.term != server.term);
        let Waiting { connection, .. } = match waiting {
            Some(waiting) => waiting,
            none => none.insert(connect(client, server).await?),
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

/// Connects to the server of the commits. If the address leads to another one by now, commits go there too from now on.
async fn connect(client: &Client, server: &CommitServer) -> RedisResult<Waiting> {
    let mut connection = client.another(ANSWERING).await?;
    if run_id(&mut connection).await? != server.run_id {
        let why = unconfirmed("another Redis took over before the write was confirmed");
        client.lost(server.term, why.clone()).await;
        return Err(why);
    }
    Ok(Waiting { connection, term: server.term })
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
