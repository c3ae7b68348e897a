//! The ledger as a key-service calls it, and the time that each call is judged at.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use domain::ledger::Command;
use key_service_store::store::{
    Cursor, DueHolds, HoldIndex, Ledger, MissingServers, Outcomes, Skew, Store, StoreError,
};
use parking_lot::Mutex;
use shared::{ids::AccountId, time::Timestamp};
use tokio::time::Instant;

/// How long after being abandoned a call may still be carried out: it waits in its lane for 1.5 s, loses races to the
/// other key-service for 0.4 s, and is delayed by a stalled store for 2.5 s.
const CARRIED_OUT_WITHIN: Duration = Duration::from_secs(5);

/// Wall times of the ledger calls in progress in a process. Each call is judged at the time that its caller read from
/// the clock.
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
    /// Returns the earliest judging time among the calls that a commit may carry out now; `None` if there is no such
    /// call.
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

/// A call to the ledger. Dropping it before its answer marks it as abandoned.
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

/// The store of a key-service, which notes when its calls are judged.
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
