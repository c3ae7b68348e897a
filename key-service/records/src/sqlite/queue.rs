//! Queues of calls to the database's threads, with channels for the answers.

use std::{
    io,
    thread::{self, JoinHandle},
    time::Duration,
};

use rusqlite::Connection;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

use super::tables::Tables;
use crate::records::Failure;

/// Maximum number of calls in a queue; further calls wait outside. A full queue is a few milliseconds of work.
const QUEUED_CALLS: usize = 1024;

/// Longest wait of a call for its answer. It is twice the writer's wait for another process, so that a slow transaction
/// in that process fails no calls in this one.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Channel for the answer of a call.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Failure>>;

/// Work on the tables, which sends the answer itself.
pub(super) type Query = Box<dyn FnOnce(&mut Tables<'_>) + Send>;

/// Makes a query that sends the result of the work.
pub(super) fn query<T: Send + 'static>(
    work: impl FnOnce(&mut Tables<'_>) -> Result<T, Failure> + Send + 'static,
    reply: Reply<T>,
) -> Query {
    Box::new(move |tables| {
        // The caller may have given up.
        let _ = reply.send(work(tables));
    })
}

/// Receiving end of a queue.
pub(super) type QueuedCalls<C> = mpsc::Receiver<C>;

/// A bounded queue of calls, with threads that serve it until it is dropped and empty.
pub(super) struct Queue<C> {
    /// Taken when dropped, which ends the threads once the queue is empty.
    calls: Option<mpsc::Sender<C>>,
    threads: Vec<JoinHandle<()>>,
}

pub(super) fn queue<C>() -> (Queue<C>, QueuedCalls<C>) {
    let (sender, receiver) = mpsc::channel(QUEUED_CALLS);
    (Queue { calls: Some(sender), threads: Vec::new() }, receiver)
}

impl<C> Queue<C> {
    /// Starts a thread that serves the queue over a connection. Dropping the queue joins the thread.
    pub(super) fn serve(
        &mut self,
        name: &str,
        connection: Connection,
        serve: impl FnOnce(&mut Tables<'_>) + Send + 'static,
    ) -> io::Result<()> {
        let serve = move || match Tables::new(&connection) {
            Ok(mut tables) => serve(&mut tables),
            // Happens only if memory runs out, since opening the database has already prepared them once.
            Err(error) => tracing::error!(%error, "cannot prepare the store's statements"),
        };
        self.threads.push(thread::Builder::new().name(name.into()).spawn(serve)?);
        Ok(())
    }

    /// Queues a call and waits for the answer, both within one deadline. A call that found no place in the queue is not
    /// carried out; a call that got no answer may still be carried out.
    pub(super) async fn ask<T>(&self, call: impl FnOnce(Reply<T>) -> C) -> Result<T, Failure> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        let (reply, answer) = oneshot::channel();
        let stopped = || "SQLite: the thread has stopped".to_owned();
        let late = |_| format!("SQLite: no answer within {} s", CALL_TIMEOUT.as_secs());
        let send = async {
            let calls = self.calls.as_ref().ok_or_else(stopped)?;
            timeout_at(deadline, calls.send(call(reply))).await.map_err(late)?.map_err(|_| stopped())
        };
        send.await.map_err(Failure::NotDone)?;
        let answered =
            timeout_at(deadline, answer).await.map_err(late).and_then(|it| it.map_err(|_| stopped()));
        answered.map_err(Failure::Unknown)?
    }
}

impl<C> Drop for Queue<C> {
    fn drop(&mut self) {
        self.calls.take();
        for thread in self.threads.drain(..) {
            // A thread that panicked has left a message on standard error.
            let _ = thread.join();
        }
    }
}
