//! The way to Redis: one shared connection, made again whenever it breaks, and a deadline on every call.

use std::{io, time::Duration};

use redis::{
    Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, ServerErrorKind, Value,
    aio::ConnectionLike,
};
use tokio::{
    sync::{RwLock, Semaphore},
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    admission::{Sync, admit},
    connection::{ANSWERING, Connection, Source},
    marks::Marks,
    script::{Arguments, Lua},
};

/// How long a call may take, reconnecting included: half of the 3 s for which gateways wait for an answer. So a gateway
/// hears that the store is away rather than nothing, and can ask another key-service in the time that is left. A restart
/// that is quicker is not felt; what takes longer is answered 503.
const PATIENCE: Duration = Duration::from_millis(1500);
/// The same for the first connection, for which nobody waits yet.
const FIRST_PATIENCE: Duration = Duration::from_secs(5);
/// Calls under way or waiting at once; one more is refused. Each holds a batch of some hundred kilobytes at most.
const CALLS: usize = 4096;
/// The pause before connecting again: at first, and at most; it doubles in between.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// A connection to the configured Redis, whatever becomes of the one below.
pub(super) struct Link {
    source: Source,
    volatile_allowed: bool,
    marks: Marks,
    state: RwLock<State>,
    calls: Semaphore,
}

/// What became of the connection.
enum State {
    Up {
        connection: Connection,
        sync: Sync,
        /// Tells this connection from the one before.
        number: u64,
    },
    Down {
        why: RedisError,
        /// Nobody tries to connect before.
        until: Instant,
        pause: Duration,
        number: u64,
    },
}

/// What is sent may be sent again: the ledger's commands are idempotent, and so are the scripts.
enum Request<'a> {
    One(&'a Cmd),
    Many(&'a Pipeline),
}

impl Link {
    /// Connects for the first time. What is wrong then is not tried again.
    pub(super) async fn connect(source: Source, volatile_allowed: bool, marks: Marks) -> RedisResult<Self> {
        let down = State::Down {
            why: failure(io::ErrorKind::TimedOut, "it did not answer"),
            until: Instant::now(),
            pause: PAUSES.0,
            number: 0,
        };
        let calls = Semaphore::new(CALLS);
        let link = Self { source, volatile_allowed, marks, state: RwLock::new(down), calls };
        let up = timeout_at(Instant::now() + FIRST_PATIENCE, link.connected(1)).await;
        *link.state.write().await =
            up.unwrap_or_else(|_| Err(failure(io::ErrorKind::TimedOut, "it did not answer")))?;
        Ok(link)
    }

    /// A connection of its own, for what would hold others up. It was not asked what it is.
    pub(super) async fn another(&self, answering: Duration) -> RedisResult<Connection> {
        self.source.connect(answering).await
    }

    /// Grows whenever the connection was made again.
    pub(super) async fn number(&self) -> u64 {
        match &*self.state.read().await {
            State::Up { number, .. } | State::Down { number, .. } => *number,
        }
    }

    /// How long writes may live only in memory; as if longest while there is no connection.
    pub(super) async fn sync(&self) -> Sync {
        match &*self.state.read().await {
            State::Up { sync, .. } => *sync,
            State::Down { .. } => Sync::Behind,
        }
    }

    /// Sends a command.
    pub(super) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        Ok(redis::from_redis_value(self.call(&Request::One(command)).await?)?)
    }

    /// Sends commands together; all of them lie in one slot.
    pub(super) async fn ask_all<T: FromRedisValue>(&self, commands: &Pipeline) -> RedisResult<T> {
        Ok(redis::from_redis_value(self.call(&Request::Many(commands)).await?)?)
    }

    /// Runs a script, and teaches it to a server that does not know it.
    pub(super) async fn run<T: FromRedisValue>(&self, script: &Lua, arguments: &Arguments) -> RedisResult<T> {
        match self.ask(&script.by_hash(arguments)).await {
            Err(e) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.ask(&script.by_text(arguments)).await
            }
            answer => answer,
        }
    }

    /// Notes that the store was seen, unless it has forgotten when it last was.
    pub(super) async fn mark(&self, now: shared::time::Timestamp) -> RedisResult<()> {
        let (connection, _) = self.connection().await;
        self.marks.check(&connection).await?.map_err(refused)?;
        self.marks.set(&connection, now).await
    }

    async fn call(&self, request: &Request<'_>) -> RedisResult<Value> {
        if let Some(older) = self.marks.older() {
            return Err(refused(older.clone()));
        }
        let Ok(_permit) = self.calls.try_acquire() else {
            return Err(failure(io::ErrorKind::ResourceBusy, "too many calls wait for it"));
        };
        match timeout_at(Instant::now() + PATIENCE, self.persist(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.why_late().await),
        }
    }

    /// Sends until there is an answer.
    async fn persist(&self, request: &Request<'_>) -> RedisResult<Value> {
        loop {
            let (mut connection, number) = self.connection().await;
            let answer = match request {
                Request::One(command) => connection.req_packed_command(command).await,
                Request::Many(commands) => {
                    commands.query_async::<Vec<Value>>(&mut connection).await.map(Value::Array)
                }
            };
            match answer.and_then(Value::extract_error) {
                Err(e) if is_broken(&connection, &e) => self.lost(number, e).await,
                answer => return answer,
            }
        }
    }

    /// The connection, as soon as there is one. Callers give up on their own.
    async fn connection(&self) -> (Connection, u64) {
        loop {
            let until = match &*self.state.read().await {
                State::Up { connection, number, .. } => return (connection.clone(), *number),
                State::Down { until, .. } => *until,
            };
            sleep_until(until).await;
            let mut state = self.state.write().await;
            if let State::Down { until, pause, number, .. } = *state
                && until <= Instant::now()
            {
                *state = self.connected(number + 1).await.unwrap_or_else(|why| {
                    tracing::warn!(error = %why, "cannot connect to Redis; trying again");
                    let until = Instant::now() + pause;
                    State::Down { why, until, pause: (2 * pause).min(PAUSES.1), number }
                });
            }
        }
    }

    /// Connects to a server that will do, and that is not older than it was.
    async fn connected(&self, number: u64) -> RedisResult<State> {
        let mut connection = self.source.connect(ANSWERING).await?;
        let sync = admit(&mut connection, self.volatile_allowed).await?.map_err(refused)?;
        self.marks.check(&connection).await?.map_err(refused)?;
        Ok(State::Up { connection, sync, number })
    }

    async fn lost(&self, lost: u64, why: RedisError) {
        let mut state = self.state.write().await;
        if let State::Up { number, .. } = *state
            && number == lost
        {
            tracing::warn!(error = %why, "lost the connection to Redis");
            *state = State::Down { why, until: Instant::now() + PAUSES.0, pause: PAUSES.0, number };
        }
    }

    async fn why_late(&self) -> RedisError {
        match &*self.state.read().await {
            State::Up { .. } => failure(io::ErrorKind::TimedOut, "it did not answer in time"),
            State::Down { why, .. } => why.clone(),
        }
    }
}

/// Whether another connection would do better. A cluster's finds its own way.
fn is_broken(connection: &Connection, error: &RedisError) -> bool {
    let Connection::One(_) = connection else { return false };
    let moved = matches!(
        error.kind(),
        ErrorKind::Server(
            ServerErrorKind::ReadOnly | ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown
        )
    );
    moved || error.is_io_error() || error.is_unrecoverable_error()
}

fn failure(kind: io::ErrorKind, why: &'static str) -> RedisError {
    io::Error::new(kind, why).into()
}

/// A Redis that answers, but will not do.
fn refused(why: impl std::error::Error + Send + std::marker::Sync + 'static) -> RedisError {
    io::Error::new(io::ErrorKind::Unsupported, why).into()
}
