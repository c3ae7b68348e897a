//! The writer thread: carries out all waiting commits in one transaction, and answers after the sync.

use std::{path::Path, slice, sync::Arc};

use rusqlite::Connection;

use super::{
    changes::Changes,
    failures::CallError,
    file::{FileIdentity, OpenError, check_layout, open, open_in_memory},
    queue::{Query, Queue, QueuedCalls, Reply, query, queue},
    revisions::Revisions,
    tables::{Tables, TransactionKind},
};
use crate::records::{Commit, Committed, Failure, Space};

/// Maximum number of calls in a transaction. It limits how long the first call waits for the last call, and how much is
/// undone if the sync fails.
const CALLS_PER_TRANSACTION: usize = 256;

/// Writes commits. Each takes effect as a whole or not at all.
pub(super) struct Writer {
    calls: Queue<WriterCall>,
    file: Option<Arc<FileIdentity>>,
}

enum WriterCall {
    Commit(QueuedCommit),
    /// Other work on the writer's connection, which is done between transactions.
    Run(Query),
}

struct QueuedCommit {
    space: Space,
    commit: Commit,
    reply: Reply<Committed>,
}

impl Writer {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let connection = open(path)?;
        let failed = |e| OpenError::NotMade(path.to_owned(), e);
        Self::start(connection, Some(Arc::new(FileIdentity::of(path).map_err(failed)?)))
    }

    pub(super) fn in_memory() -> Result<Self, OpenError> {
        Self::start(open_in_memory()?, None)
    }

    fn start(connection: Connection, file: Option<Arc<FileIdentity>>) -> Result<Self, OpenError> {
        let (mut calls, waiting) = queue();
        let mut thread =
            WriterThread { file: file.clone(), revisions: Revisions::default(), data_version: None };
        let serve = move |tables: &mut Tables<'_>| thread.serve(tables, waiting);
        calls.serve("store-writer", connection, serve).map_err(OpenError::NoThread)?;
        Ok(Self { calls, file })
    }

    /// Returns the file that the writer writes; `None` in memory.
    pub(super) fn file(&self) -> Option<&FileIdentity> {
        self.file.as_deref()
    }

    /// Fails if the writer's file was removed or replaced.
    pub(super) fn check_file(&self) -> Result<(), Failure> {
        self.file().map_or(Ok(()), FileIdentity::check)
    }

    pub(super) async fn commit(&self, space: Space, commit: Commit) -> Result<Committed, Failure> {
        self.calls.ask(|reply| WriterCall::Commit(QueuedCommit { space, commit, reply })).await
    }

    /// Runs a query on the writer's connection.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tables<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.calls.ask(|reply| WriterCall::Run(query(work, reply))).await
    }
}

struct WriterThread {
    file: Option<Arc<FileIdentity>>,
    /// Revisions of committed records. During a transaction, also the revisions of the records that the transaction has
    /// written.
    revisions: Revisions,
    /// A number that changes when another connection writes. As long as it does not change, the known revisions are
    /// current.
    data_version: Option<i64>,
}

type Answers = Vec<Result<Committed, Failure>>;

impl WriterThread {
    fn serve(&mut self, tables: &mut Tables<'_>, mut waiting: QueuedCalls<WriterCall>) {
        let mut calls = Vec::with_capacity(CALLS_PER_TRANSACTION);
        while waiting.blocking_recv_many(&mut calls, CALLS_PER_TRANSACTION) > 0 {
            let mut commits = Vec::with_capacity(calls.len());
            for call in calls.drain(..) {
                match call {
                    WriterCall::Commit(commit) => commits.push(commit),
                    WriterCall::Run(query) => query(tables),
                }
            }
            if !commits.is_empty() {
                self.commit(tables, commits);
            }
        }
    }

    /// Carries out commits in one transaction, and answers them only after it has been committed.
    fn commit(&mut self, tables: &mut Tables<'_>, commits: Vec<QueuedCommit>) {
        let answers = match self.transact(tables, &commits) {
            Ok(answers) => answers,
            // One faulty call has undone all calls, so each call is repeated alone. With savepoints instead, every
            // commit would have to copy each page that it changes.
            Err(CallError::Own(_)) if commits.len() > 1 => {
                commits.iter().map(|commit| self.transact_alone(tables, commit)).collect()
            }
            Err(error) => vec![Err(error.into()); commits.len()],
        };
        for (commit, answer) in commits.into_iter().zip(answers) {
            // The caller may have been dropped.
            let _ = commit.reply.send(answer);
        }
    }

    fn transact_alone(
        &mut self,
        tables: &mut Tables<'_>,
        commit: &QueuedCommit,
    ) -> Result<Committed, Failure> {
        let mut answers = self.transact(tables, slice::from_ref(commit))?;
        answers.pop().unwrap_or_else(|| Err(Failure::NotDone("SQLite: no answer".into())))
    }

    /// Runs a transaction. The answers are valid only if the transaction is committed.
    fn transact(&mut self, tables: &mut Tables<'_>, commits: &[QueuedCommit]) -> Result<Answers, CallError> {
        self.file.as_deref().map_or(Ok(()), FileIdentity::check).map_err(CallError::All)?;
        // A transaction that only asks questions does not wait for another process.
        let is_writing = commits.iter().any(|commit| !commit.commit.writes.is_empty());
        let access = if is_writing { TransactionKind::Write } else { TransactionKind::Read };
        let done = tables.transact(access, |tables| {
            self.notice_others(tables)?;
            let one = |QueuedCommit { space, commit, .. }: &QueuedCommit| {
                Changes::of(space, tables, &mut self.revisions).commit(commit).map(Ok)
            };
            commits.iter().map(one).collect()
        });
        if done.is_err() {
            self.revisions.clear();
        }
        done
    }

    /// Forgets the revisions if another connection has written. This transaction has already begun, so from now on no
    /// other connection can write.
    fn notice_others(&mut self, tables: &mut Tables<'_>) -> Result<(), CallError> {
        let seen = tables.data_version()?;
        if self.data_version != Some(seen) {
            check_layout(tables.connection)?;
            self.revisions.clear();
            self.data_version = Some(seen);
        }
        Ok(())
    }
}
