//! The shared store: a Redis, or a cluster, for any number of key-services.
//!
//! The rules about money run inside Redis, in a script that takes a batch of commands of one account in one round trip
//! (`redis/scripts/ledger/`). All data of an account lies in one slot, so that a cluster distributes the accounts.
//!
//! Durability depends on how Redis writes its append-only file. With `appendfsync always` all answered writes survive.
//! With `everysec` and a server that has `WAITAOF` (7.2), deposits, captures and changes of keys are answered up to a
//! second later, when they are on disk as far as the server can tell (some confirm too early). With `everysec` and an
//! older server, up to two seconds are lost with the machine, or with Redis alone where its disk is slow; a warning is
//! logged at start. A failover to a replica loses the writes that had not reached the replica.

mod accounts;
mod admission;
mod audit;
mod batch;
mod capacity;
mod client;
mod connection;
mod durability;
mod failover;
mod hold_index;
mod journal;
mod key_space;
mod key_status;
mod keys;
mod management_keys;
mod members;
mod records;
mod schema;
mod script;
mod settings;
mod spend;
#[cfg(test)]
mod tests;
mod tls;
mod watermark;

use std::{io, ops::RangeInclusive, sync::Arc, time::Duration};

use ::redis::{RedisError, RedisResult, cmd};
use async_trait::async_trait;
use shared::{
    clock::{Clock, random_bytes},
    ids::{AccountId, KeyId, ManagementKeyId},
    rpc::Principal,
    time::Timestamp,
};
use tokio::{task::JoinHandle, time::interval};

#[cfg(test)]
pub(super) use self::script::LEDGER;
use self::{
    batch::{Batch, Kept},
    capacity::MemoryWatch,
    client::Client,
    connection::Source,
    durability::DurabilityWait,
    hold_index::AccountIndex,
    key_space::KeySpace,
    script::Scripts,
    watermark::Watermark,
};
pub(crate) use self::{
    settings::{Address, Settings},
    tls::Certificates,
};
use super::{
    AccountSummary, Accounts, Books, Capacity, Created, Credentials, Cursor, Deposit, DueHolds, Funds,
    HoldIndex, Idempotency, JournalEntry, JournalPage, Keys, Ledger, ManagementKey, NewAccount,
    NewManagementKey, Outcomes, Page, Skew, SpendLine, StoreError, Updated, UsageLine,
};
use domain::{
    audit::Audit,
    digest::Digest,
    key::{ApiKey, KeyPatch, NewKey},
    ledger::Command,
    usage::Day,
};

/// Interval at which the store is marked as seen. A store that lost a minute of writes is noticed this much later at
/// worst.
const MARKED_EVERY: Duration = Duration::from_secs(5);

/// A store in Redis.
pub(crate) struct Redis {
    client: Arc<Client>,
    key_space: KeySpace,
    scripts: Scripts,
    index: AccountIndex,
    durability: DurabilityWait,
    memory: MemoryWatch,
    clock: Arc<dyn Clock>,
    kept: Kept,
    marking: JoinHandle<()>,
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
        if client.is_up().await {
            client.mark(clock.now()).await?.report();
        }
        Ok(Self {
            marking: tokio::spawn(mark(Arc::clone(&client), Arc::clone(&clock))),
            client,
            key_space,
            scripts: Scripts::new(),
            index: AccountIndex::new(Arc::clone(&clock)),
            durability: DurabilityWait::new(),
            memory: MemoryWatch::default(),
            clock,
            kept: Kept { journal_entries: settings.journal_entries, usage_days: settings.usage_days },
        })
    }

    /// Replaces the ledger's script.
    #[cfg(test)]
    pub(super) fn with_ledger(mut self, text: String) -> Self {
        self.scripts.ledger = script::Lua::new(text);
        self
    }

    async fn apply(&self, account: AccountId, commands: &[Command], now: Timestamp) -> RedisResult<Outcomes> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let (client, key_space) = (&self.client, &self.key_space);
        self.index.list(client, key_space, account, commands).await?;
        let (ledger, kept) = (&self.scripts.ledger, self.kept);
        let outcomes = Batch { client, ledger, key_space, kept, account, now }.execute(commands).await?;
        if commands.iter().any(must_survive) {
            self.confirm_account(account).await?;
        }
        Ok(outcomes)
    }

    /// Our clock minus that of the server that differs most.
    async fn skew(&self) -> RedisResult<Skew> {
        let asked = self.clock.now();
        let answers = self.client.ask_masters(cmd("TIME")).await?;
        let ours = i64::midpoint(asked.millis(), self.clock.now().millis());
        let mut most = Skew { millis: 0 };
        for answer in answers {
            let (seconds, micros): (i64, i64) = ::redis::from_redis_value(answer)?;
            let millis = ours.saturating_sub(seconds.saturating_mul(1000).saturating_add(micros / 1000));
            if millis.unsigned_abs() > most.millis.unsigned_abs() {
                most = Skew { millis };
            }
        }
        Ok(most)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.marking.abort();
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

/// Returns whether the command moves money, so that its effect must be durable before the answer. A hold that is lost
/// with its Redis has moved none.
fn must_survive(command: &Command) -> bool {
    match command {
        Command::Deposit { .. } | Command::Capture { .. } | Command::Expire { .. } => true,
        Command::Tick { .. }
        | Command::Check { .. }
        | Command::Hold { .. }
        | Command::Extend { .. }
        | Command::Release { .. } => false,
    }
}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        Self::Unavailable(format!("Redis: {error}"))
    }
}

#[async_trait]
impl Ledger for Redis {
    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, StoreError> {
        Ok(self.apply(account, &commands, now).await?)
    }

    async fn accounts_with_holds(&self) -> HoldIndex {
        self.index.accounts(&self.client, &self.key_space).await
    }

    async fn due_holds(&self, account: AccountId, after: Option<Cursor>) -> Result<DueHolds, StoreError> {
        Ok(hold_index::due(&self.client, &self.key_space, account, after).await?)
    }

    async fn clock_skew(&self) -> Result<Option<Skew>, StoreError> {
        Ok(Some(self.skew().await?))
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(self.client.ask(&cmd("PING")).await?)
    }
}

#[async_trait]
impl Credentials for Redis {
    async fn find_credential(&self, digest: Digest) -> Result<Option<Principal>, StoreError> {
        Ok(self.owner(&digest).await?)
    }
}

#[async_trait]
impl Keys for Redis {
    async fn create_key(&self, key: NewKey, idempotency: Option<Idempotency>) -> Result<Created, StoreError> {
        self.make_key(&key, idempotency.as_ref()).await?.ok_or_else(|| StoreError::no_account(key.account))
    }

    async fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        Ok(self.read_key(account, id).await?)
    }

    async fn keys(&self, account: AccountId, page: Page) -> Result<Vec<ApiKey>, StoreError> {
        Ok(self.read_keys(account, page).await?)
    }

    async fn holds_of(&self, account: AccountId, key: KeyId) -> Result<u64, StoreError> {
        Ok(hold_index::count_of(&self.client, &self.key_space, account, key).await?)
    }

    async fn update_key(
        &self,
        account: AccountId,
        id: KeyId,
        patch: KeyPatch,
    ) -> Result<Updated, StoreError> {
        Ok(self.change_key(account, id, &patch).await?)
    }

    async fn revoke_key(
        &self,
        account: AccountId,
        id: KeyId,
        now: Timestamp,
    ) -> Result<Option<ApiKey>, StoreError> {
        Ok(self.end_key(account, id, now).await?)
    }
}

#[async_trait]
impl Accounts for Redis {
    async fn create_account(&self, account: NewAccount) -> Result<bool, StoreError> {
        Ok(self.make_account(&account).await?)
    }

    async fn accounts(&self) -> Result<Vec<AccountSummary>, StoreError> {
        Ok(self.all_accounts().await?)
    }

    async fn account_named(&self, name: &str) -> Result<Option<AccountId>, StoreError> {
        Ok(self.find_account(name).await?)
    }

    async fn funds(&self, account: AccountId) -> Result<Option<Funds>, StoreError> {
        Ok(self.read_funds(account).await?)
    }

    async fn create_management_key(&self, key: NewManagementKey) -> Result<bool, StoreError> {
        self.make_management_key(&key).await?.ok_or_else(|| StoreError::no_account(key.account))
    }

    async fn management_keys(&self, account: AccountId) -> Result<Vec<ManagementKey>, StoreError> {
        Ok(self.read_management_keys(account).await?)
    }

    async fn management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<Option<ManagementKey>, StoreError> {
        Ok(self.read_management_key(account, id).await?)
    }

    async fn revoke_management_key(
        &self,
        id: ManagementKeyId,
        now: Timestamp,
    ) -> Result<Option<ManagementKey>, StoreError> {
        Ok(self.end_management_key(id, now).await?)
    }
}

#[async_trait]
impl Capacity for Redis {
    async fn is_nearly_full(&self) -> Result<bool, StoreError> {
        Ok(self.memory.is_nearly_full(&self.client).await?)
    }
}

#[async_trait]
impl Books for Redis {
    async fn journal(&self, account: AccountId, after: u64, limit: usize) -> Result<JournalPage, StoreError> {
        Ok(self.read_journal(account, after, limit).await?)
    }

    async fn latest_entries(
        &self,
        account: AccountId,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, StoreError> {
        Ok(self.read_latest_entries(account, before, limit).await?)
    }

    async fn deposits(&self, account: AccountId, limit: usize) -> Result<Vec<Deposit>, StoreError> {
        Ok(self.read_deposits(account, limit).await?)
    }

    async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        key: Option<KeyId>,
    ) -> Result<Vec<UsageLine>, StoreError> {
        Ok(self.read_usage(account, days, key).await?)
    }

    async fn spend(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<Vec<SpendLine>, StoreError> {
        Ok(self.read_spend(account, days).await?)
    }

    async fn audit(&self, account: AccountId) -> Result<Option<Audit>, StoreError> {
        Ok(self.audited(account).await?)
    }
}
