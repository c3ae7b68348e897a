//! Reader threads, so that a long listing does not block commits.

use std::{path::Path, sync::Arc};

use parking_lot::Mutex;

use super::{
    file::{OpenError, open_reader},
    queue::{Query, Queue, query, queue},
    tables::Tables,
};
use crate::records::Failure;

/// There are two threads, so that a short query need not wait for a long listing.
const THREADS: usize = 2;

/// Runs queries on separate connections.
pub(super) struct Readers(Queue<Query>);

impl Readers {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let (mut queries, waiting) = queue::<Query>();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..THREADS {
            let waiting = Arc::clone(&waiting);
            let serve = move |tables: &mut Tables<'_>| {
                // One idle thread holds the lock while it waits for the next query. It releases the lock before it
                // answers the query.
                let next = || waiting.lock().blocking_recv();
                while let Some(query) = next() {
                    query(tables);
                }
            };
            queries.serve("store-reader", open_reader(path)?, serve).map_err(OpenError::NoThread)?;
        }
        Ok(Self(queries))
    }

    /// Runs a query on the last committed state.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tables<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.0.ask(|reply| query(work, reply)).await
    }
}
