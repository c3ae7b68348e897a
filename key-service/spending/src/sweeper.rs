//! Advances lease time, and lets holds expire when their leases have ended. A lease ends if the gateway has died or was
//! disconnected for longer than the lease.
//!
//! Each account has a watcher of its own. So an account that has damaged records, or that is in an unreachable part of
//! the store, does not delay the expiry of other accounts' holds.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use shared::{
    backoff::Backoff,
    clock::Clock,
    ids::{AccountId, GenerationId},
};
use shared_observe::failure_log::Throttle;
use tokio::{
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::service::count_billed;
use domain::{
    lease_clock::{LONGEST_GAP, LeaseClock, quantum},
    ledger::{Command, Outcome, Refused},
};
use key_service_store::store::{Cursor, DueHold, DueHolds, HoldIndex, Ledger, Outcomes, StoreError};

/// Maximum pause between two reads of the tick. Two such pauses are not longer than the longest gap that still counts
/// as lease time.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two listings of the accounts with holds. At most this much later, an account's first hold is noticed.
const LIST_AGAIN: Duration = Duration::from_millis(500);
/// Number of reads of the tick in a quantum, if a lease is so short that this makes the pause shorter than its maximum.
const LOOKS: u32 = 2;

struct Sweeper {
    ledger: Arc<dyn Ledger>,
    clock: Arc<dyn Clock>,
    quantum: Duration,
    pause: Duration,
    started: Instant,
    /// Accounts that had holds at the last listing, each with the time of its last check. The watchers of other
    /// accounts end.
    holding: Mutex<BTreeMap<AccountId, Instant>>,
    /// Limits how often warnings are logged. The limit is for all accounts together, because they use the same store.
    warned: Mutex<Throttle<()>>,
}

/// Advances lease time and lets holds expire until `shutdown`. Several sweepers may use the same store, because a tick
/// is a compare-and-set and an expiry is idempotent.
pub async fn run(
    ledger: Arc<dyn Ledger>,
    clock: Arc<dyn Clock>,
    lease: Duration,
    shutdown: CancellationToken,
) {
    let quantum = quantum(lease);
    let pause = (quantum / LOOKS).min(LONGEST_PAUSE);
    let (started, holding, warned) = (Instant::now(), Mutex::default(), Mutex::default());
    let sweeper = Arc::new(Sweeper { ledger, clock, quantum, pause, started, holding, warned });
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = sweeper.watch_all() => {}
    }
}

impl Sweeper {
    /// Runs a watcher for every account with holds.
    async fn watch_all(self: Arc<Self>) {
        // Dropping this future also drops the watchers.
        let mut watchers = JoinSet::new();
        let mut watched: BTreeMap<AccountId, AbortHandle> = BTreeMap::new();
        let mut warned = Throttle::default();
        loop {
            let HoldIndex { accounts, missing } = self.ledger.accounts_with_holds().await;
            let mut holding: BTreeSet<_> = accounts.into_iter().collect();
            if let Some(unavailable) = missing {
                // The accounts that had holds at the last listing may still have holds.
                holding.extend(watched.keys());
                if warned.passes((), Instant::now()) {
                    tracing::warn!(error = %unavailable, "cannot list all accounts with holds; trying again");
                }
            }
            self.note(&holding);
            watched.retain(|_, watcher| !watcher.is_finished());
            for account in holding {
                watched.entry(account).or_insert_with(|| {
                    let sweeper = Arc::clone(&self);
                    watchers.spawn(async move { sweeper.watch(account).await })
                });
            }
            while let Some(ended) = watchers.try_join_next() {
                if let Err(e) = ended {
                    tracing::error!(error = %e, "a sweeper task failed; restarting it");
                }
            }
            sleep(LIST_AGAIN.min(self.pause)).await;
        }
    }

    /// Watches an account while it has holds.
    async fn watch(&self, account: AccountId) {
        let mut watcher = Watcher { sweeper: self, account, lease: LeaseClock::default(), unswept: true };
        let mut damaged = Throttle::default();
        // The pause never grows, but it has jitter, so that watchers do not read at the same moment.
        let mut pauses = Backoff::new(self.pause, self.pause);
        loop {
            match watcher.look(&mut damaged).await {
                Ok(()) => self.looked_at(account),
                Err(unavailable) if self.warned.lock().passes((), Instant::now()) => {
                    tracing::warn!(%account, error = %unavailable, "cannot expire holds; trying again");
                }
                Err(_) => {}
            }
            if !self.is_holding(account) {
                return;
            }
            let soon = Instant::now() + pauses.pause(&*self.clock);
            let due = watcher.lease.next(self.quantum).map(|at| self.started + at);
            sleep_until(due.filter(|due| *due > Instant::now()).map_or(soon, |due| due.min(soon))).await;
        }
    }

    /// Records which accounts have holds. Exports how long ago the least recently checked account was checked.
    fn note(&self, listed: &BTreeSet<AccountId>) {
        let now = Instant::now();
        let mut holding = self.holding.lock();
        holding.retain(|account, _| listed.contains(account));
        for account in listed {
            holding.entry(*account).or_insert(now);
        }
        let lag = holding.values().map(|looked| now.saturating_duration_since(*looked)).max();
        metrics::gauge!("keyservice_sweeper_lag_seconds").set(lag.unwrap_or_default());
        metrics::gauge!("keyservice_accounts_with_holds")
            .set(u32::try_from(holding.len()).unwrap_or(u32::MAX));
    }

    fn looked_at(&self, account: AccountId) {
        if let Some(looked) = self.holding.lock().get_mut(&account) {
            *looked = Instant::now();
        }
    }

    fn is_holding(&self, account: AccountId) -> bool {
        self.holding.lock().contains_key(&account)
    }
}

/// Watches the lease time of an account and its holds.
struct Watcher<'s> {
    sweeper: &'s Sweeper,
    account: AccountId,
    lease: LeaseClock,
    /// Whether the holds that were due at the last tick still have to expire.
    unswept: bool,
}

impl Watcher<'_> {
    /// Reads the tick, and advances it if a quantum has ended. After each new tick, lets the due holds expire.
    async fn look(&mut self, damaged: &mut Throttle<GenerationId>) -> Result<(), StoreError> {
        self.tick(None).await?;
        if let Some(seen) = self.lease.due(self.sweeper.quantum) {
            self.tick(Some(seen)).await?;
        }
        if self.unswept {
            self.expire_due(damaged).await?;
            self.unswept = false;
        }
        Ok(())
    }

    async fn tick(&mut self, seen: Option<u64>) -> Result<(), StoreError> {
        let outcomes = self.execute(vec![Command::Tick { seen }]).await?;
        let [Ok(Outcome::Ticked(tick))] = outcomes[..] else {
            return Err(StoreError::Unavailable(format!("a tick was answered with {outcomes:?}")));
        };
        let now = self.sweeper.started.elapsed();
        self.unswept |= self.lease.observe(tick, now);
        Ok(())
    }

    /// Lets all due holds expire. It goes through them page by page, so that holds that cannot expire do not hide other
    /// holds.
    async fn expire_due(&self, damaged: &mut Throttle<GenerationId>) -> Result<(), StoreError> {
        let mut after: Option<Cursor> = None;
        loop {
            let DueHolds { holds, next } = self.sweeper.ledger.due_holds(self.account, after).await?;
            let expire = |hold: &DueHold| Command::Expire { key: hold.key, generation: hold.generation };
            let outcomes = self.execute(holds.iter().map(expire).collect()).await?;
            for (hold, outcome) in holds.iter().zip(outcomes) {
                self.report(hold, outcome, damaged);
            }
            match next {
                Some(cursor) => after = Some(cursor),
                None => return Ok(()),
            }
        }
    }

    async fn execute(&self, commands: Vec<Command>) -> Result<Outcomes, StoreError> {
        let Sweeper { ledger, clock, .. } = self.sweeper;
        ledger.execute(self.account, commands, clock.now()).await
    }

    fn report(
        &self,
        hold: &DueHold,
        outcome: Result<Outcome, Refused>,
        damaged: &mut Throttle<GenerationId>,
    ) {
        let (account, generation) = (self.account, hold.generation);
        match outcome {
            Ok(Outcome::Expired(settlement)) => {
                metrics::counter!("keyservice_expired_holds_total").increment(1);
                count_billed(&settlement);
                tracing::warn!(
                    %account, %generation, key = %settlement.payer.key, model = settlement.payer.model,
                    charged_usd = %settlement.charged,
                    "a hold expired; the usage that was last reported for it is billed"
                );
            }
            // The hold was settled or extended in the meantime.
            Ok(_) => {}
            Err(refused) => {
                if damaged.passes(generation, Instant::now()) {
                    tracing::error!(%account, %generation, ?refused, "cannot expire a hold; inspect its record with `store show`");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

// Two pauses must not be longer than the longest gap that still counts as lease time.
const _: () = assert!(LONGEST_PAUSE.as_millis() * 2 <= LONGEST_GAP.as_millis());
