//! The backend in SQLite: in memory, or in a file that needs no setup and that commands may use while the server runs.
//!
//! One thread writes, with many commits in a transaction; other threads read the last committed state. An answered
//! commit survives a crash of the machine, since the answer follows the sync.

mod changes;
pub mod copy;
mod failures;
mod file;
mod questions;
mod queue;
mod readers;
mod revisions;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

use std::path::Path;

use async_trait::async_trait;

pub use self::file::OpenError;
use self::{
    file::{FileIdentity, check_layout, write_layout_again},
    questions::answer_all,
    readers::Readers,
    tables::{Tables, TransactionKind},
    writer::Writer,
};
use crate::{
    latency::timed,
    records::{Answer, Commit, Committed, Failure, MissingServers, Place, Question, Records, Space},
};

/// Maximum number of words in a commit, so large that an import of thousands of keys takes effect as a whole. Other
/// commits wait about a second for such a commit.
const MOST_WORDS: usize = 1_000_000;

/// Records in a file or in memory. Dropping this value finishes queued commits and closes the file.
pub struct Sqlite {
    /// `None` in memory, where the writer also reads. Readers are dropped first: the last connection to close merges
    /// the write-ahead log into the file, and that should be the writer's.
    readers: Option<Readers>,
    writer: Writer,
}

impl Sqlite {
    /// Opens the file, or creates it if it is missing or empty. A file with another layout is left unchanged.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let writer = Writer::open(path)?;
        Ok(Self { readers: Some(Readers::open(path)?), writer })
    }

    /// Opens a database in memory, which is lost when this value is dropped.
    pub fn in_memory() -> Result<Self, OpenError> {
        Ok(Self { readers: None, writer: Writer::in_memory()? })
    }

    /// Runs a query on the last committed state.
    async fn query<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tables<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let _timed = timed("read");
        self.writer.check_file()?;
        match &self.readers {
            Some(readers) => readers.read(work).await,
            None => self.writer.run(work).await,
        }
    }
}

#[async_trait]
impl Records for Sqlite {
    fn system(&self) -> &'static str {
        "sqlite"
    }

    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure> {
        let space = space.clone();
        self.query(move |tables| answer_all(tables, &space, &questions)).await
    }

    fn most_words(&self) -> usize {
        MOST_WORDS
    }

    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure> {
        let _timed = timed("write");
        self.writer.commit(space.clone(), commit).await
    }

    async fn places(&self) -> Result<Vec<(Space, Place)>, Failure> {
        self.query(|tables| tables.transact(TransactionKind::Read, Tables::places).map_err(Failure::from))
            .await
    }

    async fn ping(&self) -> Result<MissingServers, Failure> {
        self.query(|tables| Ok(check_layout(tables.connection)?)).await?;
        Ok(MissingServers::default())
    }

    /// Returns `false`: the file has no limit except its disk, which others fill too. A full disk refuses writes that
    /// need space, and loses nothing.
    async fn is_nearly_full(&self) -> Result<bool, Failure> {
        Ok(false)
    }

    async fn used_ratio(&self) -> Result<Option<f64>, Failure> {
        let ratio = self.writer.file().map(FileIdentity::disk_used_ratio).transpose();
        ratio.map_err(|e| Failure::NotDone(format!("cannot check the disk: {e}")))
    }

    async fn persistence_warnings(&self) -> Vec<&'static str> {
        let in_memory = self.writer.file().is_none();
        in_memory.then_some("everything is in memory and is lost when the process ends").into_iter().collect()
    }

    /// Writes the layout's number again, which changes no data.
    async fn try_write(&self) -> Result<MissingServers, Failure> {
        let _timed = timed("write");
        self.writer.check_file()?;
        let write = |tables: &mut Tables<'_>| {
            check_layout(tables.connection)?;
            write_layout_again(tables.connection)
        };
        self.writer.run(move |tables| Ok(tables.transact(TransactionKind::Write, write)?)).await?;
        Ok(MissingServers::default())
    }
}
