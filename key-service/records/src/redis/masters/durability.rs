//! Waits until writes are on the disk of a master, if it can report this, and on replicas, if the operator asks for it.
//!
//! `WAITAOF` and `WAIT` block a connection until the disk or the replicas have confirmed, so they need a connection of
//! their own. This connection must lead to the server that carried out the commits, and this server must have been the
//! master all the time: after a failover, or after a crash before a sync, a server would confirm writes that it lacks.
//! Callers that come during a wait share the next wait.

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

/// Timeout for the disk: with `everysec`, a sync takes a second, or two seconds on a slow disk.
const LONGEST: Duration = Duration::from_millis(2_500);
/// Timeout for replicas. Replicas confirm within a round trip, unless they are gone. With this timeout, callers learn
/// early enough that replicas are gone, and can refuse their requests.
const LONGEST_REPLICATION: Duration = Duration::from_secs(1);
/// Timeout of the connection for the results of both waits.
const ANSWERING: Duration = Duration::from_secs(4);
/// Maximum number of writes that wait at the same time. The client does not admit more calls than this.
const WAITING: usize = 4096;

/// The connection over which commits are sent to a master.
pub(super) struct Live {
    pub(super) connection: Connection,
    pub(super) term: Term,
    pub(super) server: Admitted,
}

/// What a caller waits for.
pub(in crate::redis) struct Wanted {
    /// A write to the same slot as the earlier writes. It is sent before the wait and may be sent several times, so it
    /// must be idempotent.
    pub(in crate::redis) write: Cmd,
    pub(in crate::redis) durability: Durability,
    /// The term that was read before the earlier writes were sent.
    pub(in crate::redis) since: Term,
    /// Whether the slot is moving, so that the node that takes it over may have carried out the earlier writes.
    pub(in crate::redis) is_leaving: bool,
}

/// The queue of waiting writes, and the connection for the waits.
pub(super) struct DurabilityWait {
    queue: parking_lot::Mutex<Vec<Waiter>>,
    connection: Mutex<Option<Waiting>>,
    /// How many replicas must have a write before the write is answered.
    replicas: u32,
}

/// A connection for waits, and the term in which the server at its other end carries out commits.
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

    /// Waits until all writes to a master since this term began are durable. Fails if the term is over. `live` returns
    /// the connection that commits use at present, and `source` says how to reach the master.
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
            return Err(unconfirmed("the slot is moving to another master, which may have the write"));
        }
        // The caller that gets the connection waits on behalf of all callers that are in the queue by then. If this
        // caller is dropped, the others join the queue again.
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
            // Sending fails if the caller was dropped. It then needs no answer.
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
        answer.try_recv().unwrap_or_else(|_| Err(unconfirmed("the wait was abandoned")))
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

    /// Sends three things over one connection, in this order: the question whether the server has been the master since
    /// the term began, a write to each space, and the waits. A server that becomes a replica in between refuses the
    /// writes or the waits. Returns an answer for each waiter. If a write is refused, for example because its slot is
    /// moving, other waiters are not affected.
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
        // Writes to the same space are identical, so one write serves all waiters of the space.
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

/// Connects to the server that carries out the commits.
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

/// Returns the error for a write to a server that is not the master any more, or has not been the master all the time.
fn taken_over() -> RedisError {
    let why = "another Redis took over before the write was confirmed";
    (ErrorKind::Server(ServerErrorKind::ReadOnly), why).into()
}
