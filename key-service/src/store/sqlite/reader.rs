//! Reader threads, so that a long listing does not block writes.

use std::{path::Path, sync::Arc};

use parking_lot::Mutex;
use rusqlite::Connection;

use super::{
    file::{OpenError, open_reader},
    queue::{Calls, Queue, queue},
};
use crate::store::{StoreError, latency::timed};

/// Two threads, so that a short query need not wait behind a long listing.
const THREADS: usize = 2;

/// A query, which sends the answer itself.
type Question = Box<dyn FnOnce(&Connection) + Send>;

/// Runs queries on separate connections.
pub(super) struct Readers {
    questions: Queue<Question>,
}

impl Readers {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let (mut questions, waiting) = queue();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..THREADS {
            let (connection, waiting) = (open_reader(path)?, Arc::clone(&waiting));
            questions
                .serve("store-reader", move || serve(&connection, &waiting))
                .map_err(OpenError::NoThread)?;
        }
        Ok(Self { questions })
    }

    /// Runs a query on the last committed state.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        look_up: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let _timed = timed("read");
        self.questions
            .ask(|reply| -> Question {
                Box::new(move |connection| {
                    // The caller may have given up.
                    let _ = reply.send(look_up(connection).map_err(|e| StoreError::from(&e)));
                })
            })
            .await
    }
}

/// Serves queries. An idle thread holds the lock during the wait for the next query, and releases the lock before the
/// answer.
fn serve(connection: &Connection, waiting: &Mutex<Calls<Question>>) {
    let next = || waiting.lock().blocking_recv();
    while let Some(question) = next() {
        question(connection);
    }
}
