//! Waits until writes are on the disk of a master, if it can report this, and on replicas, if the operator asks for it.
//!
//! `WAITAOF` and `WAIT` block a connection until the disk or the replicas have confirmed, so they need a separate
//! connection. It must lead to the server that carried out the commits, and that server must have been the master ever
//! since: after a failover, or a crash before a sync, a server would confirm writes that it lacks. Callers that come in
//! the meantime share the next wait.

use std::{collections::HashMap, mem, sync::Arc, time::Duration};

use redis::{
    Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value, aio::ConnectionLike, cmd, pipe,
};
use tokio::sync::{
    Mutex,
    oneshot::{self, error::TryRecvError},
};

use crate::{
    records::{Durability, Term},
    redis::{
        admission::{Admitted, Sync, field, history},
        connection::{Connection, Source},
    },
};

/// Timeout for the disk: `everysec` takes a second, or two on a slow disk.
const LONGEST: Duration = Duration::from_millis(2_500);
/// Timeout for replicas. They confirm within a round trip unless they are gone. In that case, callers learn of it early
/// enough to refuse.
const LONGEST_REPLICATION: Duration = Duration::from_secs(1);
/// Timeout for the results of both waits on their connection.
const ANSWERING: Duration = Duration::from_secs(4);
/// Maximum number of writes that wait at once; the client admits no more calls.
const WAITING: usize = 4096;

/// The connection that carries commits to a master.
pub(super) struct Live {
    pub(super) connection: Connection,
    pub(super) term: Term,
    pub(super) server: Admitted,
}

/// A wait that a caller asks for.
pub(in crate::redis) struct Wanted {
    /// A write to the same slot as the earlier writes. It is repeated before the wait, so it must be idempotent.
    pub(in crate::redis) write: Cmd,
    pub(in crate::redis) durability: Durability,
    /// The term before the earlier writes.
    pub(in crate::redis) since: Term,
    /// Whether the slot is moving, so that the node that takes it over may have carried out the earlier writes.
    pub(in crate::redis) is_leaving: bool,
}

/// The queue of waiting writes, and the connection for the waits.
pub(super) struct DurabilityWait {
    queue: parking_lot::Mutex<Vec<Waiter>>,
    connection: Mutex<Option<Waiting>>,
    /// Number of replicas that must have a write before it is answered.
    replicas: u32,
}

/// A connection for waits, and the term in which it leads to the server that committed.
struct Waiting {
    connection: Connection,
    term: Term,
}

struct Waiter {
    write: Cmd,
    /// Whether to wait for the disk as well as for replicas.
    disk: bool,
    since: Term,
    reply: oneshot::Sender<RedisResult<()>>,
}

impl DurabilityWait {
    pub(super) fn new(replicas: u32) -> Self {
        Self { queue: parking_lot::Mutex::default(), connection: Mutex::default(), replicas }
    }

    /// Waits until all writes to a master since this term began are durable. Fails if the term is over. `live` says
    /// which connection commits use at present, and `source` leads to the master.
    pub(super) async fn pass(
        &self,
        source: &Source,
        live: impl Fn() -> Option<Arc<Live>>,
        wanted: Wanted,
    ) -> RedisResult<()> {
        let Wanted { write, durability, since, is_leaving } = wanted;
        let disk = match (durability, live().map(|live| live.server.sync)) {
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
        if is_leaving {
            return Err(unconfirmed("its slot moves to another master, which may have the write"));
        }
        // The caller that gets the connection waits on behalf of all that have joined by then. If it is dropped, the
        // others join again.
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
        let live = live();
        let term = live.as_ref().map(|live| live.term);
        let (waiters, late): (Vec<_>, Vec<_>) =
            waiters.into_iter().partition(|waiter| Some(waiter.since) == term);
        for waiter in late {
            let over = unconfirmed("the connection to Redis was replaced before the write was confirmed");
            // Callers that were dropped need no answer.
            let _ = waiter.reply.send(Err(over));
        }
        if let Some(live) = live.filter(|_| !waiters.is_empty()) {
            let outcomes = self.wait(source, &mut connection, &live, &waiters).await;
            let outcomes = outcomes.unwrap_or_else(|e| {
                *connection = None;
                vec![Err(e); waiters.len()]
            });
            for (waiter, outcome) in waiters.into_iter().zip(outcomes) {
                let _ = waiter.reply.send(outcome);
            }
        }
        answer.try_recv().unwrap_or_else(|_| Err(unconfirmed("the wait was given up")))
    }

    fn join(&self, waiter: Waiter) -> RedisResult<()> {
        let mut queue = self.queue.lock();
        if queue.len() >= WAITING {
            queue.retain(|waiter| !waiter.reply.is_closed());
        }
        if queue.len() >= WAITING {
            return Err(unconfirmed("too many writes wait for the disk or for replicas"));
        }
        queue.push(waiter);
        Ok(())
    }

    /// Sends over one connection, in this order: the question whether the server has been the master since the term
    /// began, a write to each space, and the waits. A server that becomes a replica in between refuses the write or the
    /// wait. Returns each waiter's answer: a write that is refused, for example because its slot is moving, affects no
    /// other waiter.
    async fn wait(
        &self,
        source: &Source,
        waiting: &mut Option<Waiting>,
        live: &Live,
        waiters: &[Waiter],
    ) -> RedisResult<Vec<RedisResult<()>>> {
        waiting.take_if(|waiting| waiting.term != live.term);
        let Waiting { connection, .. } = match waiting {
            Some(waiting) => waiting,
            none => none.insert(connect(source, live).await?),
        };
        let mut questions = pipe();
        questions.cmd("INFO").arg("replication");
        // Writes to the same space are identical, so one of them serves all waiters.
        let (mut distinct, mut places) = (HashMap::new(), Vec::with_capacity(waiters.len()));
        for waiter in waiters {
            let next = questions.len();
            let place = *distinct.entry(waiter.write.get_packed_command()).or_insert(next);
            if place == next {
                questions.add_command(waiter.write.clone());
            }
            places.push(place);
        }
        if self.replicas > 0 {
            questions.cmd("WAIT").arg(self.replicas).arg(LONGEST_REPLICATION.as_millis().to_string());
        }
        let waits_for_disk = waiters.iter().any(|waiter| waiter.disk);
        if waits_for_disk {
            questions.cmd("WAITAOF").arg("1").arg("0").arg(LONGEST.as_millis().to_string());
        }
        let mut answers = connection.req_packed_commands(&questions, 0, questions.len()).await?;
        if waits_for_disk {
            let (here, _replicas): (u64, u64) = redis::from_redis_value(take_last(&mut answers)?)?;
            if here == 0 {
                return Err(unconfirmed("the disk did not confirm in time"));
            }
        }
        if self.replicas > 0 && redis::from_redis_value::<u32>(take_last(&mut answers)?)? < self.replicas {
            return Err(unconfirmed("too few replicas confirmed in time (FAREGATE_REDIS_WAIT_REPLICAS)"));
        }
        let answer = |place: usize| answers.get(place).cloned().unwrap_or(Value::Nil).extract_error();
        let info: String = redis::from_redis_value(answer(0)?)?;
        if history(&info) == live.server.history {
            Ok(places.into_iter().map(|place| answer(place).map(drop)).collect())
        } else {
            Err(taken_over())
        }
    }
}

fn take_last(answers: &mut Vec<Value>) -> RedisResult<Value> {
    answers.pop().unwrap_or(Value::Nil).extract_error()
}

/// Connects to the server that committed.
async fn connect(source: &Source, live: &Live) -> RedisResult<Waiting> {
    let mut connection = source.connect(ANSWERING).await?;
    let info: String = cmd("INFO").arg("server").query_async(&mut connection).await?;
    if field(&info, "run_id") != live.server.run_id {
        return Err(taken_over());
    }
    Ok(Waiting { connection, term: live.term })
}

/// Returns the error for a write that took effect but may still be lost.
fn unconfirmed(why: &'static str) -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, why).into()
}

/// Returns the error for a write to a server that is no longer the master, or was not the master all the time.
fn taken_over() -> RedisError {
    let why = "another Redis took over before the write was confirmed";
    (ErrorKind::Server(ServerErrorKind::ReadOnly), why).into()
}
