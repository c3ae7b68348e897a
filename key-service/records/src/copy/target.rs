//! Writes to the target of a copy, in commits of a bounded size.

use std::sync::Arc;

use super::error::{CopyError, no_answer};
use crate::records::{
    Answer, Commit, Committed, Index, Log, MOST_WORDS, Name, Order, Question, Record, Records, Space, Write,
};

/// Maximum number of writes in a commit. Each takes at most four words.
const MOST_WRITES: usize = MOST_WORDS / 4;
/// Approximate maximum size of a commit in bytes, so that it blocks the backend only briefly.
const MOST_BYTES: usize = 1 << 20;
/// Number of a log's values that are appended together. Redis stores them in one item and reads whole items, so small
/// items are quick to read; but each item costs some extra bytes.
const APPENDED_TOGETHER: usize = 8;

pub(super) struct Target<'a> {
    to: &'a Arc<dyn Records>,
    space: &'a Space,
    writes: Vec<Write>,
    words: usize,
    bytes: usize,
}

impl<'a> Target<'a> {
    pub(super) const fn new(to: &'a Arc<dyn Records>, space: &'a Space) -> Self {
        Self { to, space, writes: Vec::new(), words: 0, bytes: 0 }
    }

    pub(super) async fn put(&mut self, name: Name, record: Record) -> Result<(), CopyError> {
        let bytes = name.key.len() + record.as_bytes().len();
        self.write(1, bytes, Write::Put(name, record)).await
    }

    pub(super) async fn enter(&mut self, index: Index, entry: Vec<u8>) -> Result<(), CopyError> {
        self.write(1, entry.len(), Write::Enter(index, entry)).await
    }

    /// Appends values. The target may already have the first of them.
    pub(super) async fn append(&mut self, log: Log, values: Vec<(u64, Vec<u8>)>) -> Result<(), CopyError> {
        let last = self.last_number(log).await?;
        let mut values = values.into_iter().filter(|(number, _)| *number > last).peekable();
        while let Some((first, value)) = values.next() {
            let mut run = vec![value];
            while run.len() < APPENDED_TOGETHER
                && let Some((_, value)) = values.next_if(|(number, _)| *number == first + run.len() as u64)
            {
                run.push(value);
            }
            let bytes = run.iter().map(Vec::len).sum();
            let writes = run.len() + 1;
            self.write(writes, bytes, Write::Append { log, first, values: run, kept: u64::MAX }).await?;
        }
        // Writes these first, so that the next values come after them.
        self.flush().await
    }

    /// Adds a write of this size. If it does not fit, sends the pending commit first.
    async fn write(&mut self, writes: usize, bytes: usize, write: Write) -> Result<(), CopyError> {
        if self.words + writes > MOST_WRITES || (self.bytes > 0 && self.bytes + bytes > MOST_BYTES) {
            self.flush().await?;
        }
        self.writes.push(write);
        self.words += writes;
        self.bytes += bytes;
        Ok(())
    }

    pub(super) async fn flush(&mut self) -> Result<(), CopyError> {
        if self.writes.is_empty() {
            return Ok(());
        }
        (self.words, self.bytes) = (0, 0);
        let commit = Commit { writes: std::mem::take(&mut self.writes), ..Commit::default() };
        match self.to.commit(self.space, commit).await? {
            Committed::Written => Ok(()),
            Committed::Conflict(_) => Err(CopyError::Differs(self.space.as_str().to_owned())),
        }
    }

    async fn last_number(&self, log: Log) -> Result<u64, CopyError> {
        let last = Question::Values { log, from: 0, to: u64::MAX, order: Order::Descending, limit: 1 };
        match self.to.read(self.space, vec![last]).await?.pop() {
            Some(Answer::Values(values)) => Ok(values.first().map_or(0, |(number, _)| *number)),
            Some(_) | None => Err(no_answer()),
        }
    }
}
