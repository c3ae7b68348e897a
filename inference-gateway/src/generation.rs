//! A chat request: it is authorized, sent to an upstream, metered on the way back, and settled.
//!
//! A generation runs inside its client's connection. If the client leaves, the rest continues in the background: a
//! whole answer to its end, a stream until it is settled.

mod answer_permit;
mod authorize;
mod dispatch;
mod log;
mod streamed;
mod whole;

use std::{sync::Arc, time::Duration};

use admission::{Admission, Admitted};
use answer::Reported;
use bytes::Bytes;
use holds::{HoldStatus, Holds, Keys, OpenHold};
use metering::{UsageBounds, UsageCounter};
use request::Forward;
use shared::{
    clock::Clock,
    error::{ApiError, Code},
    ids::{GenerationId, RequestId},
    rates::RateStatus,
    refusal::Refusal,
    text::shown,
    tokens::{Usage, UsageDetails},
};
use shared_catalog::LeftBeforeHead;
use shared_door::{http::ClientRequestId, serve::Detach};
use shared_observe::traces::Span;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use upstreams::{Models, PassedHead, Running, UpstreamClient, UpstreamFailure};

use crate::client::{Client, StreamBody};
use authorize::Authorized;
use dispatch::{Reached, Route};
use log::GenerationLog;

/// Most characters logged of an upstream's finish reason.
const MAX_SHOWN_REASON: usize = 40;

/// Runs generations; one generator per worker.
pub(crate) struct Generator {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keys: Keys,
    /// The open holds of this worker.
    pub(crate) holds: Holds,
    /// This worker's connections to upstreams.
    pub(crate) http: UpstreamClient,
    /// Every request until its answer begins, and every generation that runs.
    pub(crate) running: TaskTracker,
    /// Cancelled when generations that still run must end.
    pub(crate) cut: CancellationToken,
    /// Time without reads after which the client of a stream counts as gone.
    pub(crate) client_stall: Duration,
    pub(crate) admission: Admission,
    /// Timeout for an upstream to begin its answer.
    pub(crate) answer_deadline: Duration,
    /// Time for which an upstream may send nothing of an answer that it has begun.
    pub(crate) upstream_silence: Duration,
}

pub(crate) struct Job {
    /// Generation, renewed by every new authorization.
    pub(crate) id: GenerationId,
    /// The HTTP request, for the log.
    pub(crate) request: RequestId,
    /// The span of the HTTP request.
    pub(crate) span: Span,
    /// The client's own id of the request, for the log.
    pub(crate) client_request: Option<ClientRequestId>,
    /// The client's own id of its session, for the log.
    pub(crate) session: Option<ClientRequestId>,
    /// The time of arrival, in seconds since 1970.
    pub(crate) created: i64,
    /// The same on the monotonic clock.
    pub(crate) accepted: Instant,
    pub(crate) credential: String,
    /// The models on offer when the request began.
    pub(crate) models: Arc<Models>,
    pub(crate) model: String,
    /// Alias by which the request named the model.
    pub(crate) alias: Option<String>,
    /// Request in the form for upstreams.
    pub(crate) forward: Forward,
    /// Query and headers for a body that is passed on.
    pub(crate) passed: PassedHead,
    /// The request's share of the gateway.
    pub(crate) admitted: Admitted,
}

/// A generation whose answer begins.
pub(crate) struct Started {
    /// Lowered value of `max_tokens`, if any.
    pub(crate) max_tokens: Option<u64>,
    /// State of the rates of the key and its groups.
    pub(crate) rates: Option<Box<RateStatus>>,
    pub(crate) body: AnswerBody,
}

pub(crate) enum AnswerBody {
    Whole(Bytes),
    Stream(StreamBody),
}

impl AnswerBody {
    /// Returns a whole answer that keeps the bytes of the request that it repeats, until the connection has sent
    /// everything.
    fn keeping(self, admitted: &mut Admitted) -> Self {
        match self {
            Self::Whole(bytes) => Self::Whole(admitted.leave_with(bytes)),
            Self::Stream(_) => self,
        }
    }

    /// Returns the stream, which continues by itself while its client reads nothing.
    pub(crate) fn stream(&self) -> Option<Arc<dyn Detach>> {
        match self {
            Self::Whole(_) => None,
            Self::Stream(body) => Some(body.stream()),
        }
    }
}

impl Job {
    /// Output tokens wanted of all choices together.
    fn wanted(&self) -> u64 {
        self.forward.max_tokens.saturating_mul(self.forward.n)
    }

    /// Frees the prompt once an upstream has read it and no count is needed.
    fn forget_prompt(&mut self) {
        self.forward.forget_prompt();
        self.admitted.forget_prompt(self.forward.kept_bytes());
    }

    /// Returns the members that every object of the answer begins with.
    fn generation(&self) -> answer::Generation<'_> {
        let model = self.alias.as_ref().unwrap_or(&self.model);
        answer::Generation { id: self.id, created: self.created, model }
    }

    fn lowered(&self, max_tokens: u64) -> Option<u64> {
        (max_tokens < self.forward.max_tokens).then_some(max_tokens)
    }

    /// Makes a counter for the tokens that this upstream generates, at most `max_tokens` for each choice.
    fn usage_counter(&self, max_tokens: u64, running: &Running) -> UsageCounter {
        let Forward { prompt_estimate, images, n, bounds, .. } = self.forward;
        let bounds = UsageBounds { prompt_estimate, images, max_tokens, choices: n, catalogue: bounds };
        UsageCounter::new(bounds, running.upstream().usage_scope(&self.forward))
    }

    /// Compares an answer's reports and finish reasons with what was assumed for this request, and logs each mismatch.
    fn check_answer(&self, counter: &UsageCounter, unknown_finish: Option<&str>, running: &Running) {
        let (reported, false_counts, bounds) =
            (counter.reported(), counter.disbelieved(), self.forward.bounds);
        if let Some(prompt) = reported.prompt.filter(|_| self.forward.is_plain) {
            running.observe_prompt(prompt, self.forward.prompt_bound);
        }
        if reported.prompt > Some(bounds.prompt) || reported.completion > Some(bounds.completion) {
            metrics::counter!("gateway_usage_beyond_catalogue_total").increment(1);
            tracing::warn!(generation = %self.id, ?reported, ?bounds, "the upstream reported more than the catalogue allows; billed as reported");
        }
        if *false_counts != Reported::default() {
            metrics::counter!("gateway_usage_false_reports_total").increment(1);
            tracing::warn!(generation = %self.id, ?false_counts, ?bounds, "the upstream reported impossible usage; it is not billed");
        }
        if counter.has_part_beyond_whole() {
            metrics::counter!("faregate_usage_contradictions_total").increment(1);
            tracing::warn!(generation = %self.id, ?reported, "the upstream reported a part that is larger than its whole; the whole is billed");
        }
        if let Some(reason) = unknown_finish {
            let reason = shown(reason, MAX_SHOWN_REASON);
            tracing::warn!(generation = %self.id, reason, "the upstream gave an unknown finish reason; the client reads \"stop\"");
        }
    }
}

impl Generator {
    /// Runs a generation until its answer begins, or to the end of a whole answer. The returned id is that of the hold
    /// that pays.
    pub(crate) async fn run(
        self: Arc<Self>,
        mut job: Job,
        client: Client,
    ) -> Result<(GenerationId, Started), ApiError> {
        let mut log = GenerationLog::begin(&job);
        let deadline = whole::Deadline::new(&client, self.answer_deadline);
        let started = match self.begin(&mut job, &deadline, &mut log).await {
            Ok((hold, reached)) if job.forward.stream => {
                return Ok((job.id, streamed::start(&self, job, hold, reached, client, log)));
            }
            Ok(begun) => {
                job.forget_prompt();
                whole::run(&self, &job, begun, &deadline, &mut log).await
            }
            Err(error) => Err(error),
        };
        // If the client left, that stays the logged outcome, before any error.
        if let Err(error) = &started
            && log.outcome.is_empty()
        {
            log.outcome = error.code.as_str();
            log.fail(error);
        }
        log.write(&job);
        started.map(|started| (job.id, Started { body: started.body.keeping(&mut job.admitted), ..started }))
    }

    /// Authorizes the generation and brings it to an upstream.
    async fn begin(
        &self,
        job: &mut Job,
        deadline: &whole::Deadline,
        log: &mut GenerationLog,
    ) -> Result<(OpenHold, Reached), ApiError> {
        let models = job.models.clone();
        let pool = models.pool(&job.model).ok_or_else(ApiError::internal)?;
        let Authorized { hold, asked, counted_by } = self.authorize(job, pool).await?;
        log.begin_inference(job);
        let mut route = Route { counted_by, asked: None, asked_kind: None, inference: log.inference.clone() };
        log.generation = hold.generation();
        log.key = Some(hold.key());
        let job = &*job;
        let reached = tokio::select! {
            biased;
            reached = self.reach(pool, job, &hold, asked, &mut route) => reached,
            refusal = revoked(&hold), if job.forward.stream => {
                hold.release().await;
                return Err(refusal.into());
            }
            () = self.cut.cancelled() => Err(UpstreamFailure::Broken("cut off, since the gateway stops".into())),
            () = deadline.passed(), if !job.forward.stream => Err(UpstreamFailure::Timeout),
            _ = deadline.client.left(), if job.forward.stream => {
                log.asked = route.asked_kind;
                self.settle_left_before_head(route.asked, job, hold, log).await;
                // The client reads nothing any more.
                return Err(ApiError::new(Code::UpstreamError, "The client left."));
            }
        };
        log.asked = route.asked_kind;
        match reached {
            Ok(reached) => {
                log.reached(reached.running.upstream());
                Ok((hold, reached))
            }
            Err(failure) => {
                tracing::warn!(generation = %job.id, model = job.model, %failure, "the upstream did not answer");
                metrics::counter!("gateway_upstream_errors_total", "kind" => failure.kind()).increment(1);
                hold.release().await;
                Err(failure.into())
            }
        }
    }

    /// Settles a stream whose client left before the upstream answered. It is free, or charged for the prompt, as
    /// `left_before_head` of the asked upstream says. If no upstream was asked, it is free.
    async fn settle_left_before_head(
        &self,
        asked: Option<Running>,
        job: &Job,
        hold: OpenHold,
        log: &mut GenerationLog,
    ) {
        metrics::counter!("gateway_client_disconnects_total").increment(1);
        log.outcome = "client_gone";
        let charged =
            asked.filter(|running| running.upstream().entry.left_before_head == LeftBeforeHead::Prompt);
        let Some(running) = charged else { return hold.release().await };
        let exact = self.count_exactly(&running, job).await;
        let prompt = exact.unwrap_or(job.forward.prompt_estimate);
        let details = UsageDetails { images: job.forward.images, ..UsageDetails::default() };
        log.end_inference(Usage { details, ..Usage::of(prompt, 0, 0) });
        log.charge = hold.capture(log.usage, exact.is_none()).await;
    }
}

/// Returns once the hold's key is revoked, or its group archived.
async fn revoked(hold: &OpenHold) -> Refusal {
    loop {
        if let HoldStatus::Revoked(refusal) = hold.status() {
            return refusal;
        }
        hold.changed().await;
    }
}
