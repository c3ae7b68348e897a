//! Simulated outages of a backend, for tests of the store's callers.

#![allow(clippy::unwrap_used, reason = "panics are fine as test failures")]

use std::sync::{
    Mutex, OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use async_trait::async_trait;
use records::{Answer, Commit, Committed, Failure, Place, Question, Records, Space, maps::Maps};
use shared::time::Timestamp;

/// In-memory records that a test can make fail or report as nearly full.
pub struct Unreliable {
    maps: Maps,
    calls_left: AtomicU64,
    is_nearly_full: AtomicBool,
    losses: Mutex<Vec<i64>>,
    /// A space that cannot be reached.
    away: OnceLock<Space>,
    /// Calls to that space hang instead of failing.
    is_silent: AtomicBool,
}

impl Default for Unreliable {
    fn default() -> Self {
        let (calls_left, is_nearly_full) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        let (losses, away, is_silent) = (Mutex::default(), OnceLock::new(), AtomicBool::new(false));
        Self { maps: Maps::default(), calls_left, is_nearly_full, losses, away, is_silent }
    }
}

impl Unreliable {
    /// Makes reads and commits fail after this many more calls.
    pub fn fail_after(&self, calls: u64) {
        self.calls_left.store(calls, Ordering::SeqCst);
    }

    /// Makes a space unreachable from now on, as when a cluster's master is down.
    #[cfg(test)]
    fn take_away(&self, space: Space) {
        self.away.set(space).unwrap();
    }

    /// Ends the outage.
    pub fn recover(&self) {
        self.fail_after(u64::MAX);
    }

    /// Sets whether the backend reports that it is nearly full.
    pub fn set_nearly_full(&self, is_nearly_full: bool) {
        self.is_nearly_full.store(is_nearly_full, Ordering::SeqCst);
    }

    /// Makes the backend report that commits since this time may have been lost, without losing any.
    pub fn lose_since(&self, since: Timestamp) {
        self.losses.lock().unwrap().push(since.millis());
    }

    /// Counts the records in the spaces whose names begin with this text.
    pub fn count_in(&self, spaces: &str) -> usize {
        self.maps.count_in(spaces)
    }

    async fn reach(&self, space: &Space) -> Result<(), Failure> {
        if self.away.get() == Some(space) {
            if self.is_silent.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            return Err(Failure::NotDone("its master is away".into()));
        }
        self.pass()
    }

    fn pass(&self) -> Result<(), Failure> {
        let took =
            self.calls_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        took.map(drop).map_err(|_| Failure::Unknown("the disk at 10.0.0.7 is on fire".into()))
    }
}

#[async_trait]
impl Records for Unreliable {
    fn system(&self) -> &'static str {
        self.maps.system()
    }

    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure> {
        self.reach(space).await?;
        self.maps.read(space, questions).await
    }

    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure> {
        self.reach(space).await?;
        self.maps.commit(space, commit).await
    }

    async fn places(&self) -> Result<Vec<(Space, Place)>, Failure> {
        self.pass()?;
        self.maps.places().await
    }

    async fn is_nearly_full(&self) -> Result<bool, Failure> {
        Ok(self.is_nearly_full.load(Ordering::SeqCst))
    }

    async fn losses(&self) -> Result<Vec<i64>, Failure> {
        Ok(self.losses.lock().unwrap().clone())
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use domain::ledger::histories::{START, generation};
    use tokio::time::timeout;

    use super::*;
    use crate::{
        store::{Ledger as _, layout},
        suite::{hold, make_key, open_account_with, over},
    };

    #[tokio::test]
    async fn an_account_has_holds_and_is_listed_elsewhere_while_its_part_of_the_list_is_away() {
        is_listed_elsewhere(false).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_has_holds_in_time_while_its_part_of_the_list_does_not_answer() {
        is_listed_elsewhere(true).await;
    }

    async fn is_listed_elsewhere(is_silent: bool) {
        let records = Arc::new(Unreliable::default());
        let store = over(Arc::<Unreliable>::clone(&records));
        let account = open_account_with(&store, 1, 100).await;
        let key = make_key(&store, account, 1, None).await;
        records.take_away(layout::holders(account).next().unwrap());
        records.is_silent.store(is_silent, Ordering::SeqCst);
        let opened = timeout(
            Duration::from_secs(1),
            store.execute(account, vec![hold(key, generation(1), 5, 7)], START),
        );
        let opened = opened.await.unwrap().unwrap();
        assert!(opened[0].is_ok(), "{opened:?}");
        records.is_silent.store(false, Ordering::SeqCst);
        let holders = store.accounts_with_holds().await;
        assert_eq!(holders.accounts, [account]);
        assert!(holders.missing.is_some(), "that part may list other accounts");
    }
}
