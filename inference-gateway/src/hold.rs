//! Open holds, which are renewed and extended while requests run. Each is captured or released exactly once, however
//! its request ends.

mod heartbeat;
mod settlement;
mod spool;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use foldhash::HashMap;
use parking_lot::{Mutex, MutexGuard};
use shared::{
    generation::{Course, FinishReason},
    ids::{AccountId, GenerationId, KeyId},
    rates::RateStatus,
    refusal::Refusal,
    time::millis,
    tokens::Usage,
};
use shared_catalog::Price;
use shared_rpc::{Charge, Extend, Extended, Extension, Grant, HoldRef, UpstreamCost};
use tokio::{sync::Notify, time::Instant};
use tokio_util::task::TaskTracker;

use crate::{
    admission::Slot,
    keys::{Keys, Unavailable},
};
pub(crate) use settlement::Ending;
use settlement::{FirstAttempts, Settlement};
pub(crate) use spool::Spool;

/// The open holds of a worker. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Holds(Arc<HoldsInner>);

struct HoldsInner {
    keys: Keys,
    /// Holds that are open, or not settled yet.
    unresolved: Mutex<HashMap<GenerationId, Arc<HoldState>>>,
    spool: Option<Spool>,
    settling: TaskTracker,
}

/// State shared by a hold's request and the heartbeat.
struct HoldState {
    /// The hold as it was granted.
    hold: HoldRef,
    /// Time at which the request was accepted.
    accepted: Instant,
    /// Place of the upstream that has the request, as in [`HoldRef::upstream`].
    upstream: AtomicU32,
    /// Charges of each of the model's upstreams, as granted.
    upstream_costs: Vec<Option<Arc<Price>>>,
    lease: Mutex<Lease>,
    /// Notified when the status changes, and when a lapsed lease was renewed.
    changed: Notify,
}

/// Lease of a hold, as far as this gateway knows it.
struct Lease {
    /// Shortest time that the hold lives after a renewal.
    length: Duration,
    /// Time at which the last successful renewal was sent.
    renewed: Instant,
    renewing: bool,
    status: HoldStatus,
    /// The last report, and the tokens of prompt and output that the hold covers.
    usage: Usage,
    prompt_tokens: u64,
    output_tokens: u64,
    /// How the generation went so far.
    course: Course,
}

/// Status of a hold at the key-service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldStatus {
    Open,
    /// Open, but the key is revoked or disabled, or its group archived. A stream must end for this reason.
    Revoked(Refusal),
    /// Expired, since the lease ran out.
    Gone,
}

/// An open hold. Dropping it captures the usage recorded so far, or releases a hold without usage.
pub(crate) struct OpenHold {
    holds: Holds,
    state: Arc<HoldState>,
    slot: Option<Slot>,
    ending: Ending,
    rates: Option<Box<RateStatus>>,
}

impl Holds {
    pub(crate) fn new(keys: Keys, spool: Option<Spool>, settling: TaskTracker) -> Self {
        Self(Arc::new(HoldsInner { keys, unresolved: Mutex::default(), spool, settling }))
    }

    /// Adds a hold that was granted to a call sent at `asked_at`, for a request that was accepted at `accepted`.
    pub(crate) fn open(
        &self,
        grant: Grant,
        prompt_tokens: u64,
        (accepted, asked_at): (Instant, Instant),
        slot: Slot,
    ) -> OpenHold {
        let Grant { hold, output_tokens, lease, rates, upstream_costs } = grant;
        let lease = Lease {
            length: lease,
            renewed: asked_at,
            renewing: false,
            status: HoldStatus::Open,
            usage: Usage::default(),
            prompt_tokens,
            output_tokens,
            course: Course { authorized_ms: Some(millis(accepted.elapsed())), ..Course::default() },
        };
        let generation = hold.generation;
        let state = Arc::new(HoldState {
            upstream: AtomicU32::new(hold.upstream),
            upstream_costs,
            hold,
            accepted,
            lease: Mutex::new(lease),
            changed: Notify::new(),
        });
        self.unresolved().insert(generation, state.clone());
        OpenHold { holds: self.clone(), state, slot: Some(slot), ending: Ending::Release, rates }
    }

    /// Settles all captures that an earlier process left in the spool.
    pub(crate) fn settle_spooled(&self) {
        for capture in self.0.spool.iter().flat_map(Spool::pending) {
            self.settle_in_background(Settlement::spooled(capture));
        }
    }

    fn unresolved(&self) -> MutexGuard<'_, HashMap<GenerationId, Arc<HoldState>>> {
        self.0.unresolved.lock()
    }

    fn settle_in_background(&self, settlement: Settlement) {
        let (holds, tracker) = (self.clone(), self.0.settling.clone());
        tracker.spawn(async move { settlement.deliver(&holds).await });
    }
}

impl OpenHold {
    pub(crate) fn generation(&self) -> GenerationId {
        self.state.hold.generation
    }

    pub(crate) fn account(&self) -> AccountId {
        self.state.hold.account
    }

    pub(crate) fn key(&self) -> KeyId {
        self.state.hold.key
    }

    /// Takes the state of the rates of the key and its groups at the time of the grant.
    pub(crate) fn take_rates(&mut self) -> Option<Box<RateStatus>> {
        self.rates.take()
    }

    /// Prompt tokens that the hold covers.
    pub(crate) fn prompt_tokens(&self) -> u64 {
        self.state.lease().prompt_tokens
    }

    /// Output tokens that the hold covers, over all choices.
    pub(crate) fn output_tokens(&self) -> u64 {
        self.state.lease().output_tokens
    }

    /// Records the upstream that is sent the request: its place among the model's upstreams, from 1, and its address.
    pub(crate) fn sent_to(&self, place: u32, address: String) {
        self.state.upstream.store(place, Ordering::Relaxed);
        self.state.lease().course.upstream = Some(address);
    }

    /// Records the usage of a stream to bill from now on, also if the hold is dropped or expires.
    pub(crate) fn record(&mut self, usage: Usage, estimated: bool) {
        self.ending = Ending::Capture { usage, charged: None, estimated };
        let mut lease = self.state.lease();
        lease.usage = usage;
        lease.course.first_token_ms.get_or_insert_with(|| millis(self.state.accepted.elapsed()));
    }

    /// Records why the choices of the answer ended.
    pub(crate) fn finished(&self, reasons: &[FinishReason]) {
        self.state.lease().course.finish_reason = reasons.first().copied();
    }

    /// Returns the status at the key-service, by its last answer.
    pub(crate) fn status(&self) -> HoldStatus {
        self.state.lease().status
    }

    /// Returns whether the lease may have run out, so that no output may be delivered before a renewal.
    pub(crate) fn is_lapsed(&self, now: Instant) -> bool {
        let lease = self.state.lease();
        lease.status == HoldStatus::Gone || now.saturating_duration_since(lease.renewed) >= lease.length
    }

    /// Returns when the status may have changed, or a lapsed lease was renewed.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let state = self.state.clone();
        async move { state.changed.notified().await }
    }

    /// Renews the lease and requests more output tokens, beside a prompt of `prompt_tokens` and `images`.
    pub(crate) fn extend(
        &self,
        prompt_tokens: u64,
        images: u64,
        output_tokens: u64,
    ) -> impl Future<Output = Result<Extended, Unavailable>> + Send + use<> {
        let (keys, state) = (self.holds.0.keys.clone(), self.state.clone());
        async move { state.extend(&keys, (prompt_tokens, images), output_tokens).await }
    }

    /// Bills this usage and waits a bounded time for the charge. `None` means that the charge is not confirmed and is
    /// delivered in the background; with a spool, it survives this process.
    pub(crate) async fn capture(self, usage: Usage, estimated: bool) -> Option<Charge> {
        self.capture_part(usage, None, estimated).await
    }

    /// Bills this usage as [`Self::capture`] does, but charges at most a part of it.
    pub(crate) async fn capture_part(
        mut self,
        usage: Usage,
        charged: Option<Usage>,
        estimated: bool,
    ) -> Option<Charge> {
        self.state.lease().usage = usage;
        self.ending = Ending::Capture { usage, charged, estimated };
        self.settle().await
    }

    /// Releases the hold of a request that cost nothing. Waits a bounded time, so that the money is free again when the
    /// client repeats the request.
    pub(crate) async fn release(mut self) {
        self.ending = Ending::Release;
        self.settle().await;
    }

    async fn settle(&mut self) -> Option<Charge> {
        let settlement = self.settlement(None);
        match settlement.attempt(&self.holds).await {
            FirstAttempts::Settled(charge) => {
                self.slot = None;
                self.holds.unresolved().remove(&self.generation());
                charge
            }
            FirstAttempts::Unsettled => {
                // The slot goes along, so that pending settlements are bounded as requests are.
                let slot = self.slot.take();
                let settlement = self.settlement(slot);
                settlement.hand_over(&self.holds).await;
                None
            }
        }
    }

    fn settlement(&self, slot: Option<Slot>) -> Settlement {
        let course = match self.ending {
            Ending::Capture { .. } => Some(self.state.ended()),
            Ending::Release => None,
        };
        Settlement::new((self.state.named(), course), self.ending, slot)
    }
}

impl Drop for OpenHold {
    fn drop(&mut self) {
        // The slot is gone if the hold is resolved here or elsewhere.
        if let Some(slot) = self.slot.take() {
            self.holds.settle_in_background(self.settlement(Some(slot)));
        }
    }
}

impl HoldState {
    fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock()
    }

    /// Refers to the hold in a call, with the upstream that has the request by now.
    fn named(&self) -> HoldRef {
        let upstream = self.upstream.load(Ordering::Relaxed);
        let place = usize::try_from(upstream).ok().and_then(|place| place.checked_sub(1));
        let cost = place.and_then(|place| self.upstream_costs.get(place));
        let upstream_cost = cost.map_or(UpstreamCost::OfCatalogue, |cost| UpstreamCost::OfHold(cost.clone()));
        HoldRef { upstream, upstream_cost, ..self.hold.clone() }
    }

    /// How the generation went, which has ended now if it has not before.
    fn ended(&self) -> Arc<Course> {
        let mut lease = self.lease();
        lease.course.latency_ms.get_or_insert_with(|| millis(self.accepted.elapsed()));
        Arc::new(lease.course.clone())
    }

    async fn extend(
        &self,
        keys: &Keys,
        (prompt_tokens, images): (u64, u64),
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
