//! Exports how much money is held for requests in flight, over all accounts.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use key_service_store::store::{HoldIndex, Ledger as _, Store};

/// Pause between two computations: about a scrape interval.
const EVERY: Duration = Duration::from_secs(15);
/// Minimum pause, as a multiple of the last computation's duration, so that many accounts do not overload the store.
const REST: u32 = 20;
const ASKED_AT_ONCE: usize = 16;

/// Exports the held money regularly until `shutdown`. If the store does not answer for all accounts, the last sum
/// remains.
pub async fn show(store: Arc<Store>, shutdown: CancellationToken) {
    let summing = async {
        loop {
            let began = Instant::now();
            if let Some(held) = sum(&store).await {
                metrics::gauge!("keyservice_held_nanousd").set(held);
            }
            sleep(EVERY.max(began.elapsed() * REST)).await;
        }
    };
    tokio::select! {
        biased;
        () = summing => {}
        () = shutdown.cancelled() => {}
    }
}

/// Returns the money held in all accounts; `None` if the store does not answer for all.
async fn sum(store: &Store) -> Option<f64> {
    let HoldIndex { accounts, missing } = store.accounts_with_holds().await;
    if missing.is_some() {
        return None;
    }
    let funds = stream::iter(accounts).map(|account| store.funds(account)).buffer_unordered(ASKED_AT_ONCE);
    #[expect(clippy::cast_precision_loss, reason = "a metric")]
    let held = funds.map(|funds| Some(funds.ok()?.map_or(0.0, |funds| funds.held.nanos() as f64)));
    held.fold(Some(0.0), async |sum: Option<f64>, held| Some(sum? + held?)).await
}
