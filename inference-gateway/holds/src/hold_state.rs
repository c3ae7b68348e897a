//! What this gateway knows about a hold. The hold's request and the heartbeat share it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use shared::{generation::Course, refusal::Refusal, time::millis, tokens::Usage};
use shared_catalog::Price;
use shared_rpc::{Extend, Extended, Extension, HoldRef, UpstreamCost};
use tokio::{sync::Notify, time::Instant};

use crate::keys::{Keys, Unavailable};

/// State shared by a hold's request and the heartbeat.
pub(crate) struct HoldState {
    pub(crate) hold: HoldRef,
    /// Time at which the request was accepted.
    pub(crate) accepted: Instant,
    /// Position of the upstream that has the request, counted as in [`HoldRef::upstream`].
    upstream: AtomicU32,
    /// What each of the model's upstreams charged when the hold was granted.
    upstream_costs: Vec<Option<Arc<Price>>>,
    lease: Mutex<Lease>,
    /// Notified when the status changes, and when a lapsed lease is renewed.
    changed: Notify,
}

/// What the gateway knows about the lease of a hold.
pub(crate) struct Lease {
    /// A renewal keeps the hold open for at least this time.
    pub(crate) length: Duration,
    /// When the last successful renewal was sent.
    pub(crate) renewed: Instant,
    pub(crate) renewing: bool,
    pub(crate) status: HoldStatus,
    /// The last reported usage, and the prompt and output tokens that the hold covers.
    pub(crate) usage: Usage,
    pub(crate) prompt_tokens: u64,
    pub(crate) output_tokens: u64,
    /// What happened in the generation so far.
    pub(crate) course: Course,
}

/// Status of a hold at the key-service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldStatus {
    Open,
    /// Open, but the key is revoked or disabled, or its group archived. Streams must end.
    Revoked(Refusal),
    /// Expired, since the lease ran out.
    Gone,
}

impl HoldState {
    /// Makes the state of a hold for a request that was accepted at `accepted`.
    pub(crate) fn new(
        hold: HoldRef,
        upstream_costs: Vec<Option<Arc<Price>>>,
        lease: Lease,
        accepted: Instant,
    ) -> Self {
        let (upstream, lease) = (AtomicU32::new(hold.upstream), Mutex::new(lease));
        Self { hold, accepted, upstream, upstream_costs, lease, changed: Notify::new() }
    }

    /// Records which upstream gets the request: its position among the model's upstreams, from 1, and its name.
    pub(crate) fn sent_to(&self, place: u32, name: String) {
        self.upstream.store(place, Ordering::Relaxed);
        self.lease().course.upstream = Some(name);
    }

    /// Waits until the status may have changed, or a lapsed lease was renewed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock()
    }

    /// Returns what a call needs to refer to this hold, with the upstream that has the request now.
    pub(crate) fn named(&self) -> HoldRef {
        let upstream = self.upstream.load(Ordering::Relaxed);
        let place = usize::try_from(upstream).ok().and_then(|place| place.checked_sub(1));
        let cost = place.and_then(|place| self.upstream_costs.get(place));
        let upstream_cost = cost.map_or(UpstreamCost::OfCatalogue, |cost| UpstreamCost::OfHold(cost.clone()));
        HoldRef { upstream, upstream_cost, ..self.hold.clone() }
    }

    /// Returns what happened in the generation. If it was not marked as ended before, it is marked as ended now.
    pub(crate) fn ended(&self) -> Arc<Course> {
        let mut lease = self.lease();
        lease.course.latency_ms.get_or_insert_with(|| millis(self.accepted.elapsed()));
        Arc::new(lease.course.clone())
    }

    /// Renews the lease. Asks the key-service to let the hold cover `output_tokens` in total, and a prompt of
    /// `prompt_tokens` and `images`.
    pub(crate) async fn extend(
        &self,
        keys: &Keys,
        prompt_tokens: u64,
        images: u64,
        output_tokens: u64,
    ) -> Result<Extended, Unavailable> {
        let asked_at = Instant::now();
        let (usage, course) = {
            let lease = self.lease();
            (lease.usage, Some(Arc::new(lease.course.clone())))
        };
        let hold = self.named();
        let extend = Extend { hold, usage, prompt_tokens, images, output_tokens, course };
        let extended = keys.extend(extend).await?;
        self.extended(extended, prompt_tokens, asked_at);
        Ok(extended)
    }

    /// Records the answer to a renewal that was sent at `asked_at`.
    fn extended(&self, extended: Extended, prompt_tokens: u64, asked_at: Instant) {
        let mut lease = self.lease();
        let lapsed = asked_at.saturating_duration_since(lease.renewed) >= lease.length;
        let status = match extended {
            Extended::Open(Extension { output_tokens, lease: length, revoked_by }) => {
                lease.renewed = lease.renewed.max(asked_at);
                lease.length = length;
                if prompt_tokens > 0 {
                    lease.prompt_tokens = prompt_tokens;
                    lease.output_tokens = lease.output_tokens.max(output_tokens);
                }
                revoked_by.map_or(HoldStatus::Open, HoldStatus::Revoked)
            }
            Extended::Gone => HoldStatus::Gone,
        };
        let changed = lapsed || status != lease.status;
        lease.status = status;
        drop(lease);
        if changed {
            self.changed.notify_one();
        }
    }
}
