//! The writer thread: carries out all waiting commits in one transaction, and answers after the sync.

use std::{path::Path, slice, sync::Arc};

use rusqlite::Connection;

use super::{
    changes::Changes,
    file::{FileIdentity, OpenError, is_our_layout, open, open_in_memory},
    queue::{Calls, Queue, Reply, queue},
    readers::Query,
    revisions::Revisions,
    transaction::{Access, CallError, OpenTransaction, maybe_done},
};
use crate::records::{Commit, Committed, Failure, Space};

/// Largest number of calls in a transaction, which bounds the wait of the first call for the last, and the work that a
/// failed sync undoes.
const CALLS_PER_TRANSACTION: usize = 256;

/// Writer of commits, each of which takes effect whole or not at all.
pub(super) struct Writer {
    calls: Queue<Call>,
    /// `None` in memory.
    file: Option<Arc<FileIdentity>>,
}

enum Call {
    Commit(QueuedCommit),
    /// Something else that uses the writer's connection, outside of its transactions.
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
        let (revisions, data_version) = (Revisions::default(), None);
        let mut thread = WriterThread { connection, file: file.clone(), revisions, data_version };
        calls.serve("store-writer", move || thread.serve(waiting)).map_err(OpenError::NoThread)?;
        Ok(Self { calls, file })
    }

    /// Fails if the file being written was removed or replaced.
    pub(super) fn check_file(&self) -> Result<(), Failure> {
        self.file.as_deref().map_or(Ok(()), FileIdentity::check)
    }

    pub(super) async fn commit(&self, space: Space, commit: Commit) -> Result<Committed, Failure> {
        self.calls.ask(|reply| Call::Commit(QueuedCommit { space, commit, reply })).await
    }

    /// Runs a query on the writer's connection.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let call = |reply: Reply<T>| {
            Call::Run(Box::new(move |connection| {
                // The caller may have given up.
                let _ = reply.send(query(connection));
            }))
        };
        self.calls.ask(call).await
    }
}

/// What the thread keeps between transactions.
struct WriterThread {
    connection: Connection,
    file: Option<Arc<FileIdentity>>,
    /// Revisions of committed records, and within a transaction those that it has written.
    revisions: Revisions,
    /// Changes when another connection writes. Until then the revisions are true.
    data_version: Option<i64>,
}

impl WriterThread {
    fn serve(&mut self, mut waiting: Calls<Call>) {
        let mut calls = Vec::with_capacity(CALLS_PER_TRANSACTION);
        while waiting.blocking_recv_many(&mut calls, CALLS_PER_TRANSACTION) > 0 {
            let mut commits = Vec::with_capacity(calls.len());
            for call in calls.drain(..) {
                match call {
                    Call::Commit(commit) => commits.push(commit),
                    Call::Run(query) => query(&self.connection),
                }
            }
            if !commits.is_empty() {
                self.commit(commits);
            }
        }
    }

    /// Carries out commits, and only then answers.
    fn commit(&mut self, commits: Vec<QueuedCommit>) {
        let answers = match self.transact(&commits) {
            Err(CallError::Own(_)) if commits.len() > 1 => self.transact_each(&commits),
            Err(error) => vec![Err(error.into_failure()); commits.len()],
            Ok(answers) => answers,
        };
        for (commit, answer) in commits.into_iter().zip(answers) {
            // The caller may have given up.
            let _ = commit.reply.send(answer);
        }
    }

    /// Carries out each commit in a transaction of its own, since one that is at fault has undone them all. Seldom: its
    /// caller is wrong, or a counter overflows. Savepoints would cost every commit a copy of each page that it changes.
    fn transact_each(&mut self, commits: &[QueuedCommit]) -> Vec<Result<Committed, Failure>> {
        let alone = |commit| {
            let mut answers = self.transact(slice::from_ref(commit)).map_err(CallError::into_failure)?;
            answers.pop().unwrap_or_else(|| Err(Failure::NotDone("SQLite: no answer".into())))
        };
        commits.iter().map(alone).collect()
    }

    /// Runs a transaction. What its commits were told by one another holds only if it is committed.
    fn transact(&mut self, commits: &[QueuedCommit]) -> Result<Vec<Result<Committed, Failure>>, CallError> {
        let done = self.run_transaction(commits);
        if done.is_err() {
            self.revisions.clear();
        }
        done
    }

    fn run_transaction(
        &mut self,
        commits: &[QueuedCommit],
    ) -> Result<Vec<Result<Committed, Failure>>, CallError> {
        self.file.as_deref().map_or(Ok(()), FileIdentity::check).map_err(CallError::All)?;
        // Mere questions wait for no other process.
        let is_writing = commits.iter().any(|commit| !commit.commit.writes.is_empty());
        let access = if is_writing { Access::Write } else { Access::Read };
        let transaction = OpenTransaction::begin(&self.connection, access)?;
        notice_others(&self.connection, &mut self.data_version, &mut self.revisions)?;
        let mut answers = Vec::with_capacity(commits.len());
        for QueuedCommit { space, commit, .. } in commits {
            let (connection, revisions) = (transaction.connection, &mut self.revisions);
            answers.push(Ok(Changes { connection, space, revisions }.commit(commit)?));
        }
        transaction.commit().map_err(maybe_done)?;
        Ok(answers)
    }
}

/// Forgets the revisions if another connection has written. The transaction has begun, so that none writes any more.
fn notice_others(
    connection: &Connection,
    data_version: &mut Option<i64>,
    revisions: &mut Revisions,
) -> Result<(), CallError> {
    let seen = connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
    if *data_version == Some(seen) {
        return Ok(());
    }
    if !is_our_layout(connection)? {
        let taken_over = "a newer version has taken over the file; stop this one";
        return Err(CallError::All(Failure::NotDone(taken_over.into())));
    }
    revisions.clear();
    *data_version = Some(seen);
    Ok(())
}
