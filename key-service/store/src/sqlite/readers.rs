//! Reader threads, so that a long listing does not block commits.

use std::{path::Path, sync::Arc};

use parking_lot::Mutex;
use rusqlite::Connection;

use super::{
    file::{OpenError, open_reader},
    queue::{Calls, Queue, Reply, queue},
};
use crate::records::Failure;

/// Two threads, so that a short query need not wait behind a long listing.
const THREADS: usize = 2;

/// A query, which sends the answer itself.
pub(super) type Query = Box<dyn FnOnce(&Connection) + Send>;

/// Runs queries on separate connections.
pub(super) struct Readers {
    queries: Queue<Query>,
}

impl Readers {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let (mut queries, waiting) = queue();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..THREADS {
            let (connection, waiting) = (open_reader(path)?, Arc::clone(&waiting));
            queries
                .serve("store-reader", move || serve(&connection, &waiting))
                .map_err(OpenError::NoThread)?;
        }
        Ok(Self { queries })
    }

    /// Runs a query on the last committed state.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let call = |reply: Reply<T>| -> Query {
            Box::new(move |connection| {
                // The caller may have given up.
                let _ = reply.send(query(connection));
            })
        };
        self.queries.ask(call).await
    }
}

/// Serves queries. An idle thread holds the lock during the wait for the next query, and releases the lock before the
/// answer.
fn serve(connection: &Connection, waiting: &Mutex<Calls<Query>>) {
    let next = || waiting.lock().blocking_recv();
    while let Some(query) = next() {
        query(connection);
    }
}
