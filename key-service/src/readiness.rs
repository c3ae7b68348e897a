//! Readiness of a key-service: it is ready while the store answers and accepts writes, and the store's clock agrees
//! with ours.
//!
//! The expiry of keys and calendar windows depend on the clock of the key-service that decides. The store's clock is
//! the common reference for all key-services that use the store.
//!
//! A store with several servers may be partly unavailable. The key-service is ready while at least one server serves,
//! because no other key-service could reach the missing servers either. It reports which servers are missing.
//!
//! The store is checked even without traffic. So metrics show an outage before clients notice it, and after a store was
//! full, the key-service becomes ready again by itself.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use shared::{backoff::Backoff, clock::Clock};
use shared_process::probe::Readiness;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use key_service_store::store::{Capacity, Ledger, MissingServers, Skew};

/// If the clocks differ by more than this, a line is logged.
pub(crate) const NOTICEABLE: Duration = Duration::from_secs(1);
/// If the clocks differ by more than this, keys would expire at the wrong time.
pub(crate) const TOO_FAR: Duration = Duration::from_secs(10);
const COMPARE_AGAIN: Duration = Duration::from_mins(1);
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), COMPARE_AGAIN);
/// Time between two pings, so that an outage shows within a second. A ping costs microseconds.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a successful write and a check of the space remain valid. Each write syncs the disk, so writes are less
/// frequent than pings.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// Reports that the process is ready while the store answers and accepts writes and the clocks agree. Checks once
/// before it returns, then regularly until `shutdown`.
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

struct Watch<S: ?Sized> {
    found: Mutex<StoreState>,
    store: Arc<S>,
}

/// Result of a check: the missing servers, or the reason why the store does not serve.
type Looked = Result<MissingServers, String>;

#[derive(Default)]
struct StoreState {
    /// Whether the clocks agree; `None` before the first comparison.
    clocks_agree: Option<bool>,
    /// Result of the last ping; `None` before the first ping.
    ping: Option<Looked>,
    /// Result of the last write; `None` before the first write.
    write: Option<Looked>,
    wrote_at: Option<Instant>,
}

impl<S: Ledger + Capacity + ?Sized> Watch<S> {
    /// Pings the store, and returns which part of it is missing, if any. The error says why the process is not ready.
    async fn verdict(&self) -> Result<Option<String>, String> {
        self.ping().await?;
        self.found.lock().verdict()
    }

    async fn ping(&self) -> Looked {
        let ping = self.store.ping().await.map_err(|e| format!("the store does not answer: {e}"));
        let is_whole = ping.as_ref().map(|MissingServers(missing)| missing.is_empty());
        metrics::gauge!("keyservice_store_up").set(shown(is_whole.ok()));
        let before = self.found.lock().ping.replace(ping.clone());
        report(before.as_ref(), &ping, "the store answers again");
        ping
    }

    /// Checks the store again and again, until this future is dropped.
    async fn look(&self) {
        loop {
            if self.ping().await.is_ok() && self.is_write_due() {
                self.write().await;
                self.show_room().await;
            }
            let missing = self.found.lock().verdict();
            metrics::gauge!("keyservice_ready").set(shown(missing.ok().map(|missing| missing.is_none())));
            sleep(LOOK_EVERY).await;
        }
    }

    fn is_write_due(&self) -> bool {
        let found = self.found.lock();
        !matches!(&found.write, Some(Ok(MissingServers(missing))) if missing.is_empty())
            || found.wrote_at.is_none_or(|at| at.elapsed() >= WRITE_EVERY)
    }

    async fn write(&self) {
        let written = self.store.try_write().await.map_err(|e| format!("the store refuses writes: {e}"));
        let before = {
            let mut found = self.found.lock();
            found.wrote_at = Some(Instant::now());
            found.write.replace(written.clone())
        };
        report(before.as_ref(), &written, "the store accepts writes again");
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
                // Probes ping the store too, and report the outage.
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
    fn verdict(&self) -> Result<Option<String>, String> {
        let looked = |result: &Option<Looked>| {
            result.clone().unwrap_or_else(|| Err("the store has not been checked yet".to_owned()))
        };
        let MissingServers(mut missing) = looked(&self.ping)?;
        let MissingServers(refusing) = looked(&self.write)?;
        let server = |says: &str| says.split_once(" (").map_or(says, |(server, _)| server).to_owned();
        let named: Vec<String> = missing.iter().map(|says| server(says)).collect();
        missing.extend(refusing.into_iter().filter(|says| !named.contains(&server(says))));
        match self.clocks_agree {
            Some(true) if missing.is_empty() => Ok(None),
            Some(true) => Ok(Some(format!("a part of the store is missing: {}", missing.join(", ")))),
            Some(false) => {
                Err(format!("the clock differs by more than {} s from the store's", TOO_FAR.as_secs()))
            }
            None => Err("the clock has not been compared with the store's yet".to_owned()),
        }
    }
}

/// Returns the value of a gauge: 1 if the whole store serves, 0.5 if a part of it serves, and 0 otherwise.
const fn shown(is_whole: Option<bool>) -> f64 {
    match is_whole {
        Some(true) => 1.0,
        Some(false) => 0.5,
        None => 0.0,
    }
}

/// Logs how the result differs from the previous result.
fn report(before: Option<&Looked>, now: &Looked, recovered: &str) {
    let in_part = |looked: &Looked| looked.as_ref().is_ok_and(|MissingServers(missing)| !missing.is_empty());
    match (before, now) {
        (None | Some(Ok(_)), Err(why)) => tracing::error!("not ready: {why}"),
        (Some(Err(_)), Ok(_)) => tracing::info!("{recovered}"),
        (None | Some(Ok(_)), Ok(_)) | (Some(Err(_)), Err(_)) => {}
    }
    match (before.is_some_and(in_part), now) {
        (false, Ok(MissingServers(missing))) if !missing.is_empty() => {
            tracing::error!(
                missing = missing.join(", "),
                "a part of the store is missing; requests that need only the rest are served"
            );
        }
        (true, Ok(MissingServers(missing))) if missing.is_empty() => {
            tracing::info!("the whole store serves again");
        }
        (true | false, Ok(_) | Err(_)) => {}
    }
}

fn agrees(Skew { millis }: Skew) -> bool {
    let difference = Duration::from_millis(millis.unsigned_abs());
    if difference > TOO_FAR {
        tracing::error!(
            ours_less_the_stores_ms = millis,
            "our clock differs too much from the store's, so the process is not ready; correct the clock"
        );
    } else if difference > NOTICEABLE {
        tracing::warn!(ours_less_the_stores_ms = millis, "our clock differs from the store's; correct it");
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

    /// A store with a clock and with servers that may be missing.
    struct Clocked {
        skew: Mutex<Result<Option<Skew>, StoreError>>,
        missing: Mutex<MissingServers>,
        refusing: Mutex<MissingServers>,
    }

    impl Clocked {
        fn loading() -> Self {
            let skew = Mutex::new(Err(StoreError::Unavailable("still loading".into())));
            Self { skew, missing: Mutex::default(), refusing: Mutex::default() }
        }

        fn set(&self, skew: Result<Option<i64>, ()>) {
            *self.skew.lock() = skew
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
            self.skew.lock().clone()
        }

        async fn ping(&self) -> Result<MissingServers, StoreError> {
            self.clock_skew().await?;
            Ok(self.missing.lock().clone())
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

        async fn try_write(&self) -> Result<MissingServers, StoreError> {
            Ok(self.refusing.lock().clone())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_too_far_from_the_stores_is_not_ready() {
        let store = Arc::new(Clocked::loading());
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

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_there_in_part_is_ready_and_its_missing_servers_are_named() {
        let store = Arc::new(Clocked::loading());
        let ready = readiness(store.clone(), Arc::new(System), CancellationToken::new());
        store.set(Ok(Some(0)));
        *store.missing.lock() = MissingServers(vec!["10.0.0.2:6379 (it did not answer in time)".into()]);
        sleep(COMPARE_AGAIN * 2).await;
        let says = ready().await.unwrap().unwrap();
        assert!(says.contains("10.0.0.2:6379 (it did not answer in time)"), "{says}");
        let refusing = ["10.0.0.2:6379 (it refuses writes)", "10.0.0.3:6379 (it is full)"];
        *store.refusing.lock() = MissingServers(refusing.map(str::to_owned).into());
        sleep(WRITE_EVERY * 2).await;
        let says = ready().await.unwrap().unwrap();
        assert!(
            says.contains("it did not answer in time") && says.contains("10.0.0.3:6379 (it is full)"),
            "{says}"
        );
        assert!(!says.contains("it refuses writes"), "named once: {says}");
        (*store.missing.lock(), *store.refusing.lock()) = Default::default();
        sleep(WRITE_EVERY * 2).await;
        assert_eq!(ready().await, Ok(None));
    }
}
