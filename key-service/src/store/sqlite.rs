//! The embedded store: one SQLite file, nothing to install, shared with the command line while the server runs.
//!
//! One thread writes, many callers to a transaction; others read what was last committed. Nothing of the file is kept
//! in memory between calls, since another process may write it too.

mod audit;
mod file;
mod fold;
mod queue;
mod reader;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use shared::{
    digest::Digest,
    ids::{AccountId, KeyId, ManagementKeyId},
    time::Timestamp,
};

pub use self::file::OpenError;
use self::{
    reader::Readers,
    tables::{accounts, journal, keys, management_keys, records, usage},
    writer::Writer,
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

/// A store in a file. Dropping it finishes what is queued and closes the file.
pub struct Sqlite {
    // Dropped first: whoever closes the file last folds the write-ahead log into it, and that is the writer's work.
    readers: Readers,
    writer: Writer,
    path: PathBuf,
}

impl Sqlite {
    /// Opens the file, makes it where there is none, and brings its tables up to date.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let writer = Writer::open(path)?;
        let readers = Readers::open(path)?;
        Ok(Self { readers, writer, path: path.to_owned() })
    }
}

/// What callers hear of a failure of SQLite.
fn unavailable(error: &rusqlite::Error) -> Unavailable {
    Unavailable(error.to_string())
}

#[async_trait]
impl Store for Sqlite {
    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, Unavailable> {
        self.writer.execute(account, commands, now).await
    }

    async fn due_holds(&self, now: Timestamp, limit: usize) -> Result<Vec<DueHold>, Unavailable> {
        self.readers.read(move |connection| records::due(connection, now, limit)).await
    }

    async fn find_credential(&self, digest: Digest) -> Result<Option<Owner>, Unavailable> {
        self.readers.read(move |connection| accounts::owner(connection, &digest)).await
    }

    async fn create_account(&self, account: NewAccount) -> Result<bool, Unavailable> {
        self.writer.write(move |connection| accounts::create(connection, &account)).await
    }

    async fn accounts(&self) -> Result<Vec<AccountSummary>, Unavailable> {
        self.readers.read(accounts::list).await
    }

    async fn create_management_key(&self, key: NewManagementKey) -> Result<(), Unavailable> {
        self.writer.write(move |connection| management_keys::create(connection, &key)).await
    }

    async fn management_keys(&self, account: AccountId) -> Result<Vec<ManagementKey>, Unavailable> {
        self.readers.read(move |connection| management_keys::list(connection, account)).await
    }

    async fn management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<Option<ManagementKey>, Unavailable> {
        self.readers.read(move |connection| management_keys::get(connection, account, id)).await
    }

    async fn revoke_management_key(
        &self,
        id: ManagementKeyId,
        now: Timestamp,
    ) -> Result<Option<ManagementKey>, Unavailable> {
        self.writer.write(move |connection| management_keys::revoke(connection, id, now)).await
    }

    async fn create_key(
        &self,
        key: NewKey,
        idempotency: Option<Idempotency>,
    ) -> Result<Created, Unavailable> {
        self.writer.write(move |connection| keys::create(connection, &key, idempotency.as_ref())).await
    }

    async fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, Unavailable> {
        self.readers.read(move |connection| keys::get(connection, account, id)).await
    }

    async fn keys(&self, account: AccountId, page: Page) -> Result<Vec<ApiKey>, Unavailable> {
        self.readers.read(move |connection| keys::list(connection, account, page)).await
    }

    async fn update_key(
        &self,
        account: AccountId,
        id: KeyId,
        patch: KeyPatch,
    ) -> Result<Option<Result<ApiKey, AlreadyRevoked>>, Unavailable> {
        self.writer.write(move |connection| keys::update(connection, account, id, &patch)).await
    }

    async fn revoke_key(
        &self,
        account: AccountId,
        id: KeyId,
        now: Timestamp,
    ) -> Result<Option<ApiKey>, Unavailable> {
        self.writer.write(move |connection| keys::revoke(connection, account, id, now)).await
    }

    async fn journal(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Result<JournalPage, Unavailable> {
        let entries = self.readers.read(move |connection| journal::page(connection, account, after, limit));
        Ok(JournalPage { entries: entries.await?, gone_until: 0 })
    }

    async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        key: Option<KeyId>,
    ) -> Result<Vec<UsageLine>, Unavailable> {
        self.readers.read(move |connection| usage::list(connection, account, &days, key)).await
    }

    async fn audit(&self, account: AccountId) -> Result<Option<Audit>, Unavailable> {
        audit::run(&self.path, account).await
    }

    async fn ping(&self) -> Result<(), Unavailable> {
        self.readers.read(file::ping).await
    }
}
