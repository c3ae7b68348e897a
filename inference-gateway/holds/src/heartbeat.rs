//! Renews the leases of all open holds together, reports their progress, and releases orphans.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use shared_observe::failure_log::{FailureLog, Failures};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{
    hold_state::HoldState,
    holds::Holds,
    keys::{Keys, Orphan},
};

/// How often holds are checked. All due renewals are sent together.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// Renewals per lease. Several may fail before the hold expires.
const RENEWALS_PER_LEASE: u32 = 6;
/// Maximum time between two renewals, even of a long lease. A renewal also reports revocations, which must end streams
/// within five seconds.
const LONGEST_PERIOD: Duration = Duration::from_secs(4);

/// Failed rounds of renewals, counted across all workers.
static UNRENEWED: FailureLog = FailureLog::new();

impl Holds {
    /// Renews leases and releases orphans until `stop`.
    pub async fn heartbeat(self, stop: CancellationToken) {
        let mut ticks = interval(HEARTBEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = ticks.tick() => self.beat(Instant::now()),
            }
        }
    }

    fn beat(&self, now: Instant) {
        let holds: Vec<Arc<HoldState>> = self.unresolved().values().cloned().collect();
        let mut due = Vec::new();
        for hold in holds {
            let mut lease = hold.lease();
            if !lease.renewing && now.saturating_duration_since(lease.renewed) >= period(lease.length) {
                lease.renewing = true;
                drop(lease);
                due.push(hold);
            }
        }
        // Without sorting, the order would be the map's, which differs from run to run.
        due.sort_unstable_by_key(|hold: &Arc<HoldState>| hold.hold.generation);
        if !due.is_empty() {
            tokio::spawn(renew(self.keys().clone(), due));
        }
        let orphans = self.keys().due_orphans(now);
        if !orphans.is_empty() {
            tokio::spawn(release(self.clone(), orphans));
        }
    }

    fn is_live(&self, orphan: &Orphan) -> bool {
        self.unresolved().contains_key(&orphan.generation)
    }
}

fn period(lease: Duration) -> Duration {
    (lease / RENEWALS_PER_LEASE).min(LONGEST_PERIOD)
}

/// Renews these leases together. A failed renewal is repeated with the next heartbeat.
async fn renew(keys: Keys, due: Vec<Arc<HoldState>>) {
    let renewals: FuturesUnordered<_> = due.iter().map(|hold| renew_one(&keys, hold)).collect();
    let failed = renewals.filter(|renewed| std::future::ready(!renewed)).count().await;
    if failed > 0 {
        metrics::counter!("gateway_renewals_failed_total").increment(failed as u64);
        tracing::debug!(failed, "leases were not renewed; trying again");
        if let Some(Failures { untold, .. }) = UNRENEWED.failed() {
            tracing::warn!(rounds = untold, failed, "leases were not renewed; retrying each");
        }
    }
}

async fn renew_one(keys: &Keys, hold: &HoldState) -> bool {
    // Zeros request no more tokens. The hold keeps the tokens that are already granted.
    let renewed = hold.extend(keys, 0, 0, 0).await;
    hold.lease().renewing = false;
    renewed.is_ok()
}

/// Releases the holds of authorizations with an unknown outcome, except the holds of running requests.
async fn release(holds: Holds, orphans: Vec<Orphan>) {
    for orphan in orphans {
        if holds.is_live(&orphan) {
            continue;
        }
        match holds.keys().release(orphan.release()).await {
            Ok(()) => {}
            Err(e) if e.may_pass() && !orphan.is_over(Instant::now()) => holds.keys().keep_orphan(orphan),
            Err(e) => {
                tracing::warn!(
                    generation = %orphan.generation,
                    error = %e,
                    "cannot release the hold of an authorization with an unknown outcome; the hold ends with its lease"
                );
            }
        }
    }
}
