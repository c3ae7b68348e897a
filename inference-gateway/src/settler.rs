//! Delivers captures and releases, however long the key-service is away: the obligation that every hold leaves behind.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use shared::{rpc::v1, tokens::Usage};
use tokio::{
    sync::{
        mpsc::{self, OwnedPermit, error::TrySendError},
        oneshot,
    },
    task::JoinHandle,
    time::sleep,
};

use crate::keys::{Charge, Keys, Unavailable};

/// Settlements under way at once; those behind them wait in their slots.
const DELIVERING: usize = 4096;
/// The first pause before a settlement is sent again; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// A settlement is tried until it is delivered; a second keeps the load low and the delay short.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Where slots come from. Cheap to clone.
#[derive(Clone)]
pub struct Settler {
    queue: mpsc::Sender<Settlement>,
}

/// A place in the settler's queue, reserved before a hold is opened: handing over what is owed can then not fail.
pub struct Slot(OwnedPermit<Settlement>);

/// How a hold is to be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Bill this usage.
    Capture {
        /// Tokens used.
        usage: Usage,
        /// Whether that is an estimate.
        estimated: bool,
    },
    /// It cost nothing.
    Release,
}

/// What is owed to the key-service.
struct Settlement {
    hold: v1::HoldRef,
    ending: Ending,
    delivered: oneshot::Sender<Option<Charge>>,
}

impl Settler {
    /// Starts the settler with so many slots. Its task ends once every slot and every handle is gone and what was owed
    /// is delivered.
    pub fn start(keys: Keys, slots: usize) -> (Self, JoinHandle<()>) {
        let (queue, settlements) = mpsc::channel(slots);
        (Self { queue }, tokio::spawn(run(Arc::new(keys), settlements)))
    }

    /// A slot, if one is free.
    pub fn reserve(&self) -> Option<Slot> {
        match self.queue.clone().try_reserve_owned() {
            Ok(permit) => Some(Slot(permit)),
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => None,
        }
    }
}

impl Slot {
    /// Hands over what is owed. The answer comes when it is delivered, which may be long after; `None` in it: nothing
    /// was billed.
    pub fn settle(self, hold: v1::HoldRef, ending: Ending) -> oneshot::Receiver<Option<Charge>> {
        let (delivered, outcome) = oneshot::channel();
        self.0.send(Settlement { hold, ending, delivered });
        outcome
    }
}

async fn run(keys: Arc<Keys>, mut settlements: mpsc::Receiver<Settlement>) {
    let mut delivering = FuturesUnordered::new();
    let mut more = true;
    while more || !delivering.is_empty() {
        tokio::select! {
            settlement = settlements.recv(), if more && delivering.len() < DELIVERING => match settlement {
                Some(settlement) => delivering.push(deliver(&keys, settlement)),
                None => more = false,
            },
            Some(()) = delivering.next() => {}
        }
    }
}

/// Sends until it is answered. Capture and release are idempotent by generation id.
async fn deliver(keys: &Keys, Settlement { hold, ending, delivered }: Settlement) {
    let mut pause = FIRST_PAUSE;
    let charge = loop {
        let sent = match ending {
            Ending::Capture { usage, estimated } => keys.capture(&hold, usage, estimated).await,
            Ending::Release => keys.release(&hold).await.map(|()| None),
        };
        match sent {
            Ok(charge) => break charge,
            Err(Unavailable::Ended) => {
                tracing::error!(
                    generation = hold.generation_id,
                    ?ending,
                    "stopped before this was delivered; the hold will expire"
                );
                break None;
            }
            Err(e) => {
                metrics::counter!("gateway_settle_failures_total").increment(1);
                tracing::warn!(generation = hold.generation_id, error = %e, "a settlement was not delivered; trying again");
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    };
    if let (Ending::Capture { usage, .. }, None) = (ending, charge) {
        tracing::error!(generation = hold.generation_id, ?usage, "there was no hold to capture from");
    }
    // Nobody listens where the client was not made to wait for it.
    let _ = delivered.send(charge);
}
