//! The client of Redis. It finds the master for each request, and repeats the request until there is an answer.

use std::{io, sync::Arc, time::Duration};

use futures_util::future::join_all;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisResult, ServerErrorKind, Value};
use shared::time::Timestamp;
use shared_observe::traces::{Span, SpanKind};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    admission::Sync,
    connection::{RedisOrigin, is_broken, may_be_replaced, may_pass, refused},
    failover::{self, Losses, MasterState, Masters},
    masters::{
        Wanted,
        cluster::Redirection,
        server::{CALL_TIMEOUT, Checks, Server, failure, is_loading},
        serving::Serving,
    },
    request,
    watermark::Checked,
};
use crate::{
    latency::timed,
    records::{Durability, MissingServers, Term},
};

/// Timeout of a mark. No call waits for a mark.
const MARKING: Duration = Duration::from_secs(5);
/// Maximum number of redirections in a row that a call follows while a cluster moves slots.
const REDIRECTIONS: u32 = 32;
/// Whether a master was asked to do something. If not, it was only asked whether it is there.
pub(super) struct Served(pub(super) bool);

/// Client of the configured Redis.
pub(super) struct Client {
    serving: Serving,
    checks: Arc<Checks>,
    seen: Masters,
}

impl Client {
    /// Connects for the first time. If a server is loading its data, or a shard is away while others answer, connecting
    /// continues in the background. Any other error is returned.
    pub(super) async fn connect(origin: RedisOrigin, checks: Checks) -> RedisResult<Self> {
        let checks = Arc::new(checks);
        let serving = Serving::find(origin, Arc::clone(&checks)).await?;
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
        Ok(Self { serving, checks, seen: Masters::default() })
    }

    /// Returns all masters, sorted by address.
    pub(super) fn masters(&self) -> Vec<Arc<Server>> {
        self.serving.masters()
    }

    /// Returns whether there is a connection to any master.
    pub(super) fn is_up(&self) -> bool {
        self.masters().iter().any(|master| master.is_up())
    }

    /// Returns the term of the master that has this name's slot.
    pub(super) fn term(&self, key: &[u8]) -> Term {
        self.serving.master_of(key).map(|master| master.term()).unwrap_or_default()
    }

    /// Returns how durable answered writes are on the least safe master.
    pub(super) fn sync(&self) -> Sync {
        self.masters().iter().filter_map(|master| master.sync()).max().unwrap_or(Sync::Behind)
    }

    pub(super) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let _timed = timed("command");
        Ok(redis::from_redis_value(self.call(command).await?)?)
    }

    /// Runs a script by its hash, or by its text on a server that does not know it.
    pub(super) async fn run(&self, by_hash: &Cmd, by_text: impl FnOnce() -> Cmd) -> RedisResult<Value> {
        let _timed = timed("script");
        let run = async {
            match self.call(by_hash).await {
                Err(e) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    self.call(&by_text()).await
                }
                answer => answer,
            }
        };
        match timeout_at(Instant::now() + CALL_TIMEOUT, run).await {
            Ok(answer) => answer,
            Err(_) => Err(self.serving.why_late(request::key(by_hash))),
        }
    }

    /// Sends a command to every master. Fails if one of them does not answer.
    pub(super) async fn ask_masters(&self, command: &Cmd) -> RedisResult<Vec<Value>> {
        self.answers(command).await.into_iter().collect()
    }

    /// Sends a command to every master, and returns the answers that arrive. Fails if no master answers.
    pub(super) async fn ask_those_there(&self, command: &Cmd) -> RedisResult<Vec<Value>> {
        those_there(self.answers(command).await)
    }

    async fn answers(&self, command: &Cmd) -> Vec<RedisResult<Value>> {
        join_all(self.masters().iter().map(|master| master.ask(command))).await
    }

    /// Asks all masters at the same time. Succeeds if at least one master did what it was asked, and returns the
    /// masters that failed.
    pub(super) async fn each<F: Future<Output = RedisResult<Served>>>(
        &self,
        ask: impl Fn(Arc<Server>) -> F,
    ) -> RedisResult<MissingServers> {
        let masters = self.masters();
        let answers = join_all(masters.iter().map(|master| ask(Arc::clone(master)))).await;
        let is_any_there = answers.iter().any(|answer| matches!(answer, Ok(Served(true))));
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
        let uncovered = self.serving.uncovered();
        if uncovered > 0 {
            missing.push(format!("{uncovered} slots that no node has"));
        }
        if !missing.is_empty() {
            self.serving.look_soon();
        }
        Ok(MissingServers(missing))
    }

    /// Returns whether a master has the slot of this name.
    pub(super) fn is_of(&self, master: &Arc<Server>, key: &[u8]) -> bool {
        self.serving.master_of(key).is_ok_and(|found| Arc::ptr_eq(&found, master))
    }

    /// Waits until all writes to the slot of `write` since this term began are durable. Sends `write` itself for this,
    /// so `write` must be idempotent. Fails if the term is over.
    pub(super) async fn settle(&self, write: Cmd, durability: Durability, since: Term) -> RedisResult<()> {
        let master = self.serving.master_of(request::key(&write))?;
        let is_leaving = self.serving.is_leaving(request::key(&write));
        let settled = master.settle(Wanted { write, durability, since, is_leaving }).await;
        if settled.is_err() {
            self.serving.look_soon();
        }
        settled
    }

    /// Marks the store as seen, unless too many earlier marks are lost. Returns the losses since the last mark. The
    /// process's first mark is `now`. Skips masters that are away, and fails if all masters are away.
    pub(super) async fn mark(&self, now: Timestamp) -> RedisResult<Losses> {
        let late = || failure(io::ErrorKind::TimedOut, "it did not answer in time");
        timeout(MARKING, self.set_marks(now)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn set_marks(&self, now: Timestamp) -> RedisResult<Losses> {
        // This asks Sentinels or the other masters who the masters are: a master that is cut off from them and from its
        // replicas still answers us.
        self.serving.renew().await;
        let (watermark, masters) = (&self.checks.watermark, self.masters());
        let looked = join_all(masters.iter().map(|master| self.look_at(master))).await;
        let there = self.of_those_there(&masters, looked)?;
        let forgotten = there.iter().map(|(checked, _)| checked.forgotten).max().unwrap_or_default();
        let mark = watermark.next(now);
        let is_complete = there.len() == masters.len() && self.serving.uncovered() == 0;
        let (checked, there): (Vec<_>, Vec<_>) = there.into_iter().unzip();
        self.seen.look(&there, &self.checks.key_space, now, is_complete).await?;
        let set = there
            .iter()
            .zip(&checked)
            .map(|(master, checked)| watermark.set(&master.connection, checked, mark));
        let set = join_all(set).await;
        // A master that refuses the mark keeps its previous mark, and readiness reports the reason.
        if !set.iter().any(Result::is_ok) {
            return set.into_iter().collect::<RedisResult<()>>().map(|()| Losses::default());
        }
        watermark.keep().await?;
        // The number of promotions is taken last, so that the next mark reports it if this mark fails.
        Ok(Losses { promoted: self.seen.take_promoted(), forgotten })
    }

    /// Compares the mark at a master with the last mark that it confirmed, and asks for the master's state.
    async fn look_at(&self, master: &Arc<Server>) -> RedisResult<(Checked, MasterState)> {
        let watermark = &self.checks.watermark;
        master
            .ask_on(|connection| async move {
                let checked = watermark.check(&connection).await?;
                let has_forgotten = !checked.forgotten.is_zero();
                Ok((checked, MasterState::ask(connection, has_forgotten).await?))
            })
            .await
    }

    /// Returns the states of all masters that answer. Fails if no master answers.
    async fn states(&self) -> RedisResult<Vec<MasterState>> {
        let masters = self.masters();
        let ask = |master: &Arc<Server>| {
            let master = Arc::clone(master);
            async move { master.ask_on(|connection| MasterState::ask(connection, false)).await }
        };
        those_there(join_all(masters.iter().map(ask)).await)
    }

    /// Returns a warning if there are masters that have replicas but would accept writes without them.
    pub(super) async fn warning(&self) -> RedisResult<Option<&'static str>> {
        Ok(failover::warning(&self.states().await?))
    }

    /// Returns the times after which writes may have been lost, in milliseconds, earliest first. Skips masters that are
    /// away, and fails if all masters are away.
    pub(super) async fn losses(&self) -> RedisResult<Vec<i64>> {
        let losses = async { failover::losses(&self.states().await?, &self.checks.key_space).await };
        let late = || failure(io::ErrorKind::TimedOut, "it did not answer in time");
        timeout(CALL_TIMEOUT, losses).await.unwrap_or_else(|_| Err(late()))
    }

    /// Leaves out masters that are away, if others answered.
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

    async fn call(&self, command: &Cmd) -> RedisResult<Value> {
        if let Some(older) = self.checks.watermark.older() {
            return Err(refused(older.clone()));
        }
        let key = request::key(command);
        let master = self.serving.master_of(key).inspect_err(|_| self.serving.look_soon())?;
        let _permit = master.admit_call()?;
        let span = Span::current().child(SpanKind::Client, || request::described(command));
        let answer = match timeout_at(Instant::now() + CALL_TIMEOUT, self.persist(command)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.serving.why_late(key)),
        };
        if answer.is_err() {
            span.fail("store");
        }
        answer
    }

    /// Repeats a command until there is an answer. If the slot moves, follows it. Repeating is safe: if a commit was
    /// carried out, its guards do not hold the second time.
    async fn persist(&self, command: &Cmd) -> RedisResult<Value> {
        let (key, began) = (request::key(command), Instant::now());
        let (mut arriving, mut redirections) = (None, 0);
        loop {
            let is_arriving = arriving.is_some();
            let master = match arriving.take() {
                Some(master) => master,
                None => self.serving.master_of(key).inspect_err(|_| self.serving.look_soon())?,
            };
            let (mut connection, term) =
                master.connection().await.inspect_err(|_| self.serving.look_soon())?;
            let failed = match request::ask(&mut connection, command, is_arriving).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            if is_broken(&failed) {
                master.lost(term, failed);
                self.serving.look().await;
                continue;
            }
            if may_be_replaced(&failed) {
                if !is_arriving && self.serving.is_replaced(&master, term, key).await {
                    continue;
                }
                return Err(failed);
            }
            let Some(redirection) = Redirection::of(&failed) else { return Err(failed) };
            match redirection {
                Redirection::Later(longest) if began.elapsed() < longest => redirections = 0,
                Redirection::Moved(..) | Redirection::Arriving(..) if redirections < REDIRECTIONS => {
                    redirections += 1;
                }
                Redirection::Later(_) | Redirection::Moved(..) | Redirection::Arriving(..) => {
                    return Err(failed);
                }
            }
            arriving = self.serving.follow(&master, redirection).await?;
        }
    }
}

/// Leaves out masters that did not answer. Fails if none answered.
fn those_there<T>(answers: Vec<RedisResult<T>>) -> RedisResult<Vec<T>> {
    let (there, away): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    match away.into_iter().next() {
        Some(failed) if there.is_empty() => failed.map(|answer| vec![answer]),
        Some(_) | None => there.into_iter().collect(),
    }
}
