//! The backend in Redis. A set is a hash, whose fields are the set's records. An index is a sorted set whose scores are
//! all zero. A log is a stream; each item of the stream has several values, and the item's number is the number of its
//! last value. All names of a space have the same hash tag, so they are in one slot, and a cluster distributes the
//! spaces.
//!
//! Durability depends on how Redis writes its append-only file. With `appendfsync always`, all answered commits
//! survive. With `everysec` and a server that has `WAITAOF` (7.2 or newer), durable changes are answered up to a second
//! later: when they are on disk as far as the server can tell. (Some servers confirm too early.) With `everysec` and an
//! older server, up to two seconds of writes are lost if the machine fails, or if Redis fails while its disk is slow.
//! In this case a warning is logged at start. A failover to a replica loses the commits that had not reached the
//! replica. If the operator sets a number of replicas to wait for, changes are answered only when this many replicas
//! have them.

mod admission;
mod arguments;
mod capacity;
mod client;
mod connection;
mod failover;
mod key_space;
mod masters;
mod places;
mod questions;
mod request;
mod schema;
mod settings;
mod watermark;

use std::{io, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::future::try_join_all;
use redis::{RedisError, Script, Value, cmd};
use shared::clock::{Clock, random_bytes};
use tokio::{
    task::JoinHandle,
    time::{interval, sleep},
};

use self::{
    arguments::Arguments,
    capacity::MemoryWatch,
    client::Client,
    connection::RedisOrigin,
    key_space::{KeySpace, PARTS},
    masters::server::Checks,
    questions::{READ, Reads, failure, read_answers, record, senseless, text},
    watermark::{MARKED_EVERY, Watermark},
};
pub use self::{
    settings::tls::Certificates,
    settings::{Address, InvalidAddress, Sentinel, Settings, SignIn},
};
use crate::records::{
    Answer, Commit, Committed, Durability, Failure, MissingServers, Place, Question, Records, Space, Term,
};

const COMMIT: &str = include_str!("redis/commit.lua");

pub struct Redis {
    client: Arc<Client>,
    key_space: KeySpace,
    commit: Script,
    read: Script,
    memory: MemoryWatch,
    clock: Arc<dyn Clock>,
    /// Task that marks the store as seen. `None` if the store is only read.
    marking: Option<JoinHandle<()>>,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] io::Error),
    /// Redis cannot be used. The message includes the causes.
    #[error("Redis: {0}")]
    Redis(RedisError),
}

impl OpenError {
    /// Returns whether Redis may become available later by itself. If its settings, its data or our credentials were
    /// refused, it will not.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::DataDir(_) => false,
            Self::Redis(error) => connection::may_pass(error),
        }
    }
}

impl From<RedisError> for OpenError {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl Redis {
    /// Connects to Redis, and checks that it persists its data and has not lost data. While Redis loads its data, calls
    /// wait.
    pub async fn open(settings: &Settings, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let key_space = KeySpace::new(&settings.prefix);
        let directory = format!("{:016x}", u64::from_be_bytes(random_bytes(&*clock)));
        let watermark = Watermark::open(key_space.clone(), settings.data_dir.as_deref(), directory)?;
        let origin = RedisOrigin::new(&settings.address, &settings.certificates)?;
        let checks = Checks::new(key_space.clone(), watermark, Arc::clone(&clock), settings);
        let client = Arc::new(Box::pin(Client::connect(origin, checks)).await?);
        if settings.is_marked && client.is_up() {
            Box::pin(client.mark(clock.now())).await?.report();
        }
        let marking = settings.is_marked.then(|| tokio::spawn(mark(Arc::clone(&client), Arc::clone(&clock))));
        Ok(Self {
            client,
            key_space,
            commit: Script::new(COMMIT),
            read: Script::new(READ),
            memory: MemoryWatch::default(),
            clock,
            marking,
        })
    }

    /// Returns whether a process uses this Redis: it is connected, even if it is suspended, or it marks the store every
    /// few seconds. This call takes long enough to see such a mark.
    pub async fn is_served(&self) -> Result<bool, Failure> {
        if self.is_connected().await? {
            return Ok(true);
        }
        let before = self.marks().await?;
        sleep(MARKED_EVERY + Duration::from_secs(1)).await;
        Ok(self.marks().await? != before)
    }

    /// Returns whether a serving process is connected. A process that was stopped by a signal keeps its connection.
    async fn is_connected(&self) -> Result<bool, Failure> {
        let mut question = cmd("CLIENT");
        question.arg("LIST");
        let lists = self.client.ask_masters(&question).await.map_err(|e| match e.code() {
            Some("NOPERM") => Failure::NotDone(
                "the user of Redis may not list connections: grant it `+client|list` to run this command"
                    .into(),
            ),
            Some(_) | None => failure(&e),
        })?;
        let name = format!("name={}", self.key_space.connection());
        for list in lists {
            let list: String = redis::from_redis_value(list).map_err(|_| senseless())?;
            if list.split_ascii_whitespace().any(|field| field == name) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the latest mark in each part of the store.
    async fn marks(&self) -> Result<Vec<Option<i64>>, Failure> {
        let last = |part| {
            let mut question = cmd("HGET");
            question.arg(self.key_space.marks(part)).arg("last");
            async move { self.client.ask(&question).await.map_err(|e| failure(&e)) }
        };
        try_join_all((0..PARTS).map(last)).await
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(marking) = &self.marking {
            marking.abort();
        }
    }
}

/// Marks the store as seen every few seconds.
async fn mark(client: Arc<Client>, clock: Arc<dyn Clock>) {
    let mut ticks = interval(MARKED_EVERY);
    ticks.tick().await; // the first comes at once, so a Redis that was up has its mark
    let mut is_failing = false;
    loop {
        ticks.tick().await;
        let marked = client.mark(clock.now()).await;
        let has_failed = std::mem::replace(&mut is_failing, marked.is_err());
        match marked {
            Ok(losses) => losses.report(),
            Err(e) if !has_failed => tracing::error!(error = %e, "cannot mark Redis as seen"),
            Err(_) => {}
        }
    }
}

#[async_trait]
impl Records for Redis {
    fn system(&self) -> &'static str {
        "redis"
    }

    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure> {
        let reads = Reads::of(&self.key_space, space, &questions);
        let answers = reads.send(&self.client, &self.read).await.map_err(|e| failure(&e))?;
        read_answers(&questions, answers)
    }

    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure> {
        let arguments = Arguments::of(&self.key_space, space, &commit)?;
        let by_hash = arguments.command("EVALSHA", self.commit.get_hash());
        let answer = self.client.run(&by_hash, || arguments.command("EVAL", COMMIT)).await;
        committed(answer.map_err(|e| failure(&e))?, &arguments)
    }

    async fn places(&self) -> Result<Vec<(Space, Place)>, Failure> {
        places::all(&self.client, &self.key_space).await
    }

    async fn term(&self, space: &Space) -> Term {
        self.client.term(self.key_space.barrier(space).as_bytes())
    }

    async fn settle(&self, space: &Space, durability: Durability, since: Term) -> Result<(), Failure> {
        if durability == Durability::Volatile {
            return Ok(());
        }
        let mut barrier = cmd("SET");
        barrier.arg(self.key_space.barrier(space)).arg("");
        let settled = self.client.settle(barrier, durability, since).await;
        settled.map_err(|e| Failure::Unknown(text(&e)))
    }

    async fn ping(&self) -> Result<MissingServers, Failure> {
        capacity::ping(&self.client, &self.key_space).await.map_err(|e| failure(&e))
    }

    /// The clock of the server that differs most from ours decides.
    async fn clock_skew(&self) -> Result<Option<i64>, Failure> {
        let asked = self.clock.now();
        let answers = self.client.ask_those_there(&cmd("TIME")).await.map_err(|e| failure(&e))?;
        let ours = i64::midpoint(asked.millis(), self.clock.now().millis());
        let mut most = 0_i64;
        for answer in answers {
            let (seconds, micros): (i64, i64) = redis::from_redis_value(answer).map_err(|_| senseless())?;
            let skew = ours.saturating_sub(seconds.saturating_mul(1000).saturating_add(micros / 1000));
            if skew.unsigned_abs() > most.unsigned_abs() {
                most = skew;
            }
        }
        Ok(Some(most))
    }

    async fn is_nearly_full(&self) -> Result<bool, Failure> {
        self.memory.is_nearly_full(&self.client).await.map_err(|e| failure(&e))
    }

    async fn used_ratio(&self) -> Result<Option<f64>, Failure> {
        capacity::fullest(&self.client).await.map_err(|e| failure(&e))
    }

    async fn persistence_warnings(&self) -> Vec<&'static str> {
        let of_disk = self.client.sync().warning();
        // If the store does not answer, readiness reports that.
        let of_replicas = self.client.warning().await.unwrap_or_default();
        of_disk.into_iter().chain(of_replicas).collect()
    }

    async fn losses(&self) -> Result<Vec<i64>, Failure> {
        self.client.losses().await.map_err(|e| failure(&e))
    }

    async fn try_write(&self) -> Result<MissingServers, Failure> {
        capacity::try_write(&self.client, &self.key_space).await.map_err(|e| failure(&e))
    }
}

/// Reads the script's answer: zero, or the positions of failed guards with the current records.
fn committed(answer: Value, arguments: &Arguments<'_>) -> Result<Committed, Failure> {
    if answer == Value::Int(0) {
        return Ok(Committed::Written);
    }
    let Value::Array(answer) = answer else { return Err(senseless()) };
    let mut answer = answer.into_iter();
    let first = answer.next().ok_or_else(senseless)?;
    let mut present = Vec::new();
    let mut next = Some(first);
    while let Some(Value::Int(number)) = next {
        let place = arguments.guard(number).ok_or_else(senseless)?;
        let record = answer.next().ok_or_else(senseless).and_then(record)?;
        present.push((place, record));
        next = answer.next();
    }
    Ok(Committed::Conflict(present))
}

#[cfg(test)]
pub(crate) mod tests;
