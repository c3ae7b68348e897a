//! The end of a stream: why it ended, what is billed, and the last bytes for its client.

use std::time::Duration;

use bytes::Bytes;
use shared::error::{ApiError, Code};
use tokio::time::timeout;

use super::{super::model_metrics::OK, Generator, Stream};
use crate::{
    client::Pipe,
    domain::{metering::StreamEnd, routing::AttemptOutcome, upstream_error::UpstreamError},
    upstream::{Failure, of_event},
};

/// Time for which the last bytes may wait for a client that does not read; its charge is captured by then.
const LAST_WRITE: Duration = Duration::from_secs(30);

/// The end of a stream as its client sees it.
pub(super) enum End {
    Complete,
    GrantUsedUp,
    ClientGone,
    Failed(ApiError),
}

impl Stream {
    /// Translates the end that the meter found.
    pub(super) fn understand(&self, end: StreamEnd) -> End {
        match end {
            StreamEnd::Complete => End::Complete,
            StreamEnd::GrantUsedUp => End::GrantUsedUp,
            StreamEnd::Complained(error) => self.complained(&error),
            StreamEnd::Broken(reason) => broken(&reason),
        }
    }

    /// Before the first word an upstream's error may be the request's fault, which some servers find only once they have
    /// begun to answer. Its text may quote the prompt, and is kept out of the log.
    fn complained(&self, error: &UpstreamError) -> End {
        match of_event(error, &self.running.upstream().model) {
            Failure::Refused(error) if !self.meter.has_begun() => End::Failed(error),
            failure => broken(&format!("it reported an error ({})", failure.kind())),
        }
    }

    /// Settles the stream and writes its last bytes.
    pub(super) async fn end(mut self, end: End) {
        if !matches!(end, End::Failed(_)) {
            self.count_prompt().await;
        }
        match &end {
            End::Complete => self.running.note(AttemptOutcome::Served),
            End::Failed(e) if matches!(e.code, Code::UpstreamError | Code::UpstreamTimeout) => {
                self.running.note(AttemptOutcome::Failed);
            }
            End::Failed(_) | End::GrantUsedUp | End::ClientGone => {}
        }
        let (usage, estimated) = self.meter.usage();
        self.job.check_answer(self.meter.counter(), self.meter.unknown_finish(), &self.running);
        let Self { generator, job, hold, mut meter, running, mut log, pipe, mut room, .. } = self;
        meter.forget_incomplete();
        room.hold(meter.held_bytes());
        drop(running);
        let free = matches!(end, End::Failed(_)) && !meter.has_begun();
        if free {
            hold.release().await;
        } else {
            log.usage = usage;
            log.charge = hold.capture(usage, estimated).await;
        }
        log.outcome = match &end {
            End::Complete => OK,
            End::GrantUsedUp => "grant_used_up",
            End::ClientGone => "client_gone",
            End::Failed(error) => error.code.as_str(),
        };
        match &end {
            End::ClientGone => metrics::counter!("gateway_client_disconnects_total").increment(1),
            End::Complete | End::GrantUsedUp => {
                meter.cut();
                meter.finish(log.charge.map(|charge| charge.charged));
            }
            End::Failed(error) => meter.fail(error),
        }
        log.write(&job.model, &generator.metrics);
        if !matches!(end, End::ClientGone) {
            write_last(&generator, &pipe, room.leave_with(meter.take_output())).await;
        }
    }

    /// Replaces an estimate of the prompt where the upstream can count it.
    async fn count_prompt(&mut self) {
        if self.meter.reported_prompt().is_none()
            && let Some(exact) = self.generator.count_exactly(&self.running, &self.job).await
        {
            self.meter.set_prompt(exact);
        }
    }
}

/// A client that does not read, or has gone, misses the end; it was charged for what it got.
async fn write_last(generator: &Generator, pipe: &Pipe, output: Bytes) {
    tokio::select! {
        written = timeout(LAST_WRITE, pipe.writable()) => {
            if written.is_ok() {
                pipe.put(output);
            }
        }
        () = pipe.left() => {}
        () = generator.cut.cancelled() => {}
    }
}

/// The end of a stream whose hold was lost.
pub(super) fn gone() -> End {
    tracing::warn!("a stream's hold expired");
    End::Failed(ApiError::service_unavailable())
}

fn broken(reason: &str) -> End {
    tracing::warn!(reason, "an upstream failed during generation");
    metrics::counter!("gateway_upstream_errors_total", "kind" => "mid_stream").increment(1);
    End::Failed(ApiError::new(Code::UpstreamError, "The model failed during generation."))
}
