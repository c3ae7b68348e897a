//! Client of Redis: a shared connection, which is renewed after a break, and a deadline for every call.

use std::{
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use redis::{
    Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind, Value, aio::ConnectionLike, cmd,
};
use shared::{backoff::Backoff, clock::Clock};
use shared_observe::traces::{Span, SpanKind};
use tokio::{
    sync::{Mutex, RwLock, Semaphore},
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    admission::{Admission, CommitServer, Sync, admit, run_id},
    connection::{ANSWERING, Connection, Source, is_broken, may_be_replaced, refused},
    failover::{Losses, Masters},
    key_space::KeySpace,
    request::described,
    schema,
    watermark::Watermark,
    watermark::rewriting::Rewriting,
};
use crate::{latency::timed, records::Term};

/// Longest time of a call, reconnecting included. It is half of the gateways' timeout of 3 s, so that a gateway gets an
/// error in time to ask another key-service. A quicker restart goes unnoticed; during a longer outage, requests are
/// answered 503.
const CALL_TIMEOUT: Duration = Duration::from_millis(1500);
/// Longest time of the first connection and of a mark, for which no call waits.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait of a new connection, and of a commit, until Redis has written its append-only file anew. Calls that come
/// meanwhile wait as well, and callers hear the reason in time.
const REWRITING: Duration = Duration::from_millis(500);
/// The same for the first connection, for which no call waits.
const FIRST_REWRITING: Duration = Duration::from_secs(4);
/// Shortest time between two looks for the master, which may be down for long.
const RENEWED_EVERY: Duration = Duration::from_millis(500);
/// Number of calls in flight or waiting; further calls are refused. Each holds a batch of some hundred kilobytes at
/// most.
const CALLS: usize = 4096;
/// Pauses before connecting again after a failure.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

/// Client of the configured Redis, which reconnects after a broken connection.
pub(super) struct Client {
    source: Source,
    volatile_allowed: bool,
    key_space: KeySpace,
    rewriting: Rewriting,
    watermark: Watermark,
    masters: Masters,
    clock: Arc<dyn Clock>,
    state: RwLock<ConnectionState>,
    /// Time of the last look for the master. It is locked during a look.
    renewed: Mutex<Instant>,
    calls: Semaphore,
    /// Set once the durability was logged.
    logged: OnceLock<()>,
}

/// The state of the connection.
enum ConnectionState {
    Up {
        connection: Connection,
        sync: Sync,
        /// Number of the connection, increased by every reconnection.
        number: u64,
        run_id: String,
    },
    Down {
        why: RedisError,
        /// The next attempt to connect.
        until: Instant,
        backoff: Backoff,
        number: u64,
    },
}

impl Client {
    /// Connects for the first time. Calls wait for a server that is loading its data; any other error is final.
    pub(super) async fn connect(
        source: Source,
        volatile_allowed: bool,
        key_space: KeySpace,
        watermark: Watermark,
        clock: Arc<dyn Clock>,
    ) -> RedisResult<Self> {
        let late = || failure(io::ErrorKind::TimedOut, "it did not answer");
        let (until, backoff) = (Instant::now(), PAUSES);
        let down = ConnectionState::Down { why: late(), until, backoff, number: 0 };
        let (state, calls, logged) = (RwLock::new(down), Semaphore::new(CALLS), OnceLock::new());
        let (renewed, masters) = (Mutex::new(Instant::now()), Masters::default());
        let rewriting = Rewriting::new(volatile_allowed, key_space.clone());
        let client = Self {
            source,
            volatile_allowed,
            key_space,
            rewriting,
            watermark,
            masters,
            clock,
            state,
            renewed,
            calls,
            logged,
        };
        let up = timeout_at(Instant::now() + CONNECT_TIMEOUT, client.connected(1, FIRST_REWRITING)).await;
        match up.unwrap_or_else(|_| Err(late())) {
            Ok(up) => *client.state.write().await = up,
            Err(why) if is_loading(&why) => {
                log_failure(&why, false);
                let (until, backoff) = (Instant::now(), PAUSES);
                let down = ConnectionState::Down { why, until, backoff, number: 0 };
                *client.state.write().await = down;
            }
            Err(why) => return Err(why),
        }
        Ok(client)
    }

    /// Opens a separate, unchecked connection for commands that would delay others.
    pub(super) async fn another(&self, answering: Duration) -> RedisResult<Connection> {
        self.source.connect(answering).await
    }

    /// The server that commits go to. Each reconnection begins a term.
    pub(super) async fn server(&self) -> CommitServer {
        match &*self.state.read().await {
            ConnectionState::Up { number, run_id, sync, .. } => {
                CommitServer { term: Term(*number), run_id: run_id.clone(), sync: Some(*sync) }
            }
            ConnectionState::Down { number, .. } => {
                CommitServer { term: Term(*number), ..CommitServer::default() }
            }
        }
    }

    /// The present term, or none while a connection is made. It does not wait, since its callers have no deadline yet.
    pub(super) fn term(&self) -> Term {
        match self.state.try_read().as_deref() {
            Ok(ConnectionState::Up { number, .. } | ConnectionState::Down { number, .. }) => Term(*number),
            Err(_) => Term::default(),
        }
    }

    /// Returns whether there is a connection.
    pub(super) async fn is_up(&self) -> bool {
        matches!(&*self.state.read().await, ConnectionState::Up { .. })
    }

    /// Durability of answered writes; the least safe while there is no connection.
    pub(super) async fn sync(&self) -> Sync {
        match &*self.state.read().await {
            ConnectionState::Up { sync, .. } => *sync,
            ConnectionState::Down { .. } => Sync::Behind,
        }
    }

    pub(super) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let _timed = timed("command");
        Ok(redis::from_redis_value(self.call(command).await?)?)
    }

    /// Runs a script by its hash, and by its text on a server that lacks it. Such a server may have been started without
    /// our notice, behind the connection to a cluster. `key` is one of the script's.
    pub(super) async fn run(
        &self,
        key: &[u8],
        by_hash: &Cmd,
        by_text: impl FnOnce() -> Cmd,
    ) -> RedisResult<Value> {
        let _timed = timed("script");
        let run = async {
            match self.call(by_hash).await {
                Err(e) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    self.in_time(async |connection| self.rewriting.of_key(&connection, key, REWRITING).await)
                        .await?;
                    self.call(&by_text()).await
                }
                answer => answer,
            }
        };
        match timeout_at(Instant::now() + CALL_TIMEOUT, run).await {
            Ok(answer) => answer,
            Err(_) => Err(self.why_late().await),
        }
    }

    /// Marks the store as seen, unless too many earlier marks are lost. Returns the losses since the last mark. `now`
    /// counts only for the process's first mark.
    pub(super) async fn mark(&self, now: shared::time::Timestamp) -> RedisResult<Losses> {
        match timeout_at(Instant::now() + CONNECT_TIMEOUT, self.set_mark(now)).await {
            Ok(losses) => losses,
            Err(_) => Err(self.why_late().await),
        }
    }

    async fn set_mark(&self, now: shared::time::Timestamp) -> RedisResult<Losses> {
        let (mut connection, number) = self.connection().await;
        // A master that is cut off from its replicas and Sentinels answers all the same.
        if matches!(connection, Connection::One(_)) && self.renew(number).await {
            (connection, _) = self.connection().await;
        }
        let checked = self.watermark.check(&connection).await?;
        self.rewriting.of_all(&connection, REWRITING).await?;
        // Each time, since a cluster's connection is replaced without our notice.
        let mut name = cmd("CLIENT");
        name.arg("SETNAME").arg(self.key_space.connection());
        connection.ask_masters(name).await?;
        self.masters.look(&connection, &self.key_space, !checked.forgotten.is_zero(), now).await?;
        self.watermark.set(&connection, &checked, now).await?;
        Ok(Losses { promoted: self.masters.take_promoted(), forgotten: checked.forgotten })
    }

    /// Asks every master, and returns each answer.
    pub(super) async fn ask_masters(&self, command: Cmd) -> RedisResult<Vec<Value>> {
        self.in_time(|mut connection| async move { connection.ask_masters(command).await }).await
    }

    /// Lists the addresses of all masters, in order. A server that is alone has an empty one.
    pub(super) async fn masters(&self) -> RedisResult<Vec<String>> {
        self.in_time(|mut connection| async move { connection.masters().await }).await
    }

    /// Asks the master at an address.
    pub(super) async fn ask_at(&self, master: &str, command: Cmd) -> RedisResult<Value> {
        self.in_time(|mut connection| async move { connection.ask_at(master, command).await }).await
    }

    /// Uses the connection for as long as a call may take.
    pub(super) async fn in_time<T, F: Future<Output = RedisResult<T>>>(
        &self,
        ask: impl FnOnce(Connection) -> F,
    ) -> RedisResult<T> {
        let asked = async { ask(self.connection().await.0).await };
        match timeout_at(Instant::now() + CALL_TIMEOUT, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(self.why_late().await),
        }
    }

    async fn call(&self, command: &Cmd) -> RedisResult<Value> {
        if let Some(older) = self.watermark.older() {
            return Err(refused(older.clone()));
        }
        let Ok(_permit) = self.calls.try_acquire() else {
            return Err(failure(io::ErrorKind::ResourceBusy, "too many calls wait for it"));
        };
        let span = Span::current().child(SpanKind::Client, || described(command));
        let answer = match timeout_at(Instant::now() + CALL_TIMEOUT, self.persist(command)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.why_late().await),
        };
        if answer.is_err() {
            span.fail("store");
        }
        answer
    }

    /// Repeats a command until there is an answer. It may be repeated: if a commit was carried out, its own guards fail the
    /// second time.
    async fn persist(&self, command: &Cmd) -> RedisResult<Value> {
        loop {
            let (mut connection, number) = self.connection().await;
            let answer = connection.req_packed_command(command).await;
            match answer.and_then(Value::extract_error) {
                Err(e) if is_broken(&connection, &e) => self.lost(Term(number), e).await,
                Err(e) if may_be_replaced(&e) => {
                    if !self.renew(number).await {
                        return Err(e);
                    }
                }
                answer => return answer,
            }
        }
    }

    /// Waits for the connection. Callers have their own deadlines.
    async fn connection(&self) -> (Connection, u64) {
        loop {
            let until = match &*self.state.read().await {
                ConnectionState::Up { connection, number, .. } => return (connection.clone(), *number),
                ConnectionState::Down { until, .. } => *until,
            };
            sleep_until(until).await;
            let mut state = self.state.write().await;
            if let ConnectionState::Down { until, backoff, number, .. } = *state
                && until <= Instant::now()
            {
                let was_loading = matches!(&*state, ConnectionState::Down { why, .. } if is_loading(why));
                *state = self.connected(number + 1, REWRITING).await.unwrap_or_else(|why| {
                    log_failure(&why, was_loading);
                    let mut backoff = backoff;
                    let until = Instant::now() + backoff.pause(&*self.clock);
                    ConnectionState::Down { why, until, backoff, number }
                });
            }
        }
    }

    /// Connects to a server that has loaded its data, meets the requirements, has lost no data, and has written its
    /// append-only file anew.
    async fn connected(&self, number: u64, patience: Duration) -> RedisResult<ConnectionState> {
        let mut connection = self.source.connect(ANSWERING).await?;
        let sync = match admit(&mut connection, self.volatile_allowed).await? {
            Admission::Admitted(sync) => sync,
            Admission::Loading => return Err(loading()),
            Admission::Refused(why) => return Err(refused(why)),
        };
        self.watermark.check(&connection).await?;
        self.rewriting.of_all(&connection, patience).await?;
        schema::check(&mut connection, &self.key_space).await?;
        self.logged.get_or_init(|| log_durability(sync));
        let run_id = run_id(&mut connection).await?;
        Ok(ConnectionState::Up { connection, sync, number, run_id })
    }

    /// Ends the connection of this term, so that the next call connects anew.
    pub(super) async fn lost(&self, lost: Term, why: RedisError) {
        let mut state = self.state.write().await;
        if let ConnectionState::Up { number, .. } = *state
            && Term(number) == lost
        {
            tracing::warn!(error = %why, "lost the connection to Redis");
            let mut backoff = PAUSES;
            let until = Instant::now() + backoff.pause(&*self.clock);
            *state = ConnectionState::Down { why, until, backoff, number };
        }
    }

    /// Looks for the master again, by Sentinels, the cluster's nodes, or the address: another server may have taken over. A
    /// cluster's connection is replaced, since it might otherwise look for its masters only much later. Returns whether the
    /// call is worth another attempt.
    async fn renew(&self, lost: u64) -> bool {
        let Ok(mut renewed) = self.renewed.try_lock() else { return false };
        if self.server().await.term != Term(lost) || !self.is_up().await {
            return true;
        }
        if renewed.elapsed() < RENEWED_EVERY {
            return false;
        }
        *renewed = Instant::now();
        // Calls to the other masters use the old connection in the meantime.
        let Ok(mut fresh) = self.source.connect(ANSWERING).await else { return false };
        if let Connection::One(_) = fresh {
            let Ok(found) = run_id(&mut fresh).await else { return false };
            let is_replaced = found != self.server().await.run_id;
            if is_replaced {
                let why = failure(io::ErrorKind::ConnectionReset, "another server is the master");
                self.lost(Term(lost), why).await;
            }
            return is_replaced;
        }
        if let ConnectionState::Up { connection, number, .. } = &mut *self.state.write().await
            && *number == lost
        {
            tracing::warn!("connected to the cluster anew");
            *connection = fresh;
            *number += 1;
        }
        true
    }

    async fn why_late(&self) -> RedisError {
        match &*self.state.read().await {
            ConnectionState::Up { .. } => failure(io::ErrorKind::TimedOut, "it did not answer in time"),
            ConnectionState::Down { why, .. } => why.clone(),
        }
    }
}

/// Warns that charges may be lost after they were answered.
fn log_durability(sync: Sync) {
    if let Some(warning) = sync.warning() {
        tracing::warn!("{warning}");
    }
}

/// Error of a server that is loading its file.
fn loading() -> RedisError {
    (ErrorKind::Server(ServerErrorKind::BusyLoading), "Redis still loads its data").into()
}

fn is_loading(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::BusyLoading)
}

/// Logs why there is no connection. A server that is not ready yet is logged only once.
fn log_failure(why: &RedisError, was_loading: bool) {
    match (is_loading(why), was_loading) {
        (true, true) => {}
        (true, false) => tracing::warn!(error = %why, "waiting for Redis"),
        (false, _) => tracing::warn!(error = %why, "cannot connect to Redis; trying again"),
    }
}

fn failure(kind: io::ErrorKind, why: &'static str) -> RedisError {
    io::Error::new(kind, why).into()
}
