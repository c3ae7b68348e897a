//! The obligation of an open hold: whatever happens to a request, its hold is captured or released, once.

use std::time::Duration;

use shared::{rpc::v1, tokens::Usage};
use tokio::{sync::oneshot, time::timeout};

use crate::{
    keys::Charge,
    settler::{Ending, Slot},
};

/// How long a response waits for its charge; past it, it completes all the same, and the capture follows.
const CAPTURE_BOUND: Duration = Duration::from_secs(2);

/// An open hold, and what would have to be billed for it at this moment. Dropping it settles just that.
pub struct Meter {
    open: Option<(v1::HoldRef, Slot)>,
    used: Option<(Usage, bool)>,
}

impl Meter {
    /// Takes on the obligation. Nothing was used yet: dropped now, the hold is released.
    pub fn new(hold: v1::HoldRef, slot: Slot) -> Self {
        Self { open: Some((hold, slot)), used: None }
    }

    /// What would have to be billed from now on.
    pub fn record(&mut self, usage: Usage, estimated: bool) {
        self.used = Some((usage, estimated));
    }

    /// What would be billed at this moment.
    pub fn usage(&self) -> Usage {
        self.used.unwrap_or_default().0
    }

    /// Bills what was recorded and waits for it, within a bound. `None`: not billed, or not yet.
    pub async fn capture(mut self) -> Option<Charge> {
        let delivered = self.settle()?;
        if let Ok(charge) = timeout(CAPTURE_BOUND, delivered).await {
            return charge.ok().flatten();
        }
        tracing::warn!("a response completes before its charge is confirmed");
        None
    }

    /// Gives the hold back: the request cost nothing. Waits for it, within a bound, so that a client that tries again
    /// finds its money free. Answers as [`Meter::capture`] does: nothing was billed.
    pub async fn release(mut self) -> Option<Charge> {
        self.used = None;
        // Past the bound the settler goes on by itself.
        timeout(CAPTURE_BOUND, self.settle()?).await.ok()?.ok()?
    }

    fn settle(&mut self) -> Option<oneshot::Receiver<Option<Charge>>> {
        let (hold, slot) = self.open.take()?;
        let ending = match self.used {
            Some((usage, estimated)) => Ending::Capture { usage, estimated },
            None => Ending::Release,
        };
        Some(slot.settle(hold, ending))
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // The receipt is not waited for: the settler delivers it.
        drop(self.settle());
    }
}
