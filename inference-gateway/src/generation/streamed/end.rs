//! The end of a stream: why it ended, its bill, and the last bytes for the client.

use answer::Settled;
use metering::StreamEnd;
use routing::AttemptOutcome;
use shared::{
    error::{ApiError, Code},
    generation::FinishReason,
};
use upstream_error::UpstreamError;
use upstreams::{OK, UpstreamFailure, of_event};

use super::stream::Stream;

/// Logged outcome of a stream whose client left.
const CLIENT_GONE: &str = "client_gone";

/// The end of a stream, as its client sees it.
pub(super) enum End {
    Complete,
    GrantUsedUp,
    ClientGone,
    Failed(ApiError),
}

impl Stream {
    /// Classifies the end that the meter found.
    pub(super) fn understand(&self, end: StreamEnd) -> End {
        match end {
            StreamEnd::Complete => End::Complete,
            StreamEnd::GrantUsedUp => End::GrantUsedUp,
            StreamEnd::Beyond => beyond(),
            StreamEnd::Complained(error) => self.complained(&error),
            StreamEnd::Broken(reason) => broken(&reason),
        }
    }

    /// Classifies an upstream's error. The request may be at fault: some servers notice this only after they have begun
    /// to answer, or once the context is full. The error's text may quote the prompt, so it is not logged.
    fn complained(&self, error: &UpstreamError) -> End {
        match of_event(error, &self.running.upstream().entry, &self.job.forward) {
            UpstreamFailure::Refused(error) => End::Failed(error),
            failure => broken(&format!("it reported an error ({})", failure.kind())),
        }
    }

    /// Ends a stream whose buffer is full, since its client reads nothing.
    pub(super) fn unread(&self) -> End {
        tracing::info!(generation = %self.job.id, bytes = self.meter.output_bytes(), "the client stopped reading and its buffer is full; ending the stream");
        metrics::counter!("gateway_answers_not_given_out_total", "reason" => "unread").increment(1);
        let message = "The stream was read too slowly, and was ended. Its tokens up to then are billed.";
        End::Failed(ApiError::new(Code::Overloaded, message))
    }

    /// Settles the stream and writes the last bytes. A client that does not read, or is gone, does not get them, but
    /// pays for all output.
    pub(super) async fn end(mut self, end: End) {
        if !matches!(end, End::Failed(_)) || self.meter.is_unreadable() {
            Box::pin(self.count_prompt()).await;
        }
        self.note_health(&end);
        let (usage, estimated) = (self.meter.usage(), !self.meter.is_reported());
        // Tokens generated after the cut are not charged: the client pays for the usage that it sees.
        let cut = matches!(end, End::GrantUsedUp).then(|| self.meter.usage_up_to_cut());
        let charged = cut.filter(|cut| *cut != usage);
        self.job.check_answer(self.meter.counter(), self.meter.unknown_finish(), &self.running, &self.hold);
        self.job.note_oddities(self.meter.oddities(), self.meter.counter(), &self.running);
        let client_left = self.deadlines.left_at().is_some();
        let Self { generator, job, hold, mut meter, running, mut log, pipe, mut memory, .. } = self;
        meter.forget_incomplete();
        memory.hold(meter.held_bytes());
        drop(running);
        let free = matches!(end, End::Failed(_)) && meter.is_free();
        let finish_reasons: &[FinishReason] = match &end {
            // Every unfinished choice ends because the grant is used up.
            End::GrantUsedUp => &[FinishReason::Length],
            End::Complete | End::Failed(_) | End::ClientGone => meter.finish_reasons(),
        };
        hold.finished(finish_reasons);
        log.finished(finish_reasons);
        if free {
            hold.release().await;
        } else {
            log.end_inference(usage);
            log.charge = hold.capture_part(usage, charged, estimated).await;
        }
        log.outcome = match &end {
            _ if client_left => CLIENT_GONE,
            End::Complete => OK,
            End::GrantUsedUp => "grant_used_up",
            End::ClientGone => CLIENT_GONE,
            End::Failed(error) => error.code.as_str(),
        };
        if let (End::Failed(error), false) = (&end, client_left) {
            log.cut(&job, error);
        }
        if client_left {
            metrics::counter!("gateway_client_disconnects_total").increment(1);
        }
        let settled = Settled {
            usage: charged.unwrap_or(usage),
            cost: log.charge.map(|charge| charge.charged),
            completed: generator.clock.now().seconds(),
        };
        match &end {
            End::ClientGone => {}
            End::Complete | End::GrantUsedUp => {
                meter.cut();
                meter.finish(settled);
            }
            End::Failed(error) => meter.fail(error, settled),
        }
        log.write(&job);
        pipe.put_last(memory.leave_with(meter.output().take()));
    }

    /// Records what the end shows about the upstream's health. Unreadable output may be the request's fault, so it is
    /// not held against the upstream. A server that answers is healthy, even if the answer is empty.
    fn note_health(&self, end: &End) {
        let too_long = self.meter.too_long_events();
        if too_long > 0 {
            tracing::warn!(
                generation = %self.job.id,
                too_long,
                "some events of a stream were too long to deliver; the usage that they reported counts"
            );
            metrics::counter!("gateway_answers_not_given_out_total", "reason" => "too_long")
                .increment(too_long);
        }
        match end {
            End::Complete => self.running.note(AttemptOutcome::Served),
            End::Failed(e) if matches!(e.code, Code::UpstreamError | Code::UpstreamTimeout) => {
                self.running.note_failure("mid_stream");
                if self.meter.is_unreadable() || self.meter.is_empty() {
                    return;
                }
                let failure = match e.code {
                    Code::UpstreamTimeout => UpstreamFailure::Timeout,
                    _ => UpstreamFailure::Broken(String::new()),
                };
                self.running.note(self.job.outcome(&failure, &self.running, self.hold.account()));
            }
            End::Failed(_) | End::GrantUsedUp | End::ClientGone => {}
        }
    }

    /// Replaces an estimate of the prompt with a count, if the upstream can count it.
    async fn count_prompt(&mut self) {
        if self.meter.reported_prompt().is_none()
            && self.running.upstream().counts_late(&self.job.forward)
            && let Some(exact) = self.generator.count_exactly(&self.running, &self.job).await
        {
            self.meter.set_prompt(exact);
        }
    }
}

/// Makes the end of a stream whose hold was lost.
pub(super) fn gone() -> End {
    tracing::warn!("a stream's hold expired");
    End::Failed(ApiError::service_unavailable())
}

/// Ends a stream that cannot be delivered in full. The request may be the cause, so the upstream is not blamed.
fn beyond() -> End {
    metrics::counter!("gateway_answers_not_given_out_total", "reason" => "calls").increment(1);
    let message = "The model's answer has too many tool calls, or tool names that are too long, to be delivered. Its tokens up to here are billed.";
    End::Failed(ApiError::new(Code::Overloaded, message))
}

fn broken(reason: &str) -> End {
    tracing::warn!(reason, "an upstream failed during generation");
    metrics::counter!("gateway_upstream_errors_total", "kind" => "mid_stream").increment(1);
    End::Failed(ApiError::new(Code::UpstreamError, "The model failed during generation."))
}
