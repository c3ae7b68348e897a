//! Simulated outages of a backend, for tests of the store's callers.

#![allow(clippy::unwrap_used, reason = "panics are fine as test failures")]

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use async_trait::async_trait;
use records::{Answer, Commit, Committed, Failure, Place, Question, Records, Space, maps::Maps};
use shared::time::Timestamp;

/// Records in memory that fail, or are nearly full, when a test says so.
pub struct Unreliable {
    maps: Maps,
    calls_left: AtomicU64,
    is_nearly_full: AtomicBool,
    losses: Mutex<Vec<i64>>,
}

impl Default for Unreliable {
    fn default() -> Self {
        let (calls_left, is_nearly_full) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        Self { maps: Maps::default(), calls_left, is_nearly_full, losses: Mutex::default() }
    }
}

impl Unreliable {
    /// Fails after this many further reads and commits.
    pub fn fail_after(&self, calls: u64) {
        self.calls_left.store(calls, Ordering::SeqCst);
    }

    /// Ends the outage.
    pub fn recover(&self) {
        self.fail_after(u64::MAX);
    }

    /// From now on the backend says that it is nearly full, or that it is not.
    pub fn set_nearly_full(&self, is_nearly_full: bool) {
        self.is_nearly_full.store(is_nearly_full, Ordering::SeqCst);
    }

    /// From now on the backend says that commits since this time may have been lost, without losing any.
    pub fn lose_since(&self, since: Timestamp) {
        self.losses.lock().unwrap().push(since.millis());
    }

    /// Number of records in the spaces whose names begin like this.
    pub fn count_in(&self, spaces: &str) -> usize {
        self.maps.count_in(spaces)
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
        self.pass()?;
        self.maps.read(space, questions).await
    }

    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure> {
        self.pass()?;
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
