//! Readiness of a key-service: the store answers, and its clock agrees with ours.
//!
//! Expiry of keys and calendar periods follow the clock of the deciding key-service. Where several share a store, its
//! clock is the common reference.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use shared::{backoff::Backoff, clock::Clock, process::telemetry::Readiness};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::store::{Ledger, Skew};

/// Difference of the clocks that is worth a log line.
const NOTICEABLE: Duration = Duration::from_secs(1);
/// Difference of the clocks beyond which keys would expire at the wrong time.
const TOO_FAR: Duration = Duration::from_secs(10);
/// Pause between two comparisons.
const COMPARE_AGAIN: Duration = Duration::from_mins(1);
/// Pauses after a comparison that failed.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), COMPARE_AGAIN);

/// Reports readiness while the store answers and the clocks agree. Compares the clocks at once and every minute, until
/// `shutdown`.
pub(crate) fn readiness(
    ledger: Arc<dyn Ledger>,
    clock: Arc<dyn Clock>,
    shutdown: CancellationToken,
) -> Readiness {
    // Not ready before the first comparison.
    let agree = Arc::new(AtomicBool::new(false));
    let (comparing, comparison) = (ledger.clone(), agree.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = compare(&*comparing, &*clock, &comparison) => {}
        }
    });
    let answered = Arc::new(AtomicBool::new(true));
    Arc::new(move || {
        let (ledger, agree, answered) = (ledger.clone(), agree.clone(), answered.clone());
        Box::pin(async move {
            let ping = ledger.ping().await;
            let changed = answered.swap(ping.is_ok(), Ordering::Relaxed) != ping.is_ok();
            match &ping {
                Err(unavailable) if changed => {
                    tracing::error!(error = %unavailable, "not ready: the store does not answer");
                }
                Ok(()) if changed => tracing::info!("the store answers again"),
                Ok(()) | Err(_) => {}
            }
            ping.is_ok() && agree.load(Ordering::Relaxed)
        })
    })
}

async fn compare(ledger: &dyn Ledger, clock: &dyn Clock, agree: &AtomicBool) {
    let mut retry = RETRY;
    loop {
        let pause = match ledger.clock_skew().await {
            Ok(skew) => {
                retry.reset();
                agree.store(skew.is_none_or(agrees), Ordering::Relaxed);
                COMPARE_AGAIN
            }
            // Probes ask the store themselves, so its absence does not matter here.
            Err(unavailable) => {
                tracing::debug!(error = %unavailable, "cannot compare our clock with the store's");
                retry.pause(clock)
            }
        };
        sleep(pause).await;
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
    use parking_lot::Mutex;

    use async_trait::async_trait;
    use shared::{clock::System, ids::AccountId, time::Timestamp};

    use super::*;
    use crate::store::{Cursor, DueHolds, HoldIndex, Outcomes, StoreError};
    use domain::ledger::Command;

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

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_too_far_from_the_stores_is_not_ready() {
        let store = Arc::new(Clocked(Mutex::new(Err(StoreError::Unavailable("still loading".into())))));
        let ready = readiness(store.clone(), Arc::new(System), CancellationToken::new());
        assert!(!ready().await, "before the first comparison");
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
            assert_eq!(ready().await, expected, "{skew:?}");
        }
    }
}
