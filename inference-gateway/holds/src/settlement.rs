//! Settles holds, even if the key-services are away for a long time.

use std::{sync::Arc, time::Duration};

use shared::{generation::Course, ids::GenerationId, tokens::Usage};
use shared_door::admission::Permit;
use shared_observe::{
    failure_log::{FailureLog, Failures},
    metrics::Counted,
};
use shared_rpc::{Capture, Captured, Charge, HoldRef, Release};
use tokio::time::{Instant, timeout};

use crate::{
    holds::Holds,
    keys::{Keys, Unavailable},
    spool::Spool,
};

/// How long a response waits for the charge. After that, the response completes without it, and the capture is
/// delivered later.
const CAPTURE_BOUND: Duration = Duration::from_secs(2);
/// How long to retry a settlement that fails for a permanent reason, such as a damaged record.
const GIVE_UP_AFTER: Duration = Duration::from_mins(5);

/// Failed attempts of all settlements. A success may belong to another settlement, so it does not show that the failure
/// is over.
static UNDELIVERED: FailureLog = FailureLog::new();

/// How a hold is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Capture {
        usage: Usage,
        /// The part of the usage to charge, if the upstream continued after its stream was cut.
        charged: Option<Usage>,
        /// Whether the usage is an estimate.
        estimated: bool,
    },
    Release,
}

pub(crate) struct Settlement {
    hold: HoldRef,
    ending: Ending,
    /// What happened in the generation, if it is billed.
    course: Option<Arc<Course>>,
    /// The slot is kept until delivery, so that the limit on requests also limits pending settlements.
    slot: Option<Arc<Permit>>,
    spooled: bool,
    /// Counts this capture while neither a key-service nor the spool has it.
    in_memory_alone: Option<Counted>,
}

/// Outcome of the attempts that a response waits for.
pub(crate) enum FirstAttempts {
    /// Delivered. Includes the charge if the generation was billed.
    Settled(Option<Charge>),
    /// Not confirmed yet.
    Unsettled,
}

impl Holds {
    /// Settles the captures that an earlier process left in the spool.
    pub fn settle_spooled(&self) {
        for capture in self.spool().into_iter().flat_map(Spool::pending) {
            Settlement::spooled(capture).deliver_in_background(self);
        }
    }
}

impl Settlement {
    pub(crate) fn new(
        hold: HoldRef,
        course: Option<Arc<Course>>,
        ending: Ending,
        slot: Option<Arc<Permit>>,
    ) -> Self {
        Self { hold, ending, course, slot, spooled: false, in_memory_alone: None }
    }

    /// Makes the settlement of a capture that an earlier process left in the spool.
    fn spooled(capture: Capture) -> Self {
        let Capture { hold, usage, charged, estimated, course } = capture;
        let ending = Ending::Capture { usage, charged, estimated };
        Self { hold, ending, course, slot: None, spooled: true, in_memory_alone: None }
    }

    /// Tries to deliver the settlement while a response may wait. Returns the charge for a capture.
    pub(crate) async fn attempt(&self, holds: &Holds) -> FirstAttempts {
        let attempts = async {
            let mut backoff = Keys::backoff();
            loop {
                match self.send(holds).await {
                    Ok(charge) => return FirstAttempts::Settled(charge),
                    Err(e) if e.may_pass() => {
                        tracing::debug!(error = %e, "a settlement failed; trying again");
                    }
                    Err(_) => return FirstAttempts::Unsettled,
                }
                holds.keys().pause(&mut backoff).await;
            }
        };
        timeout(CAPTURE_BOUND, attempts).await.unwrap_or(FirstAttempts::Unsettled)
    }

    /// Writes the settlement to the spool, then delivers it in a separate task.
    pub(crate) async fn hand_over(mut self, holds: &Holds) {
        tracing::warn!(generation = %self.hold.generation, ending = ?self.ending, "not settled in time; settling in the background");
        self.spool(holds).await;
        self.deliver_in_background(holds);
    }

    /// Delivers the settlement in a separate task, without spooling it.
    pub(crate) fn deliver_in_background(self, holds: &Holds) {
        let (holds, tracker) = (holds.clone(), holds.settling().clone());
        tracker.spawn(async move { self.deliver(&holds).await });
    }

    /// Repeats the settlement until it is answered. Captures and releases are idempotent by generation id.
    async fn deliver(mut self, holds: &Holds) {
        let (began, mut backoff) = (Instant::now(), Keys::backoff());
        let generation = self.hold.generation;
        loop {
            match self.send(holds).await {
                Ok(_) => break,
                Err(Unavailable::Ended) => {
                    // If there is a spool, it has the settlement.
                    tracing::error!(%generation, ending = ?self.ending, "stopped before a settlement was delivered");
                    return;
                }
                Err(e) if !e.may_pass() && began.elapsed() > GIVE_UP_AFTER => {
                    tracing::error!(%generation, ending = ?self.ending, error = %e, "gave up on a settlement that cannot be delivered");
                    break;
                }
                Err(e) => {
                    metrics::counter!("gateway_settle_failures_total").increment(1);
                    tracing::debug!(%generation, error = %e, "a settlement was not delivered; trying again");
                    if let Some(Failures { untold, .. }) = UNDELIVERED.failed() {
                        tracing::warn!(attempts = untold, error = %e, "settlements were not delivered; retrying each");
                    }
                }
            }
            if began.elapsed() > CAPTURE_BOUND {
                self.spool(holds).await;
            }
            holds.keys().pause(&mut backoff).await;
        }
        self.resolved(holds, generation);
    }

    async fn send(&self, holds: &Holds) -> Result<Option<Charge>, Unavailable> {
        let (keys, hold, course) = (holds.keys(), self.hold.clone(), self.course.clone());
        match self.ending {
            Ending::Capture { usage, charged, estimated } => {
                match keys.capture(Capture { hold, usage, charged, estimated, course }).await? {
                    Captured::Billed(charge) => Ok(Some(charge)),
                    Captured::Gone => {
                        tracing::error!(generation = %self.hold.generation, ?usage, "cannot bill usage, since its key no longer exists");
                        Ok(None)
                    }
                }
            }
            Ending::Release => keys.release(Release::Hold(hold)).await.map(|()| None),
        }
    }

    /// Writes a capture to the spool. If that is not possible, the capture is only in memory.
    async fn spool(&mut self, holds: &Holds) {
        let (Ending::Capture { usage, charged, estimated }, false) = (self.ending, self.spooled) else {
            return;
        };
        if let Some(spool) = holds.spool() {
            let (hold, course) = (self.hold.clone(), self.course.clone());
            let capture = Capture { hold, usage, charged, estimated, course };
            self.spooled = spool.append(capture).await.is_ok();
        }
        if self.spooled {
            self.in_memory_alone = None;
        } else {
            self.in_memory_alone
                .get_or_insert_with(|| Counted::by(metrics::gauge!("gateway_captures_in_memory_alone")));
        }
    }

    fn resolved(self, holds: &Holds, generation: GenerationId) {
        holds.unresolved().remove(&generation);
        if let (Some(spool), true) = (holds.spool(), self.spooled) {
            spool.remove(generation);
        }
        drop(self.slot);
    }
}
