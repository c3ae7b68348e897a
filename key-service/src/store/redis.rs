//! The shared store: a Redis, or a cluster of them, for any number of key-services.
//!
//! The rules about money run inside Redis, in one script that takes a batch of commands of one account in one round
//! trip (`redis/scripts/ledger.lua`). All of an account lies in one slot, so that a cluster shares out the accounts.
//!
//! What survives depends on how Redis writes its append-only file. With `appendfsync always` whatever was answered
//! does. With `everysec` and a server that has `WAITAOF` (7.2) deposits, captures and changes of keys are answered when
//! they are on disk as far as the server knows (some confirm too early), up to a second later. With `everysec` and an
//! older server up to two seconds are lost with the machine, which a warning says at start. What a failover to a replica
//! loses is what had not reached the replica.

mod accounts;
mod admission;
mod audit;
mod barrier;
mod connection;
mod fields;
mod fold;
mod holders;
mod journal;
mod keys;
mod link;
mod management_keys;
mod marks;
mod names;
mod script;
mod settings;
#[cfg(test)]
mod tests;
mod tls;

use std::{io, ops::RangeInclusive, sync::Arc, time::Duration};

use ::redis::{RedisError, RedisResult, cmd};
use async_trait::async_trait;
use shared::{
    clock::{Clock, random_bytes},
    digest::Digest,
    ids::{AccountId, KeyId, ManagementKeyId},
    time::Timestamp,
};
use tokio::{task::JoinHandle, time::interval};

#[cfg(test)]
pub(super) use self::script::LEDGER;
use self::{
    admission::Sync,
    barrier::Barrier,
    connection::Source,
    fold::{Fold, Kept},
    holders::Holders,
    link::Link,
    marks::Marks,
    names::Names,
    script::Scripts,
};
pub use self::{
    settings::{Address, InvalidAddress, Settings},
    tls::Certificates,
};
use super::{
    AccountSummary, Created, DueHold, Idempotency, JournalPage, ManagementKey, NewAccount, NewManagementKey,
    Outcomes, Owner, Page, Store, Unavailable, UsageLine,
};
use crate::domain::{
    audit::Audit,
    key::{AlreadyRevoked, ApiKey, KeyPatch, NewKey},
    ledger::Command,
    usage::Day,
};

/// How often the store is told that it was seen. A store that forgot a minute is noticed this much later at worst.
const MARKED_EVERY: Duration = Duration::from_secs(5);

/// A store in Redis.
pub struct Redis {
    link: Arc<Link>,
    names: Names,
    scripts: Scripts,
    holders: Holders,
    barrier: Barrier,
    kept: Kept,
    marking: JoinHandle<()>,
}

/// The store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] io::Error),
    /// Redis cannot be used. Its own words say the causes too.
    #[error("Redis: {0}")]
    Redis(RedisError),
}

impl From<RedisError> for OpenError {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl Redis {
    /// Connects, and makes sure that this Redis keeps what it is told and remembers what it was told.
    pub async fn open(settings: &Settings, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let names = Names::new(&settings.prefix);
        let directory = format!("{:016x}", u64::from_be_bytes(random_bytes(&*clock)));
        let marks = Marks::open(names.clone(), &settings.data_dir, directory)?;
        let source = Source::new(&settings.address, &settings.certificates)?;
        let link = Arc::new(Link::connect(source, settings.volatile_allowed, marks).await?);
        match link.sync().await {
            Sync::BeforeAnswering => {}
            Sync::Awaited => tracing::warn!(
                "captures wait until Redis says that they are on disk, which Redis 7 and Valkey say up to a second too \
                 early: set appendfsync to always (it is quicker, too)"
            ),
            Sync::Behind => {
                tracing::warn!(
                    "Redis may lose up to two seconds with its machine: set appendfsync to always"
                );
            }
        }
        link.mark(clock.now()).await?;
        Ok(Self {
            marking: tokio::spawn(mark(Arc::clone(&link), clock)),
            link,
            names,
            scripts: Scripts::new(),
            holders: Holders::new(),
            barrier: Barrier::new(),
            kept: Kept { journal_entries: settings.journal_entries, usage_days: settings.usage_days },
        })
    }

    /// The same with another script in place of the ledger's.
    #[cfg(test)]
    pub(super) fn with_ledger(mut self, text: String) -> Self {
        self.scripts.ledger = script::Lua::new(text);
        self
    }

    async fn apply(&self, account: AccountId, commands: &[Command], now: Timestamp) -> RedisResult<Outcomes> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.holders.list(&self.link, &self.names, account, commands).await?;
        let (link, ledger, names, kept) = (&self.link, &self.scripts.ledger, &self.names, self.kept);
        let outcomes = Fold { link, ledger, names, kept, account, now }.execute(commands).await?;
        if commands.iter().any(must_survive) {
            self.confirm_account(account).await?;
        }
        Ok(outcomes)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.marking.abort();
    }
}

/// Tells the store every few seconds that it was seen.
async fn mark(link: Arc<Link>, clock: Arc<dyn Clock>) {
    let mut ticks = interval(MARKED_EVERY);
    ticks.tick().await; // the first is at once, and that was done already
    loop {
        ticks.tick().await;
        if let Err(e) = link.mark(clock.now()).await {
            tracing::error!(error = %e, "cannot note that Redis was seen");
        }
    }
}

/// Whether the answer tells someone that money has moved. A hold that is lost with its Redis has moved none.
fn must_survive(command: &Command) -> bool {
    match command {
        Command::Deposit { .. } | Command::Capture { .. } | Command::Expire { .. } => true,
        Command::Check { .. } | Command::Hold { .. } | Command::Extend { .. } | Command::Release { .. } => {
            false
        }
    }
}

/// There is no such account: a mistake of the caller, which the trait has no other word for.
fn no_account(account: AccountId) -> Unavailable {
    Unavailable(format!("there is no account {account}"))
}

impl From<RedisError> for Unavailable {
    fn from(error: RedisError) -> Self {
        Self(format!("Redis: {error}"))
    }
}

#[async_trait]
impl Store for Redis {
    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, Unavailable> {
        Ok(self.apply(account, &commands, now).await?)
    }

    async fn due_holds(&self, now: Timestamp, limit: usize) -> Result<Vec<DueHold>, Unavailable> {
        Ok(holders::due(&self.link, &self.names, &self.scripts.forget_holder, now, limit).await?)
    }

    async fn find_credential(&self, digest: Digest) -> Result<Option<Owner>, Unavailable> {
        Ok(self.owner(&digest).await?)
    }

    async fn create_account(&self, account: NewAccount) -> Result<bool, Unavailable> {
        Ok(self.make_account(&account).await?)
    }

    async fn accounts(&self) -> Result<Vec<AccountSummary>, Unavailable> {
        Ok(self.all_accounts().await?)
    }

    async fn create_management_key(&self, key: NewManagementKey) -> Result<(), Unavailable> {
        if self.make_management_key(&key).await? { Ok(()) } else { Err(no_account(key.account)) }
    }

    async fn management_keys(&self, account: AccountId) -> Result<Vec<ManagementKey>, Unavailable> {
        Ok(self.read_management_keys(account).await?)
    }

    async fn management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<Option<ManagementKey>, Unavailable> {
        Ok(self.read_management_key(account, id).await?)
    }

    async fn revoke_management_key(
        &self,
        id: ManagementKeyId,
        now: Timestamp,
    ) -> Result<Option<ManagementKey>, Unavailable> {
        Ok(self.end_management_key(id, now).await?)
    }

    async fn create_key(
        &self,
        key: NewKey,
        idempotency: Option<Idempotency>,
    ) -> Result<Created, Unavailable> {
        self.make_key(&key, idempotency.as_ref()).await?.ok_or_else(|| no_account(key.account))
    }

    async fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, Unavailable> {
        Ok(self.read_key(account, id).await?)
    }

    async fn keys(&self, account: AccountId, page: Page) -> Result<Vec<ApiKey>, Unavailable> {
        Ok(self.read_keys(account, page).await?)
    }

    async fn update_key(
        &self,
        account: AccountId,
        id: KeyId,
        patch: KeyPatch,
    ) -> Result<Option<Result<ApiKey, AlreadyRevoked>>, Unavailable> {
        Ok(self.change_key(account, id, &patch).await?)
    }

    async fn revoke_key(
        &self,
        account: AccountId,
        id: KeyId,
        now: Timestamp,
    ) -> Result<Option<ApiKey>, Unavailable> {
        Ok(self.end_key(account, id, now).await?)
    }

    async fn journal(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Result<JournalPage, Unavailable> {
        Ok(self.read_journal(account, after, limit).await?)
    }

    async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        key: Option<KeyId>,
    ) -> Result<Vec<UsageLine>, Unavailable> {
        Ok(self.read_usage(account, days, key).await?)
    }

    async fn audit(&self, account: AccountId) -> Result<Option<Audit>, Unavailable> {
        Ok(self.audited(account).await?)
    }

    async fn ping(&self) -> Result<(), Unavailable> {
        Ok(self.link.ask(&cmd("PING")).await?)
    }
}
