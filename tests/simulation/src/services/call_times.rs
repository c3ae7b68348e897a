//! The ledger as a key-service calls it, and the time at which each call is judged.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use domain::ledger::Command;
use key_service_store::store::{
    Cursor, DueHolds, HoldIndex, Ledger, MissingServers, Outcomes, Skew, Store, StoreError,
};
use parking_lot::Mutex;
use shared::{ids::AccountId, time::Timestamp};
use tokio::time::Instant;

/// A call that was abandoned may still be carried out within this time: it may wait in its lane for 1.5 s, lose races
/// against the other key-service for 0.4 s, and be delayed by a stalled store for 2.5 s.
const CARRIED_OUT_WITHIN: Duration = Duration::from_secs(5);

/// The times of all calls to the ledger that are in progress in a process. Each call is judged at the wall time that
/// its caller read from the clock.
#[derive(Default)]
pub(crate) struct CallTimes(Mutex<CallsUnderWay>);

#[derive(Default)]
struct CallsUnderWay {
    begun: u64,
    awaited: BTreeMap<u64, Timestamp>,
    given_up: Vec<GivenUpCall>,
}

struct GivenUpCall {
    judged_at: Timestamp,
    given_up_at: Instant,
}

impl CallTimes {
    /// Finds the calls that a commit may carry out now. Returns the earliest time at which one of them is judged;
    /// `None` if there are no such calls.
    pub(crate) fn earliest(&self) -> Option<Timestamp> {
        let mut calls = self.0.lock();
        calls.given_up.retain(|call| call.given_up_at.elapsed() <= CARRIED_OUT_WITHIN);
        let given_up = calls.given_up.iter().map(|call| call.judged_at);
        calls.awaited.values().copied().chain(given_up).min()
    }

    fn begin(&self, judged_at: Timestamp) -> CallUnderWay<'_> {
        let mut calls = self.0.lock();
        calls.begun += 1;
        let number = calls.begun;
        calls.awaited.insert(number, judged_at);
        CallUnderWay { times: self, number, judged_at, is_answered: false }
    }
}

/// A call to the ledger. If this is dropped before the answer, the call counts as abandoned.
struct CallUnderWay<'t> {
    times: &'t CallTimes,
    number: u64,
    judged_at: Timestamp,
    is_answered: bool,
}

impl CallUnderWay<'_> {
    fn end(mut self) {
        self.is_answered = true;
    }
}

impl Drop for CallUnderWay<'_> {
    fn drop(&mut self) {
        let mut calls = self.times.0.lock();
        calls.awaited.remove(&self.number);
        if !self.is_answered {
            calls.given_up.push(GivenUpCall { judged_at: self.judged_at, given_up_at: Instant::now() });
        }
    }
}

/// The store of a key-service. It records the times at which its calls are judged.
pub(crate) struct TimedLedger {
    pub(crate) store: Arc<Store>,
    pub(crate) times: Arc<CallTimes>,
}

#[async_trait]
impl Ledger for TimedLedger {
    fn system(&self) -> &'static str {
        self.store.system()
    }

    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, StoreError> {
        let call = self.times.begin(now);
        let outcomes = self.store.execute(account, commands, now).await;
        call.end();
        outcomes
    }

    async fn accounts_with_holds(&self) -> HoldIndex {
        self.store.accounts_with_holds().await
    }

    async fn due_holds(&self, account: AccountId, after: Option<Cursor>) -> Result<DueHolds, StoreError> {
        self.store.due_holds(account, after).await
    }

    async fn clock_skew(&self) -> Result<Option<Skew>, StoreError> {
        self.store.clock_skew().await
    }

    async fn ping(&self) -> Result<MissingServers, StoreError> {
        self.store.ping().await
    }
}
