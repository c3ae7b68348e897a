//! An open hold, owned by its request. It is captured or released exactly once, however the request ends.

use std::sync::Arc;

use shared::{
    generation::{Course, FinishReason},
    ids::{AccountId, GenerationId, KeyId},
    money::NanoUsd,
    rates::RateStatus,
    time::millis,
    tokens::Usage,
};
use shared_door::admission::Permit;
use shared_rpc::{Charge, Extended, Grant};
use tokio::time::Instant;

use crate::{
    hold_state::{HoldState, HoldStatus, Lease},
    holds::Holds,
    keys::Unavailable,
    settlement::{Ending, FirstAttempts, Settlement},
};

/// The request that a hold is opened for.
pub struct HeldRequest {
    /// When the request was accepted.
    pub accepted: Instant,
    /// When the call that opened the hold was sent.
    pub asked_at: Instant,
    /// Prompt tokens that the call requested.
    pub prompt_tokens: u64,
    /// The request's slot. It is kept until the hold is settled, so that the limit on requests also limits pending
    /// settlements.
    pub slot: Arc<Permit>,
}

/// An open hold. Dropping it captures the usage recorded so far, or releases the hold if there is no usage.
pub struct OpenHold {
    holds: Holds,
    state: Arc<HoldState>,
    /// The request's slot; `None` once the hold is resolved, by the request or otherwise.
    slot: Option<Arc<Permit>>,
    ending: Ending,
    rates: Option<Box<RateStatus>>,
}

impl Holds {
    /// Adds a hold granted for this request.
    pub fn open(&self, grant: Grant, request: HeldRequest) -> OpenHold {
        let Grant { hold, output_tokens, lease, rates, upstream_costs } = grant;
        let HeldRequest { accepted, asked_at, prompt_tokens, slot } = request;
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
        let state = Arc::new(HoldState::new(hold, upstream_costs, lease, accepted));
        self.unresolved().insert(generation, state.clone());
        OpenHold { holds: self.clone(), state, slot: Some(slot), ending: Ending::Release, rates }
    }
}

impl OpenHold {
    pub fn generation(&self) -> GenerationId {
        self.state.hold.generation
    }

    pub fn account(&self) -> AccountId {
        self.state.hold.account
    }

    pub fn key(&self) -> KeyId {
        self.state.hold.key
    }

    /// Takes the state that the rate limits of the key and its groups had when the hold was granted.
    pub fn take_rates(&mut self) -> Option<Box<RateStatus>> {
        self.rates.take()
    }

    /// Returns whether a rate limit of the key or its groups counts prompt tokens.
    pub fn has_token_rate(&self) -> bool {
        self.rates.as_ref().is_some_and(|rates| rates.tokens.is_some())
    }

    /// Returns the prompt tokens that the hold covers.
    pub fn prompt_tokens(&self) -> u64 {
        self.state.lease().prompt_tokens
    }

    /// Returns the output tokens that the hold covers, over all choices.
    pub fn output_tokens(&self) -> u64 {
        self.state.lease().output_tokens
    }

    /// Records which upstream gets the request: its position among the model's upstreams, from 1, and its name.
    pub fn sent_to(&self, place: u32, name: String) {
        self.state.sent_to(place, name);
    }

    /// Records the usage to bill from now on, even if the hold is dropped or expires.
    pub fn record(&mut self, usage: Usage, estimated: bool) {
        self.ending = Ending::Capture { usage, charged: None, estimated };
        let mut lease = self.state.lease();
        lease.usage = usage;
        lease.course.first_token_ms.get_or_insert_with(|| millis(self.state.accepted.elapsed()));
    }

    /// Records a minimum for the bill, because a model other than the requested model answered.
    pub fn costs_at_least(&self, cost: NanoUsd) {
        self.state.lease().course.least_cost_nanos = Some(cost.nanos());
    }

    /// Records why the choices of the answer ended.
    pub fn finished(&self, reasons: &[FinishReason]) {
        self.state.lease().course.finish_reason = reasons.first().copied();
    }

    /// Returns the hold's status as of the key-service's last answer.
    pub fn status(&self) -> HoldStatus {
        self.state.lease().status
    }

    /// Returns whether the lease may have run out, so that nothing may be delivered before a renewal.
    pub fn is_lapsed(&self, now: Instant) -> bool {
        let lease = self.state.lease();
        lease.status == HoldStatus::Gone || now.saturating_duration_since(lease.renewed) >= lease.length
    }

    /// Waits until the status may have changed, or a lapsed lease was renewed.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let state = self.state.clone();
        async move { state.changed().await }
    }

    /// Renews the lease. Asks the key-service to let the hold cover `output_tokens` in total, and a prompt of
    /// `prompt_tokens` and `images`.
    pub fn extend(
        &self,
        prompt_tokens: u64,
        images: u64,
        output_tokens: u64,
    ) -> impl Future<Output = Result<Extended, Unavailable>> + Send + use<> {
        let (keys, state) = (self.holds.keys().clone(), self.state.clone());
        async move { state.extend(&keys, prompt_tokens, images, output_tokens).await }
    }

    /// Bills this usage, and waits for the charge for a limited time. `None` means that the charge is not confirmed
    /// yet, and is delivered in the background. With a spool, it is delivered even if this process ends first.
    pub async fn capture(self, usage: Usage, estimated: bool) -> Option<Charge> {
        self.capture_part(usage, None, estimated).await
    }

    /// Bills this usage like [`Self::capture`], but charges at most part of it.
    pub async fn capture_part(
        mut self,
        usage: Usage,
        charged: Option<Usage>,
        estimated: bool,
    ) -> Option<Charge> {
        self.state.lease().usage = usage;
        self.ending = Ending::Capture { usage, charged, estimated };
        self.settle().await
    }

    /// Releases the hold of a request that cost nothing. Waits for the release, for a limited time, so that the money
    /// is available again when the client retries.
    pub async fn release(mut self) {
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
                // The settlement takes the slot, so that the limit on requests also limits pending settlements.
                let slot = self.slot.take();
                let settlement = self.settlement(slot);
                Box::pin(settlement.hand_over(&self.holds)).await;
                None
            }
        }
    }

    fn settlement(&self, slot: Option<Arc<Permit>>) -> Settlement {
        let course = match self.ending {
            Ending::Capture { .. } => Some(self.state.ended()),
            Ending::Release => None,
        };
        Settlement::new(self.state.named(), course, self.ending, slot)
    }
}

impl Drop for OpenHold {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.settlement(Some(slot)).deliver_in_background(&self.holds);
        }
    }
}
