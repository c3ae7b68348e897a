//! The embedded store: an SQLite file without any setup, shared with the command line while the server runs; or SQLite
//! in memory.
//!
//! A single thread writes, with many callers in a transaction; other threads read the last committed state. No data of
//! the file is cached between calls, since another process may write too.

mod books;
pub(crate) mod copy;
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

use std::path::Path;

use async_trait::async_trait;
use rusqlite::{Connection, ErrorCode, ffi::SQLITE_CONSTRAINT_FOREIGNKEY};

pub(crate) use self::file::OpenError;
use self::{file::FileIdentity, reader::Readers, tables::events::ActLog, writer::Writer};
use super::{Capacity, EventBounds, StoreError};
use domain::event::Act;

/// A store in a file or in memory. Dropping the store finishes queued calls and closes the file.
pub(crate) struct Sqlite {
    /// `None` in memory, where the writer reads as well. Dropped first: the last connection to close merges the
    /// write-ahead log into the file, which is the writer's task.
    readers: Option<Readers>,
    writer: Writer,
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
        Self { readers, writer }
    }

    /// Sets the bounds of events.
    pub(crate) fn keeping_events(mut self, bounds: EventBounds) -> Self {
        self.writer.events = bounds;
        self
    }

    /// Makes a change that an act asks for, and writes the event of the act with the change.
    async fn govern<T: Send + 'static>(
        &self,
        act: &Act,
        work: impl FnOnce(&Connection, &ActLog) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let log = ActLog { act: act.clone(), kept: self.writer.events };
        self.writer.write(move |connection| work(connection, &log)).await
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
impl Capacity for Sqlite {
    /// Returns `false`: the only bound of the file is its disk, which others fill as well. A full disk refuses writes that
    /// need room, and changes nothing.
    async fn is_nearly_full(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn used_ratio(&self) -> Result<Option<f64>, StoreError> {
        let ratio = self.writer.file().map(FileIdentity::disk_used_ratio).transpose();
        ratio.map_err(|e| StoreError::Unavailable(format!("the disk cannot be looked at: {e}")))
    }

    async fn persistence_warning(&self) -> Option<&'static str> {
        self.writer.file().is_none().then_some("all is in memory, and gone when the process ends")
    }

    /// Writes the version of the tables again.
    async fn try_write(&self) -> Result<(), StoreError> {
        self.writer.write(file::write_version_again).await
    }
}
