//! The backend in SQLite: a file without any setup, shared with the command line while the server runs; or memory.
//!
//! A single thread writes, with many commits in a transaction; other threads read the last committed state. A commit that
//! was answered survives the loss of the machine, since the answer follows the sync.

mod changes;
mod file;
mod questions;
mod queue;
mod readers;
mod revisions;
#[cfg(test)]
mod tests;
mod transaction;
mod writer;

use std::path::Path;

use async_trait::async_trait;

pub use self::file::OpenError;
use self::{questions::answer_all, readers::Readers, writer::Writer};
use crate::records::{Answer, Commit, Committed, Failure, Question, Records, Space};

/// Records in a file or in memory. Dropping the value finishes queued commits and closes the file.
pub struct Sqlite {
    /// `None` in memory, where the writer reads as well. Dropped first: the last connection to close merges the
    /// write-ahead log into the file, which is the writer's task.
    readers: Option<Readers>,
    writer: Writer,
}

impl Sqlite {
    /// Opens the file, or makes it if it is missing or empty. A file of another layout stays as it is.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let writer = Writer::open(path)?;
        Ok(Self { readers: Some(Readers::open(path)?), writer })
    }

    /// Opens a database in memory, which ends with the value.
    pub fn in_memory() -> Result<Self, OpenError> {
        Ok(Self { readers: None, writer: Writer::in_memory()? })
    }
}

#[async_trait]
impl Records for Sqlite {
    fn system(&self) -> &'static str {
        "sqlite"
    }

    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure> {
        self.writer.check_file()?;
        let space = space.clone();
        match &self.readers {
            Some(readers) => readers.read(move |connection| answer_all(connection, &space, &questions)).await,
            None => self.writer.run(move |connection| answer_all(connection, &space, &questions)).await,
        }
    }

    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure> {
        self.writer.commit(space.clone(), commit).await
    }
}
