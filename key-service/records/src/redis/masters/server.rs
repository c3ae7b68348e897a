//! A master, with a connection that is renewed after it breaks, and a deadline for every call.

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value, aio::ConnectionLike, cmd};
use shared::{backoff::Backoff, clock::Clock};
use shared_observe::failure_log::{FailureLog, Failures};
use tokio::{
    sync::{Mutex, Semaphore, SemaphorePermit, watch},
    task::yield_now,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    durability::{DurabilityWait, Live, Wanted},
    slots::{Members, host},
};
use crate::{
    records::Term,
    redis::{
        admission::{Admission, NotAdmitted, Sync, admit, field},
        connection::{ANSWERING, Connection, Source, is_broken, refused},
        key_space::KeySpace,
        schema,
        settings::Settings,
        watermark::{Watermark, rewriting::Rewriting},
    },
};

/// Timeout of a call, including reconnecting. It is half of the gateways' timeout of 3 s, so that a gateway gets an
/// error in time to ask another key-service. A quicker restart goes unnoticed; during a longer outage, requests are
/// answered 503.
pub(in crate::redis) const CALL_TIMEOUT: Duration = Duration::from_millis(1500);
/// Maximum number of calls to a master in flight or waiting; further calls are refused. Each holds a batch of a few
/// hundred kilobytes at most.
const CALLS: usize = 4096;
/// Timeout for writes to become durable, including the waits of earlier callers.
const SETTLING: Duration = Duration::from_secs(4);
/// Timeout of the first connection, and of each later one. Calls wait for it only until their own deadline.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a new connection waits for Redis to rewrite its append-only file. Calls wait for it too, and callers learn
/// the reason in time.
const REWRITING: Duration = Duration::from_millis(500);
/// The same for the first connection, before there are calls.
const FIRST_REWRITING: Duration = Duration::from_secs(4);
/// How long calls wait for a shard that is away. After that they are refused at once until it is back, so that they do
/// not delay calls to other shards.
const AWAITED: Duration = Duration::from_millis(500);
/// Minimum time between two lookups of a server that took over, since a master may be away for long.
const RENEWED_EVERY: Duration = Duration::from_millis(500);
/// Pauses between attempts to connect.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

/// What a connection to a master is checked for, and what is known about all masters.
pub(in crate::redis) struct Checks {
    pub(in crate::redis) volatile_allowed: bool,
    pub(in crate::redis) key_space: KeySpace,
    pub(in crate::redis) watermark: Watermark,
    pub(in crate::redis) clock: Arc<dyn Clock>,
    /// Whether the process serves, so that its connections are named accordingly.
    pub(in crate::redis) is_serving: bool,
    /// Number of replicas that must have a write before it is answered.
    pub(in crate::redis) replicas: u32,
    pub(in crate::redis) rewriting: Rewriting,
    /// The nodes of the cluster; empty for a single master.
    pub(super) members: Members,
    /// Number of the latest connection to any master.
    terms: AtomicU64,
    /// Set once the durability has been logged.
    logged: OnceLock<()>,
}

pub(in crate::redis) struct Server {
    /// Its address; empty for a single master.
    pub(in crate::redis) name: String,
    source: Source,
    checks: Arc<Checks>,
    state: watch::Sender<State>,
    calls: Semaphore,
    /// Failed attempts to connect.
    failures: FailureLog,
    durability: DurabilityWait,
    /// Time of the last lookup of a server that took over. It stays locked during a lookup.
    renewed: Mutex<Instant>,
}

enum State {
    Up(Arc<Live>),
    Down { why: RedisError, since: Instant },
}

impl Checks {
    pub(in crate::redis) fn new(
        key_space: KeySpace,
        watermark: Watermark,
        clock: Arc<dyn Clock>,
        settings: &Settings,
    ) -> Self {
        Self {
            volatile_allowed: settings.volatile_allowed,
            rewriting: Rewriting::new(settings.volatile_allowed, key_space.clone()),
            key_space,
            watermark,
            clock,
            is_serving: settings.is_marked,
            replicas: settings.wait_replicas,
            members: Members::default(),
            terms: AtomicU64::new(0),
            logged: OnceLock::new(),
        }
    }
}

impl Server {
    /// Creates a master without a connection. `name` is empty for a single master.
    pub(in crate::redis) fn new(name: String, source: Source, checks: Arc<Checks>) -> Arc<Self> {
        let why = failure(io::ErrorKind::NotConnected, "there is no connection yet");
        let state = watch::Sender::new(State::Down { why, since: Instant::now() });
        let (durability, renewed) = (DurabilityWait::new(checks.replicas), Mutex::new(Instant::now()));
        let (calls, failures) = (Semaphore::new(CALLS), FailureLog::new());
        Arc::new(Self { name, source, checks, state, calls, failures, durability, renewed })
    }

    /// Returns whether other masters still serve while this one is away.
    fn is_shard(&self) -> bool {
        !self.name.is_empty()
    }

    /// Returns the name for the log.
    fn shown(&self) -> Option<&str> {
        self.is_shard().then_some(&*self.name)
    }

    /// Counts a call until the permit is dropped. A call that is refused has done nothing.
    pub(in crate::redis) fn admit_call(&self) -> RedisResult<SemaphorePermit<'_>> {
        let busy = (ErrorKind::Server(ServerErrorKind::TryAgain), "too many calls are waiting for it");
        self.calls.try_acquire().map_err(|_| busy.into())
    }

    /// Returns whether there is a connection.
    pub(in crate::redis) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(_))
    }

    /// Returns the durability of answered writes; `None` while there is no connection.
    pub(in crate::redis) fn sync(&self) -> Option<Sync> {
        self.live().map(|live| live.server.sync)
    }

    /// Returns the current term; zero while there is no connection. Each new connection to any master begins a new
    /// term.
    pub(in crate::redis) fn term(&self) -> Term {
        self.live().map(|live| live.term).unwrap_or_default()
    }

    fn live(&self) -> Option<Arc<Live>> {
        match &*self.state.borrow() {
            State::Up(live) => Some(Arc::clone(live)),
            State::Down { .. } => None,
        }
    }

    /// Connects for the first time. Failures are returned to the caller; a server that is loading its data is also
    /// logged.
    pub(in crate::redis) async fn connect(&self) -> RedisResult<()> {
        let connected = self.try_to_connect(FIRST_REWRITING).await;
        connected.inspect_err(|failed| {
            if is_loading(failed) {
                self.log_failure(failed, false);
            }
        })
    }

    /// Connects in the background. Repeats until there is a connection or nobody uses the server any more.
    pub(in crate::redis) fn connect_again(self: &Arc<Self>) {
        let (server, clock) = (Arc::downgrade(self), Arc::clone(&self.checks.clock));
        tokio::spawn(async move {
            let mut pauses = PAUSES;
            while let Some(server) = server.upgrade() {
                let was_loading = is_loading(&server.why_late());
                match server.try_to_connect(REWRITING).await {
                    Ok(()) => {
                        if server.failures.succeeded().is_some() {
                            tracing::info!(server = server.shown(), "connected to Redis again");
                        }
                        return;
                    }
                    Err(failed) => server.log_failure(&failed, was_loading),
                }
                drop(server);
                sleep(pauses.pause(&*clock)).await;
            }
        });
    }

    async fn try_to_connect(&self, patience: Duration) -> RedisResult<()> {
        let late = || Err(failure(io::ErrorKind::TimedOut, "it did not answer"));
        // Boxed because the future of a whole start would otherwise nest too deeply.
        let connected = Box::pin(self.connected(patience));
        let connected = timeout(CONNECT_TIMEOUT, connected).await.unwrap_or_else(|_| late());
        let live = connected.inspect_err(|failed| {
            self.state.send_modify(|state| {
                if let State::Down { why, .. } = state {
                    *why = failed.clone();
                }
            });
        })?;
        self.state.send_replace(State::Up(Arc::new(live)));
        Ok(())
    }

    /// Connects to a server. It must have loaded its data, meet the requirements, have lost no data, and have rewritten
    /// its append-only file.
    async fn connected(&self, patience: Duration) -> RedisResult<Live> {
        let checks = &self.checks;
        let mut connection = self.source.connect(ANSWERING).await?;
        if self.is_shard() {
            checks.members.slots(&mut connection, host(&self.name)).await?;
        }
        let server = match admit(&connection, checks.volatile_allowed).await? {
            Admission::Admitted(server) => server,
            Admission::Loading => return Err(loading()),
            Admission::Refused(NotAdmitted::Replica) if self.is_shard() => {
                let why = "it has become a replica";
                return Err((ErrorKind::Server(ServerErrorKind::ReadOnly), why).into());
            }
            Admission::Refused(why) => return Err(refused(why)),
        };
        checks.watermark.check(&connection).await?;
        let whole = checks.rewriting.of(&connection, patience).await?;
        schema::check(&mut connection, &checks.key_space).await?;
        if let Some(run_id) = whole {
            checks.rewriting.note(&connection, run_id).await;
        }
        if checks.is_serving {
            let mut name = cmd("CLIENT");
            name.arg("SETNAME").arg(checks.key_space.connection());
            name.query_async::<()>(&mut connection).await?;
        }
        checks.logged.get_or_init(|| log_durability(server.sync));
        let term = Term(checks.terms.fetch_add(1, Ordering::Relaxed) + 1);
        Ok(Live { connection, term, server })
    }

    /// Waits for the connection, and returns it with its term. Callers set their own deadlines. Fails at once if a
    /// shard has been away for a while.
    pub(in crate::redis) async fn connection(&self) -> RedisResult<(Connection, Term)> {
        if let Some(live) = self.live() {
            return Ok((live.connection.clone(), live.term));
        }
        let mut states = self.state.subscribe();
        loop {
            let refused = match &*states.borrow_and_update() {
                State::Up(live) => return Ok((live.connection.clone(), live.term)),
                State::Down { why, since } => self.is_shard().then(|| (*since + AWAITED, why.clone())),
            };
            // The sender lives as long as the server.
            match refused {
                None => drop(states.changed().await),
                Some((from, why)) if from <= Instant::now() => {
                    // Yields, so that callers who repeat at once do not starve the connecting task.
                    yield_now().await;
                    return Err(why);
                }
                Some((from, _)) => drop(timeout_at(from, states.changed()).await),
            }
        }
    }

    /// Ends the connection of this term, and reconnects.
    pub(in crate::redis) fn lost(self: &Arc<Self>, lost: Term, why: RedisError) {
        let has_ended = self.state.send_if_modified(|state| {
            let is_over = matches!(state, State::Up(live) if live.term == lost);
            if is_over {
                tracing::warn!(error = %why, server = self.shown(), "lost the connection to Redis");
                *state = State::Down { why, since: Instant::now() };
            }
            is_over
        });
        if has_ended {
            self.connect_again();
        }
    }

    /// Connects once more to the address, or to the master that Sentinels name, at most every half second, since
    /// another server may have taken over. If so, ends this term's connection. Returns whether the call should be
    /// repeated.
    pub(in crate::redis) async fn renew(self: &Arc<Self>, term: Term) -> bool {
        let Ok(mut renewed) = self.renewed.try_lock() else { return false };
        let Some(live) = self.live().filter(|live| live.term == term) else { return true };
        if renewed.elapsed() < RENEWED_EVERY {
            return false;
        }
        *renewed = Instant::now();
        let Ok(mut fresh) = self.source.connect(ANSWERING).await else { return false };
        let info = cmd("INFO").arg("server").query_async::<String>(&mut fresh).await;
        let is_replaced = info.is_ok_and(|info| field(&info, "run_id") != live.server.run_id);
        if is_replaced {
            self.lost(term, failure(io::ErrorKind::ConnectionReset, "another server is the master"));
        }
        is_replaced
    }

    /// Sends a command to this server, whatever slots it has.
    pub(in crate::redis) async fn ask(self: &Arc<Self>, command: &Cmd) -> RedisResult<Value> {
        self.ask_on(
            |mut connection| async move { connection.req_packed_command(command).await?.extract_error() },
        )
        .await
    }

    /// Asks on the current connection, and again on the next one if it breaks, until the timeout of a call.
    pub(in crate::redis) async fn ask_on<T, F: Future<Output = RedisResult<T>>>(
        self: &Arc<Self>,
        ask: impl Fn(Connection) -> F,
    ) -> RedisResult<T> {
        let asked = async {
            loop {
                let (connection, term) = self.connection().await?;
                match ask(connection).await {
                    Err(e) if is_broken(&e) => self.lost(term, e),
                    answer => return answer,
                }
            }
        };
        match timeout(CALL_TIMEOUT, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(self.why_late()),
        }
    }

    /// Waits until all writes since a term began are durable.
    pub(in crate::redis) async fn settle(self: &Arc<Self>, wanted: Wanted) -> RedisResult<()> {
        let since = wanted.since;
        let passed = timeout(SETTLING, self.durability.pass(&self.source, || self.live(), wanted)).await;
        let late = || Err(failure(io::ErrorKind::TimedOut, "the write was not confirmed in time"));
        let settled = passed.unwrap_or_else(|_| late());
        if let Err(e) = &settled
            && e.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        {
            // Commits go to the new master from now on, even if the old one would still accept them.
            self.lost(since, e.clone());
        }
        settled
    }

    /// Returns an error that says why there was no answer in time.
    pub(in crate::redis) fn why_late(&self) -> RedisError {
        match &*self.state.borrow() {
            State::Up(_) => failure(io::ErrorKind::TimedOut, "it did not answer in time"),
            State::Down { why, .. } => why.clone(),
        }
    }

    /// Logs why there is no connection: once for a server that is not ready yet, otherwise once a minute.
    fn log_failure(&self, why: &RedisError, was_loading: bool) {
        let server = self.shown();
        match (is_loading(why), was_loading) {
            (true, true) => {}
            (true, false) => tracing::warn!(error = %why, server, "waiting for Redis"),
            (false, _) => {
                if let Some(Failures { count, seconds, .. }) = self.failures.failed() {
                    tracing::warn!(error = %why, server, count, seconds, "cannot connect to Redis; trying again");
                }
            }
        }
    }
}

/// Warns that charges may be lost after they were answered.
fn log_durability(sync: Sync) {
    if let Some(warning) = sync.warning() {
        tracing::warn!("{warning}");
    }
}

/// Returns the error for a server that is loading its data.
fn loading() -> RedisError {
    (ErrorKind::Server(ServerErrorKind::BusyLoading), "Redis is still loading its data").into()
}

pub(in crate::redis) fn is_loading(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::BusyLoading)
}

pub(in crate::redis) fn failure(kind: io::ErrorKind, why: &'static str) -> RedisError {
    io::Error::new(kind, why).into()
}
