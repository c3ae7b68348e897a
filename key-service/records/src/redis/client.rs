//! Client of Redis: finds the master of each request, and repeats the request until there is an answer.

use std::{io, sync::Arc, time::Duration};

use futures_util::future::join_all;
use redis::{Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, ServerErrorKind, Value, cmd};
use shared::time::Timestamp;
use shared_observe::traces::{Span, SpanKind};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    admission::Sync,
    connection::{RedisOrigin, is_broken, may_pass, refused},
    failover::{Losses, Masters},
    masters::{
        Wanted,
        cluster::{Cluster, Redirection},
        server::{CALL_TIMEOUT, Checks, Server, failure, is_loading},
    },
    request::RedisRequest,
};
use crate::{
    latency::timed,
    records::{Durability, MissingServers, Term},
};

/// Longest time of a mark, for which no call waits.
const MARKING: Duration = Duration::from_secs(5);
/// Redirections that a call follows while a cluster moves slots.
const REDIRECTIONS: u32 = 32;
/// Pause before a request is repeated that no node of a cluster can answer at the moment.
const LATER: Duration = Duration::from_millis(20);
/// Number of calls in flight or waiting; further calls are refused. Each holds a batch of some hundred kilobytes at
/// most.
const CALLS: usize = 4096;

/// Client of the configured Redis.
pub(super) struct Client {
    serving: Serving,
    checks: Arc<Checks>,
    seen: Masters,
    calls: Semaphore,
}

/// The masters that serve the store.
enum Serving {
    One(Arc<Server>),
    Cluster(Arc<Cluster>),
}

impl Client {
    /// Connects for the first time. A server that loads its data is waited for, and so is a shard while others are there;
    /// any other error is final.
    pub(super) async fn connect(origin: RedisOrigin, checks: Checks) -> RedisResult<Self> {
        let checks = Arc::new(checks);
        let serving = match origin {
            RedisOrigin::One(source) => Serving::One(Server::new(String::new(), source, Arc::clone(&checks))),
            RedisOrigin::Cluster(nodes) => Serving::Cluster(Cluster::find(nodes, Arc::clone(&checks)).await?),
        };
        let masters = serving.masters();
        let connected = join_all(masters.iter().map(|master| master.connect())).await;
        let is_any_up = masters.iter().any(|master| master.is_up());
        for (master, connected) in masters.iter().zip(connected) {
            match connected {
                Ok(()) => {}
                Err(e) if is_loading(&e) || (is_any_up && may_pass(&e)) => master.connect_again(),
                Err(e) => return Err(e),
            }
        }
        Ok(Self { serving, checks, seen: Masters::default(), calls: Semaphore::new(CALLS) })
    }

    /// All masters, in the order of their addresses.
    pub(super) fn masters(&self) -> Vec<Arc<Server>> {
        self.serving.masters()
    }

    /// Returns whether there is a connection to any master.
    pub(super) fn is_up(&self) -> bool {
        self.masters().iter().any(|master| master.is_up())
    }

    /// The term of the master that has a name.
    pub(super) fn term(&self, key: &[u8]) -> Term {
        self.serving.master_of(key).map(|master| master.term()).unwrap_or_default()
    }

    /// Durability of answered writes, that of the least safe master.
    pub(super) fn sync(&self) -> Sync {
        self.masters().iter().filter_map(|master| master.sync()).max().unwrap_or(Sync::Behind)
    }

    pub(super) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let _timed = timed("command");
        Ok(redis::from_redis_value(self.call(&RedisRequest::One(command)).await?)?)
    }

    /// Sends commands together, all in the same slot.
    pub(super) async fn ask_all<T: FromRedisValue>(&self, commands: &Pipeline) -> RedisResult<T> {
        let _timed = timed("command");
        Ok(redis::from_redis_value(self.call(&RedisRequest::Many(commands)).await?)?)
    }

    /// Runs a script by its hash, and by its text on a server that lacks it.
    pub(super) async fn run(&self, by_hash: &Cmd, by_text: impl FnOnce() -> Cmd) -> RedisResult<Value> {
        let _timed = timed("script");
        match self.call(&RedisRequest::One(by_hash)).await {
            Err(e) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.call(&RedisRequest::One(&by_text())).await
            }
            answer => answer,
        }
    }

    /// Asks every master, and fails if one does not answer.
    pub(super) async fn ask_masters(&self, command: &Cmd) -> RedisResult<Vec<Value>> {
        self.answers(command).await.into_iter().collect()
    }

    /// Asks every master. Fails if none answers.
    pub(super) async fn ask_those_there(&self, command: &Cmd) -> RedisResult<Vec<Value>> {
        let (there, away): (Vec<_>, Vec<_>) =
            self.answers(command).await.into_iter().partition(Result::is_ok);
        match away.into_iter().next() {
            Some(failed) if there.is_empty() => failed.map(|answer| vec![answer]),
            Some(_) | None => there.into_iter().collect(),
        }
    }

    async fn answers(&self, command: &Cmd) -> Vec<RedisResult<Value>> {
        join_all(self.masters().iter().map(|master| master.ask(command))).await
    }

    /// Asks something of every master at once. Succeeds if it does of one, and names the others.
    pub(super) async fn each<F: Future<Output = RedisResult<()>>>(
        &self,
        ask: impl Fn(Arc<Server>) -> F,
    ) -> RedisResult<MissingServers> {
        let masters = self.masters();
        let answers = join_all(masters.iter().map(|master| ask(Arc::clone(master)))).await;
        let is_any_there = answers.iter().any(Result::is_ok);
        let mut missing = Vec::new();
        for (master, answer) in masters.iter().zip(answers) {
            if let Err(e) = answer {
                if !is_any_there {
                    self.serving.look_soon();
                    return Err(e);
                }
                missing.push(format!("{} ({e})", master.name));
            }
        }
        if let Serving::Cluster(cluster) = &self.serving
            && cluster.uncovered() > 0
        {
            missing.push(format!("{} slots that no node has", cluster.uncovered()));
        }
        if !missing.is_empty() {
            self.serving.look_soon();
        }
        Ok(MissingServers(missing))
    }

    /// Returns whether a master has the slot of a name.
    pub(super) fn is_of(&self, master: &Arc<Server>, key: &[u8]) -> bool {
        self.serving.master_of(key).is_ok_and(|found| Arc::ptr_eq(&found, master))
    }

    /// Returns when all earlier writes to the slot of `write` are durable, which were made since this term began. It
    /// repeats `write` for this, so `write` must be idempotent. Fails if the term is over.
    pub(super) async fn settle(&self, write: Cmd, durability: Durability, since: Term) -> RedisResult<()> {
        let master = self.serving.master_of(RedisRequest::One(&write).key())?;
        let settled = master.settle(Wanted { write, durability, since }).await;
        if settled.is_err() {
            self.serving.look_soon();
        }
        settled
    }

    /// Marks the store as seen, unless too many earlier marks are lost. Returns the losses since the last mark. `now`
    /// counts only for the process's first mark. Masters that are away are left out, unless all are.
    pub(super) async fn mark(&self, now: Timestamp) -> RedisResult<Losses> {
        let late = || failure(io::ErrorKind::TimedOut, "it did not answer in time");
        timeout(MARKING, self.set_marks(now)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn set_marks(&self, now: Timestamp) -> RedisResult<Losses> {
        let watermark = &self.checks.watermark;
        let masters = self.masters();
        let checked = join_all(masters.iter().map(async |master| {
            let (mut connection, _) = master.in_time(master.connection()).await?;
            let checked = watermark.check(&connection).await?;
            let info = cmd("INFO").arg("replication").query_async::<String>(&mut connection).await?;
            RedisResult::Ok((connection, checked, info))
        }));
        let checked = self.of_those_there(&masters, checked.await)?;
        let forgotten = checked.iter().map(|(_, checked, _)| checked.forgotten).max().unwrap_or_default();
        let count = watermark.next(checked.iter().map(|(_, checked, _)| checked.count), now);
        let set = join_all(checked.iter().map(|(connection, ..)| watermark.set(connection, count))).await;
        // A master that refuses the mark keeps its count, and readiness says why.
        if !set.iter().any(Result::is_ok) {
            return set.into_iter().collect::<RedisResult<()>>().map(|()| Losses::default());
        }
        watermark.keep().await?;
        // This comes last, so that after a failed mark the next one reports the promotion.
        let infos: Vec<_> = checked.into_iter().map(|(_, _, info)| info).collect();
        Ok(Losses { promoted: self.seen.look(&infos), forgotten })
    }

    /// Leaves out what failed because its master is away.
    fn of_those_there<T>(&self, masters: &[Arc<Server>], asked: Vec<RedisResult<T>>) -> RedisResult<Vec<T>> {
        let is_any_there = asked.iter().any(Result::is_ok);
        let mut there = Vec::new();
        for (master, asked) in masters.iter().zip(asked) {
            match asked {
                Ok(found) => there.push(found),
                Err(e) if is_any_there && (is_broken(&e) || !master.is_up()) && may_pass(&e) => {
                    self.serving.look_soon();
                }
                Err(e) => return Err(e),
            }
        }
        Ok(there)
    }

    async fn call(&self, request: &RedisRequest<'_>) -> RedisResult<Value> {
        if let Some(older) = self.checks.watermark.older() {
            return Err(refused(older.clone()));
        }
        let Ok(_permit) = self.calls.try_acquire() else {
            return Err(failure(io::ErrorKind::ResourceBusy, "too many calls wait for it"));
        };
        let span = Span::current().child(SpanKind::Client, || request.described());
        let answer = match timeout_at(Instant::now() + CALL_TIMEOUT, self.persist(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.serving.why_late(request.key())),
        };
        if answer.is_err() {
            span.fail("store");
        }
        answer
    }

    /// Repeats a request until there is an answer, wherever the slot is by then.
    async fn persist(&self, request: &RedisRequest<'_>) -> RedisResult<Value> {
        let (mut arriving, mut redirections) = (None, 0);
        loop {
            let is_arriving = arriving.is_some();
            let master = match arriving.take() {
                Some(master) => master,
                None => self.serving.master_of(request.key()).inspect_err(|_| self.serving.look_soon())?,
            };
            let (mut connection, term) =
                master.connection().await.inspect_err(|_| self.serving.look_soon())?;
            match request.ask(&mut connection, is_arriving).await {
                Err(e) if is_broken(&e) => {
                    master.lost(term, e);
                    self.serving.look().await;
                }
                Err(e) if redirections < REDIRECTIONS => {
                    let Some(redirection) = Redirection::of(&e) else { return Err(e) };
                    redirections += 1;
                    arriving = self.serving.follow(&master, redirection).await?;
                }
                answer => return answer,
            }
        }
    }
}

impl Serving {
    fn masters(&self) -> Vec<Arc<Server>> {
        match self {
            Self::One(master) => vec![Arc::clone(master)],
            Self::Cluster(cluster) => cluster.masters(),
        }
    }

    fn master_of(&self, key: &[u8]) -> RedisResult<Arc<Server>> {
        match self {
            Self::One(master) => Ok(Arc::clone(master)),
            Self::Cluster(cluster) => cluster.master_of(key),
        }
    }

    /// Finds out which masters have which slots by now.
    async fn look(&self) {
        match self {
            Self::One(_) => {}
            Self::Cluster(cluster) => cluster.look().await,
        }
    }

    /// Does the same in the background.
    fn look_soon(&self) {
        match self {
            Self::One(_) => {}
            Self::Cluster(cluster) => cluster.look_soon(),
        }
    }

    /// Follows a redirection. Returns the node that takes over the slot, if the next request goes there and only that one.
    async fn follow(&self, from: &Arc<Server>, redirection: Redirection) -> RedisResult<Option<Arc<Server>>> {
        match (self, redirection) {
            (Self::Cluster(cluster), Redirection::Moved(slot, to)) => {
                cluster.moved(slot, &cluster.redirected(from, &to)?);
                cluster.look_soon();
                Ok(None)
            }
            (Self::Cluster(cluster), Redirection::Arriving(to)) => cluster.redirected(from, &to).map(Some),
            (Self::One(_), Redirection::Moved(..) | Redirection::Arriving(_)) => {
                let why = "it is a node of a cluster: set FAREGATE_STORE to redis+cluster://…";
                Err((ErrorKind::InvalidClientConfig, why).into())
            }
            (Self::One(_) | Self::Cluster(_), Redirection::Later) => {
                self.look_soon();
                sleep(LATER).await;
                Ok(None)
            }
        }
    }

    fn why_late(&self, key: &[u8]) -> RedisError {
        self.master_of(key).map_or_else(|e| e, |master| master.why_late())
    }
}
