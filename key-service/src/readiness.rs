//! Readiness of a key-service: the store answers and takes writes, and its clock agrees with ours.
//!
//! Expiry of keys and calendar windows follow the clock of the key-service that decides. If several share a store, its
//! clock is the common reference.
//!
//! The store is checked without any traffic, so that metrics report it before a client does, and so that a store that
//! was full becomes ready again by itself.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use shared::{backoff::Backoff, clock::Clock};
use shared_process::probe::Readiness;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use key_service_store::store::{Capacity, Ledger, Skew};

/// Difference of the clocks that is worth a log line.
pub(crate) const NOTICEABLE: Duration = Duration::from_secs(1);
/// Difference of the clocks beyond which keys would expire at the wrong time.
pub(crate) const TOO_FAR: Duration = Duration::from_secs(10);
/// Pause between two comparisons of the clocks.
const COMPARE_AGAIN: Duration = Duration::from_mins(1);
/// Pauses after a failed comparison.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), COMPARE_AGAIN);
/// Pause between two checks of the store. An outage shows within a second, and a ping costs microseconds.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time for which a successful write, and a check of the space, count for the next ones, since each write is a sync of
/// the disk.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// Reports readiness while the store answers and takes writes, and the clocks agree. It checks both at once and
/// regularly, until `shutdown`.
pub(crate) fn readiness<S: Ledger + Capacity + ?Sized>(
    store: Arc<S>,
    clock: Arc<dyn Clock>,
    shutdown: CancellationToken,
) -> Readiness {
    let watch = Arc::new(Watch { store, found: Mutex::default() });
    let watching = watch.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = watching.compare(&*clock) => {}
            () = watching.look() => {}
        }
    });
    Arc::new(move || {
        let watch = watch.clone();
        Box::pin(async move { watch.verdict().await })
    })
}

/// A store, with the findings of its last checks.
struct Watch<S: ?Sized> {
    found: Mutex<StoreState>,
    store: Arc<S>,
}

#[derive(Default)]
struct StoreState {
    /// Whether the clocks agree; `None` before the first comparison.
    clocks_agree: Option<bool>,
    /// Result of the last ping; `None` before the first one.
    ping: Option<Result<(), String>>,
    /// Result of the last write; `None` before the first one.
    write: Option<Result<(), String>>,
    wrote_at: Option<Instant>,
}

impl<S: Ledger + Capacity + ?Sized> Watch<S> {
    /// Asks the store, and returns why the process is not ready.
    async fn verdict(&self) -> Result<(), String> {
        self.ping().await?;
        self.found.lock().verdict()
    }

    async fn ping(&self) -> Result<(), String> {
        let ping = self.store.ping().await.map_err(|e| format!("the store does not answer: {e}"));
        metrics::gauge!("keyservice_store_up").set(if ping.is_ok() { 1.0 } else { 0.0 });
        let before = self.found.lock().ping.replace(ping.clone());
        report(before.as_ref(), &ping, "the store answers again");
        ping
    }

    /// Checks the store forever.
    async fn look(&self) {
        loop {
            if self.ping().await.is_ok() && self.is_write_due() {
                self.write().await;
                self.show_room().await;
            }
            let is_ready = self.found.lock().verdict().is_ok();
            metrics::gauge!("keyservice_ready").set(if is_ready { 1.0 } else { 0.0 });
            sleep(LOOK_EVERY).await;
        }
    }

    fn is_write_due(&self) -> bool {
        let found = self.found.lock();
        !matches!(found.write, Some(Ok(()))) || found.wrote_at.is_none_or(|at| at.elapsed() >= WRITE_EVERY)
    }

    async fn write(&self) {
        let written = self.store.try_write().await.map_err(|e| format!("the store refuses writes: {e}"));
        let before = {
            let mut found = self.found.lock();
            found.wrote_at = Some(Instant::now());
            found.write.replace(written.clone())
        };
        report(before.as_ref(), &written, "the store takes writes again");
    }

    async fn show_room(&self) {
        match self.store.used_ratio().await {
            Ok(ratio) => metrics::gauge!("keyservice_store_used_ratio").set(ratio.unwrap_or_default()),
            Err(e) => tracing::debug!(error = %e, "cannot see how full the store is"),
        }
    }

    async fn compare(&self, clock: &dyn Clock) {
        let mut retry = RETRY;
        loop {
            let pause = match self.store.clock_skew().await {
                Ok(skew) => {
                    retry.reset();
                    self.found.lock().clocks_agree = Some(skew.is_none_or(agrees));
                    COMPARE_AGAIN
                }
                // Probes ask the store themselves, so it does not matter here if it is away.
                Err(unavailable) => {
                    tracing::debug!(error = %unavailable, "cannot compare our clock with the store's");
                    retry.pause(clock)
                }
            };
            sleep(pause).await;
        }
    }
}

impl StoreState {
    fn verdict(&self) -> Result<(), String> {
        let looked = |result: &Option<Result<(), String>>| {
            result.clone().unwrap_or_else(|| Err("the store was not looked at yet".to_owned()))
        };
        looked(&self.ping)?;
        looked(&self.write)?;
        match self.clocks_agree {
            Some(true) => Ok(()),
            Some(false) => Err(format!("the clock is more than {} s from the store's", TOO_FAR.as_secs())),
            None => Err("the clock was not compared with the store's yet".to_owned()),
        }
    }
}

/// Logs a change from one result to another.
fn report(before: Option<&Result<(), String>>, now: &Result<(), String>, recovered: &str) {
    match (before, now) {
        (None | Some(Ok(())), Err(why)) => tracing::error!("not ready: {why}"),
        (Some(Err(_)), Ok(())) => tracing::info!("{recovered}"),
        (None | Some(Ok(())), Ok(())) | (Some(Err(_)), Err(_)) => {}
    }
}

/// Returns whether the clocks are close enough to serve.
fn agrees(Skew { millis }: Skew) -> bool {
    let difference = Duration::from_millis(millis.unsigned_abs());
    if difference > TOO_FAR {
        tracing::error!(
            ours_less_the_stores_ms = millis,
            "our clock is too far from the store's: not ready; set it"
        );
    } else if difference > NOTICEABLE {
        tracing::warn!(ours_less_the_stores_ms = millis, "our clock differs from the store's; set it");
    }
    difference <= TOO_FAR
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use shared::{clock::System, ids::AccountId, time::Timestamp};

    use super::*;
    use domain::ledger::Command;
    use key_service_store::store::{Cursor, DueHolds, HoldIndex, Outcomes, StoreError};

    /// A store with a clock of its own.
    struct Clocked(Mutex<Result<Option<Skew>, StoreError>>);

    impl Clocked {
        fn set(&self, skew: Result<Option<i64>, ()>) {
            *self.0.lock() = skew
                .map(|skew| skew.map(|millis| Skew { millis }))
                .map_err(|()| StoreError::Unavailable("still loading".into()));
        }
    }

    #[async_trait]
    impl Ledger for Clocked {
        fn system(&self) -> &'static str {
            "clocked"
        }

        async fn execute(&self, _: AccountId, _: Vec<Command>, _: Timestamp) -> Result<Outcomes, StoreError> {
            Ok(Vec::new())
        }

        async fn accounts_with_holds(&self) -> HoldIndex {
            HoldIndex::default()
        }

        async fn due_holds(&self, _: AccountId, _: Option<Cursor>) -> Result<DueHolds, StoreError> {
            Ok(DueHolds::default())
        }

        async fn clock_skew(&self) -> Result<Option<Skew>, StoreError> {
            self.0.lock().clone()
        }

        async fn ping(&self) -> Result<(), StoreError> {
            self.clock_skew().await.map(drop)
        }
    }

    #[async_trait]
    impl Capacity for Clocked {
        async fn persistence_warnings(&self) -> Vec<&'static str> {
            Vec::new()
        }

        async fn is_nearly_full(&self) -> Result<bool, StoreError> {
            Ok(false)
        }

        async fn used_ratio(&self) -> Result<Option<f64>, StoreError> {
            Ok(None)
        }

        async fn try_write(&self) -> Result<(), StoreError> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_too_far_from_the_stores_is_not_ready() {
        let store = Arc::new(Clocked(Mutex::new(Err(StoreError::Unavailable("still loading".into())))));
        let ready = readiness(store.clone(), Arc::new(System), CancellationToken::new());
        assert!(ready().await.is_err(), "before the first comparison");
        for (skew, expected) in [
            (Ok(None), true),
            (Ok(Some(10_000)), true),
            (Ok(Some(10_001)), false),
            (Err(()), false),
            (Ok(Some(-10_001)), false),
            (Ok(Some(-999)), true),
        ] {
            store.set(skew);
            sleep(COMPARE_AGAIN * 2).await;
            assert_eq!(ready().await.is_ok(), expected, "{skew:?}");
        }
    }
}
