//! The embedded store: an SQLite file without any setup, shared with the command line while the server runs; or SQLite
//! in memory.
//!
//! A single thread writes, with many callers in a transaction; other threads read the last committed state. No data of
//! the file is cached between calls, since another process may write too.

mod audit;
mod expiring;
mod file;
mod ledger_batch;
mod members;
mod queue;
mod reader;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

use std::{ops::RangeInclusive, path::Path, sync::Arc};

use async_trait::async_trait;
use rusqlite::{Connection, ErrorCode, ffi::SQLITE_CONSTRAINT_FOREIGNKEY};
use shared::{
    ids::{AccountId, KeyId, ManagementKeyId},
    rpc::Principal,
    time::Timestamp,
};

pub(crate) use self::file::OpenError;
use self::{
    reader::Readers,
    tables::{
        accounts, journal,
        keys::{self, KeyCounts},
        management_keys, records, spend, usage,
    },
    writer::Writer,
};
use super::{
    AccountSummary, Accounts, Books, Capacity, Created, Credentials, Cursor, Deposit, DueHolds, Found, Funds,
    HoldIndex, Idempotency, JournalEntry, JournalPage, Keys, Ledger, ManagementKey, NewAccount,
    NewManagementKey, Outcomes, Page, Skew, SpendLine, StoreError, Updated, UsageLine, search::numbers,
};
use domain::{
    audit::Audit,
    digest::Digest,
    key::{ApiKey, KeyPatch, NewKey},
    ledger::Command,
    search::EntrySearch,
    usage::Day,
};

/// Accounts whose keys are counted in memory; some 50 bytes each.
const COUNTED_ACCOUNTS: usize = 10_000;

/// Number of due holds on a page.
const DUE_AT_ONCE: usize = 512;

/// A store in a file. Dropping the store finishes queued calls and closes the file.
pub(crate) struct Sqlite {
    /// `None` in memory, where the writer reads as well. Dropped first: the last connection to close merges the
    /// write-ahead log into the file, which is the writer's task.
    readers: Option<Readers>,
    writer: Writer,
    /// API keys of accounts, counted once a process: counting a million takes tens of milliseconds of the writer.
    counted: Arc<KeyCounts>,
}

impl Sqlite {
    /// Opens or creates the file, and migrates the tables.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let writer = Writer::open(path)?;
        Ok(Self::with(Some(Readers::open(path)?), writer))
    }

    /// Opens a store in memory, which ends with the process.
    pub(crate) fn in_memory() -> Result<Self, OpenError> {
        Ok(Self::with(None, Writer::in_memory()?))
    }

    fn with(readers: Option<Readers>, writer: Writer) -> Self {
        Self { readers, writer, counted: Arc::new(KeyCounts::new(COUNTED_ACCOUNTS)) }
    }

    /// Makes a change of a test, which panics where it fails.
    #[cfg(test)]
    pub(super) async fn change(&self, work: impl FnOnce(&Connection) + Send + 'static) {
        let work = move |connection: &Connection| {
            work(connection);
            Ok(())
        };
        self.writer.write(work).await.unwrap();
    }

    /// Runs a query on the last committed state.
    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.readers {
            Some(readers) => readers.read(query).await,
            None => self.writer.write(query).await,
        }
    }
}

/// Sorts errors of SQLite by the caller's next step: a call for an account that does not exist breaks a foreign key, and
/// damaged figures break a check.
impl From<&rusqlite::Error> for StoreError {
    fn from(error: &rusqlite::Error) -> Self {
        let cause = error.to_string();
        match error {
            rusqlite::Error::SqliteFailure(e, _) if e.extended_code == SQLITE_CONSTRAINT_FOREIGNKEY => {
                Self::Conflict(cause)
            }
            rusqlite::Error::SqliteFailure(e, _) if e.code != ErrorCode::ConstraintViolation => {
                Self::Unavailable(cause)
            }
            rusqlite::Error::SqliteFailure(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..) => Self::Damaged(cause),
            _ => Self::Unavailable(cause),
        }
    }
}

#[async_trait]
impl Ledger for Sqlite {
    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, StoreError> {
        self.writer.execute(account, commands, now).await
    }

    async fn accounts_with_holds(&self) -> HoldIndex {
        match self.read(records::holders).await {
            Ok(accounts) => HoldIndex { accounts, missing: None },
            Err(unavailable) => HoldIndex { accounts: Vec::new(), missing: Some(unavailable) },
        }
    }

    async fn due_holds(&self, account: AccountId, after: Option<Cursor>) -> Result<DueHolds, StoreError> {
        let behind = after.and_then(|Cursor(last)| last.parse().ok());
        let due = move |connection: &Connection| records::due(connection, account, behind, DUE_AT_ONCE);
        let holds = self.read(due).await?;
        let full = holds.len() == DUE_AT_ONCE;
        let next = holds.last().filter(|_| full).map(|hold| Cursor(hold.generation.to_string()));
        Ok(DueHolds { holds, next })
    }

    async fn clock_skew(&self) -> Result<Option<Skew>, StoreError> {
        Ok(None)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.writer.check_file()?;
        self.read(file::ping).await
    }
}

#[async_trait]
impl Credentials for Sqlite {
    async fn find_credential(&self, digest: Digest) -> Result<Option<Principal>, StoreError> {
        self.read(move |connection| accounts::owner(connection, &digest)).await
    }
}

#[async_trait]
impl Keys for Sqlite {
    async fn create_key(&self, key: NewKey, idempotency: Option<Idempotency>) -> Result<Created, StoreError> {
        let counted = self.counted.clone();
        let create =
            move |connection: &Connection| keys::create(connection, &key, idempotency.as_ref(), &counted);
        self.writer.write(create).await
    }

    async fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        self.read(move |connection| keys::get(connection, account, id)).await
    }

    async fn keys(&self, account: AccountId, page: Page) -> Result<Vec<ApiKey>, StoreError> {
        self.read(move |connection| keys::list(connection, account, page)).await
    }

    async fn top_spending(
        &self,
        account: AccountId,
        after: Option<KeyId>,
        limit: usize,
    ) -> Result<Vec<ApiKey>, StoreError> {
        self.read(move |connection| keys::top_spending(connection, account, after, limit)).await
    }

    async fn holds_of(&self, account: AccountId, key: KeyId) -> Result<u64, StoreError> {
        self.read(move |connection| records::holds_of(connection, account, key)).await
    }

    async fn update_key(
        &self,
        account: AccountId,
        id: KeyId,
        patch: KeyPatch,
        now: Timestamp,
    ) -> Result<Updated, StoreError> {
        self.writer.write(move |connection| keys::update(connection, account, id, &patch, now)).await
    }

    async fn revoke_key(
        &self,
        account: AccountId,
        id: KeyId,
        now: Timestamp,
    ) -> Result<Option<ApiKey>, StoreError> {
        self.writer.write(move |connection| keys::revoke(connection, account, id, now)).await
    }
}

impl crate::store::Groups for Sqlite {}

#[async_trait]
impl Accounts for Sqlite {
    async fn create_account(&self, account: NewAccount) -> Result<bool, StoreError> {
        self.writer.write(move |connection| accounts::create(connection, &account)).await
    }

    async fn accounts(&self) -> Result<Vec<AccountSummary>, StoreError> {
        self.read(accounts::list).await
    }

    async fn account_named(&self, name: &str) -> Result<Option<AccountId>, StoreError> {
        let name = name.to_owned();
        self.read(move |connection| accounts::named(connection, &name)).await
    }

    async fn funds(&self, account: AccountId) -> Result<Option<Funds>, StoreError> {
        self.read(move |connection| accounts::funds(connection, account)).await
    }

    async fn create_management_key(&self, key: NewManagementKey) -> Result<bool, StoreError> {
        self.writer.write(move |connection| management_keys::create(connection, &key)).await
    }

    async fn management_keys(&self, account: AccountId) -> Result<Vec<ManagementKey>, StoreError> {
        self.read(move |connection| management_keys::list(connection, account)).await
    }

    async fn management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<Option<ManagementKey>, StoreError> {
        self.read(move |connection| management_keys::get(connection, account, id)).await
    }

    async fn revoke_management_key(
        &self,
        id: ManagementKeyId,
        now: Timestamp,
    ) -> Result<Option<ManagementKey>, StoreError> {
        self.writer.write(move |connection| management_keys::revoke(connection, id, now)).await
    }
}

#[async_trait]
impl Capacity for Sqlite {
    /// Returns `false`: the only bound of the file is its disk, whose free space the standard library does not tell. A
    /// full disk refuses writes that need room, and changes nothing.
    async fn is_nearly_full(&self) -> Result<bool, StoreError> {
        Ok(false)
    }
}

#[async_trait]
impl Books for Sqlite {
    async fn journal(&self, account: AccountId, after: u64, limit: usize) -> Result<JournalPage, StoreError> {
        let entries = self.read(move |connection| journal::page(connection, account, after, limit));
        Ok(JournalPage { entries: entries.await?, gone_until: 0 })
    }

    async fn latest_entries(
        &self,
        account: AccountId,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, StoreError> {
        self.read(move |connection| journal::latest(connection, account, before, limit)).await
    }

    async fn find_entries(
        &self,
        account: AccountId,
        search: EntrySearch,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Found<JournalEntry, u64>, StoreError> {
        let range = match search.day {
            Some(day) => numbers(self, account, day, before).await?,
            None => (0, before.unwrap_or(u64::MAX)),
        };
        self.read(move |connection| journal::find(connection, account, &search, range, limit)).await
    }

    async fn deposits(&self, account: AccountId, limit: usize) -> Result<Vec<Deposit>, StoreError> {
        self.read(move |connection| records::latest_deposits(connection, account, limit)).await
    }

    async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        key: Option<KeyId>,
    ) -> Result<Vec<UsageLine>, StoreError> {
        self.read(move |connection| usage::list(connection, account, &days, key)).await
    }

    async fn spend(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<Vec<SpendLine>, StoreError> {
        self.read(move |connection| spend::list(connection, account, &days)).await
    }

    async fn audit(&self, account: AccountId) -> Result<Option<Audit>, StoreError> {
        audit::run(self, account).await
    }
}
