//! The shared store: a Redis, or a cluster, for any number of key-services.
//!
//! The rules about money run inside Redis, in a script that takes a batch of commands of one account in one round trip
//! (`redis/scripts/ledger/`). All data of an account lies in one slot, so that a cluster distributes the accounts.
//!
//! Durability depends on how Redis writes its append-only file. With `appendfsync always` all answered writes survive.
//! With `everysec` and a server that has `WAITAOF` (7.2), deposits, captures and changes of keys are answered up to a
//! second later, when they are on disk as far as the server can tell (some confirm too early). With `everysec` and an
//! older server, up to two seconds are lost with the machine, or with Redis alone where its disk is slow; a warning is
//! logged at start. A failover to a replica loses the writes that had not reached the replica; where replicas are awaited, all
//! changes of money, holds and keys are answered once they have reached as many.

mod accounts;
mod admission;
mod audit;
mod batch;
mod books;
mod capacity;
mod client;
mod connection;
mod durability;
mod events;
mod expiring;
mod failover;
mod groups;
mod hold_index;
mod idempotency;
mod journal;
mod key_lists;
mod key_space;
mod keys;
mod ledger;
mod members;
mod moving;
mod outcomes;
mod records;
mod refused;
mod rotation;
mod schema;
mod script;
mod settings;
mod spend;
#[cfg(test)]
mod tests;
mod tls;
mod turns;
mod usage;
mod watermark;
mod webhooks;

use std::{io, sync::Arc};

use ::redis::{ParsingError, RedisError};
use shared::clock::{Clock, random_bytes};
use tokio::{task::JoinHandle, time::interval};

#[cfg(test)]
pub(super) use self::script::{IMPORT, LEDGER};
use self::{
    batch::{ChainedAccounts, Kept},
    capacity::MemoryWatch,
    client::Client,
    connection::Source,
    durability::DurabilityWait,
    hold_index::AccountIndex,
    key_space::KeySpace,
    script::Scripts,
    turns::ChangeTurns,
    watermark::{MARKED_EVERY, Watermark},
};
pub(crate) use self::{
    settings::{Address, Settings},
    tls::Certificates,
};
use super::StoreError;

/// A store in Redis.
pub(crate) struct Redis {
    client: Arc<Client>,
    key_space: KeySpace,
    scripts: Scripts,
    index: AccountIndex,
    durability: DurabilityWait,
    memory: MemoryWatch,
    turns: ChangeTurns,
    clock: Arc<dyn Clock>,
    kept: Kept,
    chained: ChainedAccounts,
    /// Absent where the store is only read.
    marking: Option<JoinHandle<()>>,
}

/// The store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] io::Error),
    /// Redis cannot be used. The message contains the causes.
    #[error("Redis: {0}")]
    Redis(RedisError),
}

impl OpenError {
    /// Returns whether the Redis may be there later. Settings, data and credentials that are refused stay so.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::DataDir(_) => false,
            Self::Redis(error) => client::may_pass(error),
        }
    }
}

impl From<RedisError> for OpenError {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl Redis {
    /// Connects, and checks that this Redis keeps its data and has not lost any. Calls wait for a Redis that is loading
    /// data.
    pub(crate) async fn open(settings: &Settings, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let key_space = KeySpace::new(&settings.prefix);
        let directory = format!("{:016x}", u64::from_be_bytes(random_bytes(&*clock)));
        let watermark = Watermark::open(key_space.clone(), &settings.data_dir, directory)?;
        let source = Source::new(&settings.address, &settings.certificates)?;
        let (volatile, names) = (settings.volatile_allowed, key_space.clone());
        let client = Client::connect(source, volatile, names, watermark, Arc::clone(&clock)).await?;
        let client = Arc::new(client);
        if settings.is_marked && client.is_up().await {
            client.mark(clock.now()).await?.report();
        }
        let marking = settings.is_marked.then(|| tokio::spawn(mark(Arc::clone(&client), Arc::clone(&clock))));
        Ok(Self {
            marking,
            client,
            key_space,
            scripts: Scripts::new(),
            index: AccountIndex::new(Arc::clone(&clock)),
            durability: DurabilityWait::new(settings.wait_replicas),
            memory: MemoryWatch::default(),
            turns: ChangeTurns::default(),
            clock,
            kept: Kept {
                journal_entries: settings.journal_entries,
                usage_days: settings.usage_days,
                events: settings.events,
            },
            chained: ChainedAccounts::default(),
        })
    }

    /// Replaces the script of imports.
    #[cfg(test)]
    pub(super) fn with_import(mut self, text: &str) -> Self {
        self.scripts.import_keys = script::import(text);
        self
    }

    /// Replaces the ledger's script.
    #[cfg(test)]
    pub(super) fn with_ledger(mut self, text: &str) -> Self {
        self.scripts.ledger = script::LedgerScripts::new(text);
        self
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
    ticks.tick().await; // the first is at once, and that was done already
    loop {
        ticks.tick().await;
        match client.mark(clock.now()).await {
            Ok(losses) => losses.report(),
            Err(e) => tracing::error!(error = %e, "cannot note that Redis was seen"),
        }
    }
}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        Self::Unavailable(format!("Redis: {error}"))
    }
}

/// An answer of an unexpected form: the record behind it is damaged.
impl From<ParsingError> for StoreError {
    fn from(error: ParsingError) -> Self {
        Self::Damaged(format!("Redis: {error}"))
    }
}
