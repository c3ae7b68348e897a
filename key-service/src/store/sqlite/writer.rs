//! The writer thread: runs all waiting calls in one transaction, and answers after the sync.

use std::{path::Path, sync::Arc};

use rusqlite::Connection;
use shared::{ids::AccountId, time::Timestamp};

use super::{
    file::{FileIdentity, OpenError, check_version, open, open_in_memory},
    ledger_batch::{self, Request},
    queue::{Calls, Queue, Reply, queue},
};
use crate::store::{EVENTS_KEPT, EventBounds, Outcomes, StoreError, latency::timed};
use domain::ledger::Command;

/// Largest number of calls in a transaction, which bounds the wait of the first call for the last, and the work that a
/// failed sync undoes.
const CALLS_PER_TRANSACTION: usize = 256;

/// Writer that runs changes in batches, possibly reordered, and answers durable changes.
pub(super) struct Writer {
    calls: Queue<Call>,
    /// `None` in memory.
    file: Option<Arc<FileIdentity>>,
    /// Bounds of the events of an account.
    pub(super) events: EventBounds,
}

/// Something to write.
enum Call {
    /// Commands to an account; commands to the same account are executed together.
    Execute { account: AccountId, request: Request, reply: Reply<Outcomes> },
    /// Any other change.
    Change(Box<dyn Change>),
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

    fn start(mut connection: Connection, file: Option<Arc<FileIdentity>>) -> Result<Self, OpenError> {
        let (mut calls, waiting) = queue();
        let written = file.clone();
        calls
            .serve("store-writer", move || serve(&mut connection, written.as_deref(), waiting))
            .map_err(OpenError::NoThread)?;
        Ok(Self { calls, file, events: EventBounds::with_life(EVENTS_KEPT) })
    }

    /// The file being written; `None` in memory.
    pub(super) fn file(&self) -> Option<&FileIdentity> {
        self.file.as_deref()
    }

    /// Fails if the file being written was removed or replaced.
    pub(super) fn check_file(&self) -> Result<(), StoreError> {
        self.file().map_or(Ok(()), FileIdentity::check)
    }

    /// Applies commands to an account.
    pub(super) async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, StoreError> {
        let _timed = timed("ledger");
        let request = Request { commands, now, events: self.events };
        self.calls.ask(|reply| Call::Execute { account, request, reply }).await
    }

    /// Makes a change that takes effect completely or not at all.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let _timed = timed("write");
        self.calls.ask(|reply| Call::Change(Box::new(Single { work: Some(work), done: None, reply }))).await
    }
}

fn serve(connection: &mut Connection, file: Option<&FileIdentity>, mut waiting: Calls<Call>) {
    let mut calls = Vec::with_capacity(CALLS_PER_TRANSACTION);
    while waiting.blocking_recv_many(&mut calls, CALLS_PER_TRANSACTION) > 0 {
        commit(connection, file, grouped(calls.drain(..)));
    }
}

/// A change that takes effect completely or not at all, and the callers waiting for its result.
trait Change: Send {
    /// Runs the change, and keeps the result.
    fn run(&mut self, connection: &Connection) -> rusqlite::Result<()>;

    /// Answers the callers that the change is durable, or failed for this reason.
    fn answer(self: Box<Self>, verdict: Result<(), StoreError>);
}

/// Groups commands by account. Calls are concurrent, so any order among calls is correct.
fn grouped(calls: impl Iterator<Item = Call>) -> Vec<Box<dyn Change>> {
    let mut changes: Vec<Box<dyn Change>> = Vec::new();
    let mut executes: Vec<Execute> = Vec::new();
    for call in calls {
        match call {
            Call::Change(change) => changes.push(change),
            Call::Execute { account, request, reply } => {
                let same = executes.iter_mut().find(|execute| execute.account == account);
                if let Some(execute) = same {
                    execute.requests.push(request);
                    execute.replies.push(reply);
                } else {
                    let (requests, replies) = (vec![request], vec![reply]);
                    executes.push(Execute { account, requests, replies, done: Vec::new() });
                }
            }
        }
    }
    changes.extend(executes.into_iter().map(|execute| Box::new(execute) as Box<dyn Change>));
    changes
}

/// Runs all changes, syncs once, and only then answers.
fn commit(connection: &mut Connection, file: Option<&FileIdentity>, mut changes: Vec<Box<dyn Change>>) {
    let checked = file.map_or(Ok(()), FileIdentity::check);
    let done = checked.and_then(|()| run_all(connection, &mut changes).map_err(|e| StoreError::from(&e)));
    let verdicts = done.unwrap_or_else(|failed| vec![Err(failed); changes.len()]);
    for (change, verdict) in changes.into_iter().zip(verdicts) {
        change.answer(verdict);
    }
}

/// Runs a transaction. Of several changes each has a savepoint, so that a failed change affects no other; a change alone
/// needs none, which would keep a copy of each page that it changes.
fn run_all(
    connection: &mut Connection,
    changes: &mut [Box<dyn Change>],
) -> rusqlite::Result<Vec<Result<(), StoreError>>> {
    let transaction = WriteTransaction::begin(connection)?;
    if let Err(newer) = check_version(transaction.connection)? {
        return Ok(vec![Err(newer); changes.len()]);
    }
    let mut verdicts = Vec::with_capacity(changes.len());
    let is_alone = changes.len() == 1;
    for change in changes {
        let connection = &mut *transaction.connection;
        let done = if is_alone { change.run(connection) } else { run_apart(connection, &mut **change) };
        match done {
            Ok(()) => verdicts.push(Ok(())),
            // SQLite rolled back the whole transaction: the disk is full or broken.
            Err(e) if transaction.connection.is_autocommit() => return Err(e),
            Err(e) => verdicts.push(Err(StoreError::from(&e))),
        }
    }
    if is_alone && verdicts.iter().any(Result::is_err) {
        return Ok(verdicts);
    }
    transaction.commit()?;
    Ok(verdicts)
}

/// Runs a change with a savepoint, to which a failure leads back.
fn run_apart(connection: &mut Connection, change: &mut dyn Change) -> rusqlite::Result<()> {
    let savepoint = connection.savepoint()?;
    change.run(&savepoint)?;
    savepoint.commit()
}

/// A transaction that is rolled back unless committed. Its statements are compiled once, unlike those of `rusqlite`'s.
struct WriteTransaction<'c> {
    connection: &'c mut Connection,
}

impl<'c> WriteTransaction<'c> {
    fn begin(connection: &'c mut Connection) -> rusqlite::Result<Self> {
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(Self { connection })
    }

    fn commit(self) -> rusqlite::Result<()> {
        self.connection.prepare_cached("COMMIT")?.execute([]).map(drop)
    }
}

impl Drop for WriteTransaction<'_> {
    fn drop(&mut self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "cannot roll back");
        }
    }
}

/// The change of a single caller.
struct Single<W, T> {
    /// Taken by the run.
    work: Option<W>,
    done: Option<T>,
    reply: Reply<T>,
}

impl<W, T> Change for Single<W, T>
where
    W: FnOnce(&Connection) -> rusqlite::Result<T> + Send,
    T: Send,
{
    fn run(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        if let Some(work) = self.work.take() {
            self.done = Some(work(connection)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, verdict: Result<(), StoreError>) {
        let Self { done, reply, .. } = *self;
        // The caller may have given up.
        let _ = reply.send(verdict.and_then(|()| done.ok_or_else(not_done)));
    }
}

/// Commands of all callers for one account.
struct Execute {
    account: AccountId,
    requests: Vec<Request>,
    /// Reply for each request.
    replies: Vec<Reply<Outcomes>>,
    /// Outcomes for each executed request.
    done: Vec<Outcomes>,
}

impl Change for Execute {
    fn run(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.done = ledger_batch::execute(connection, self.account, &self.requests)?;
        Ok(())
    }

    fn answer(self: Box<Self>, verdict: Result<(), StoreError>) {
        let mut done = self.done.into_iter();
        for reply in self.replies {
            let outcomes = done.next().ok_or_else(not_done);
            // The caller may have given up.
            let _ = reply.send(verdict.clone().and(outcomes));
        }
    }
}

/// Error of a change without a result, never seen, since a successful change always has a result.
fn not_done() -> StoreError {
    StoreError::Unavailable("it was not done".into())
}
