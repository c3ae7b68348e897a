//! Reports a stream's progress to its hold, extends the hold before more tokens are needed, and retries while the
//! stream may wait.

use std::future::pending;

use holds::{HoldStatus, Unavailable};
use metering::StreamEnd;
use shared_rpc::{Extended, Extension};

use super::{
    end::{End, gone},
    stream::{Extending, Stream},
};

/// Waits for the extension that is in flight. If there is none, waits forever.
pub(super) async fn in_flight(extending: &mut Option<Extending>) -> (u64, Result<Extended, Unavailable>) {
    match extending {
        Some(extending) => extending.await,
        None => pending().await,
    }
}

impl Stream {
    /// Records the meter's progress, requests more tokens if due, and classifies the end of the stream, if it has
    /// ended.
    pub(super) fn metered(&mut self, end: Option<StreamEnd>) -> Option<End> {
        self.record();
        if self.meter.reported_prompt().is_some() {
            self.job.forget_prompt();
        }
        if let Some(end) = end {
            return Some(self.understand(end));
        }
        self.deadlines.set_finished(self.meter.is_finished() || self.meter.has_last_chunk());
        self.ask();
        None
    }

    /// Records the usage so far, once there is some.
    pub(super) fn record(&mut self) {
        if self.meter.has_begun() {
            self.log.first_token();
            self.hold.record(self.meter.usage(), !self.meter.is_reported());
        }
    }

    /// Requests more tokens if due, unless an extension is in flight.
    pub(super) fn ask(&mut self) {
        let Some(total) = self.meter.ask().filter(|_| self.extending.is_none()) else { return };
        let prompt = self.meter.reported_prompt().unwrap_or(self.hold.prompt_tokens());
        let extending = self.hold.extend(prompt, self.job.forward.images, total);
        self.extending = Some(Box::pin(async move { (total, extending.await) }));
    }

    /// Handles the answer to an extension.
    pub(super) fn extended(&mut self, asked: u64, answer: &Result<Extended, Unavailable>) -> Option<End> {
        match answer {
            Ok(Extended::Open(Extension { revoked_by: Some(refusal), .. })) => {
                Some(End::Failed((*refusal).into()))
            }
            Ok(Extended::Open(Extension { output_tokens, revoked_by: None, .. })) => {
                let end = self.meter.extended(*output_tokens, asked);
                self.metered(end)
            }
            Ok(Extended::Gone) => Some(gone()),
            Err(e) => {
                tracing::debug!(generation = %self.job.id, error = %e, "a hold was not extended; trying again");
                None
            }
        }
    }

    /// Handles a new status of the hold that the heartbeat reported.
    pub(super) fn status_changed(&mut self) -> Option<End> {
        match self.hold.status() {
            HoldStatus::Revoked(refusal) => Some(End::Failed(refusal.into())),
            HoldStatus::Gone => Some(gone()),
            HoldStatus::Open => None,
        }
    }
}
