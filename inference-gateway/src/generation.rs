//! One chat request: authorized, sent to an upstream, metered on its way back, and settled.
//!
//! A generation runs inside its client's connection. If the client leaves, the rest goes on in the background: a whole answer
//! to its end, a stream to its settlement.

mod authorize;
mod dispatch;
mod log;
mod model_metrics;
mod room;
mod streamed;
mod whole;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use shared::{
    catalog::LeftBeforeHead,
    error::{ApiError, Code},
    ids::{AccountId, GenerationId, RequestId},
    process::{
        http::ClientRequestId,
        serve::{Caller, ConnectionTrust, Network},
    },
    refusal::Refusal,
    text::shown,
    tokens::Usage,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    byte_budget::{ByteBudget, BytePermit},
    client::{Client, StreamBody},
    hold::{HoldStatus, Holds, OpenHold, Slot},
    keys::Keys,
    upstream::{Failure, Pools, Running, UpstreamClient},
};
use authorize::Authorized;
use dispatch::{Reached, Route};
use domain::{
    answer::{self, Reported},
    chat::Forward,
    metering::{UsageBounds, UsageCounter},
};
use log::GenerationLog;
pub(crate) use model_metrics::Metrics;

/// Characters of an upstream's finish reason that are logged.
const MAX_SHOWN_REASON: usize = 40;

/// Makes generations; one a worker.
pub(crate) struct Generator {
    /// The key-services.
    pub(crate) keys: Keys,
    /// The open holds of this worker.
    pub(crate) holds: Holds,
    /// The upstreams of every model.
    pub(crate) pools: Arc<Pools>,
    /// This worker's connections to upstreams.
    pub(crate) http: UpstreamClient,
    /// Every generation that runs.
    pub(crate) running: TaskTracker,
    /// Cancelled when the generations that still run have to end.
    pub(crate) cut: CancellationToken,
    /// The metrics of every model.
    pub(crate) metrics: Arc<Metrics>,
    /// The time that a client may take nothing of its stream before it counts as gone.
    pub(crate) client_stall: Duration,
    /// The memory for prompts.
    pub(crate) prompts: ByteBudget,
    /// The memory for answers.
    pub(crate) answers: ByteBudget,
    /// The time that an upstream may take to begin its answer.
    pub(crate) answer_deadline: Duration,
    /// The time for which an upstream may send nothing of an answer that has begun.
    pub(crate) upstream_silence: Duration,
}

/// A checked request.
pub(crate) struct Job {
    /// The generation: a new one whenever the request is authorized anew.
    pub(crate) id: GenerationId,
    /// The HTTP request, for the log.
    pub(crate) request: RequestId,
    /// The client's own id of it, for the log.
    pub(crate) client_request: Option<ClientRequestId>,
    /// The time of arrival, in seconds since 1970.
    pub(crate) created: i64,
    /// The presented key.
    pub(crate) credential: String,
    /// The model's id.
    pub(crate) model: String,
    /// The request as upstreams get it.
    pub(crate) forward: Forward,
    /// Its part of the memory for prompts.
    pub(crate) permit: BytePermit,
    /// The trust in its connection.
    pub(crate) trust: ConnectionTrust,
    /// The account that pays, once it is known.
    pub(crate) payer: Option<AccountId>,
}

/// A generation whose answer begins.
pub(crate) struct Started {
    /// The value that `max_tokens` was lowered to, if it was.
    pub(crate) max_tokens: Option<u64>,
    /// The answer.
    pub(crate) body: AnswerBody,
}

/// The body of an answer.
pub(crate) enum AnswerBody {
    /// A whole answer.
    Whole(Bytes),
    /// A stream.
    Stream(StreamBody),
}

impl Job {
    /// Output tokens wanted of all choices together.
    fn wanted(&self) -> u64 {
        self.forward.max_tokens.saturating_mul(self.forward.n)
    }

    /// Notes the account that pays, which its connection is trusted for.
    fn is_paid_by(&mut self, account: AccountId) {
        self.payer = Some(account);
        self.trust.grant(Caller::Account(account));
    }

    /// Frees the prompt: an upstream has read it, and it need not be counted.
    fn forget_prompt(&mut self) {
        self.forward.forget_prompt();
        self.permit.shrink_to(0);
    }

    /// The members that every object of the answer begins with.
    fn generation(&self) -> answer::Generation<'_> {
        answer::Generation { id: self.id, created: self.created, model: &self.model }
    }

    /// The value that `max_tokens` was lowered to, if it was.
    fn lowered(&self, max_tokens: u64) -> Option<u64> {
        (max_tokens < self.forward.max_tokens).then_some(max_tokens)
    }

    /// A counter of the tokens that this upstream generates, limited to `max_tokens` of each choice.
    fn usage_counter(&self, max_tokens: u64, running: &Running) -> UsageCounter {
        let Forward { prompt_estimate, n, bounds, .. } = self.forward;
        let bounds = UsageBounds { prompt_estimate, max_tokens, choices: n, catalogue: bounds };
        UsageCounter::new(bounds, running.upstream().usage_scope())
    }

    /// Compares the reports and finish reasons of an answer with the assumptions of this request, and logs those that fall out of
    /// them.
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
        if let Some(reason) = unknown_finish {
            let reason = shown(reason, MAX_SHOWN_REASON);
            tracing::warn!(generation = %self.id, reason, "the upstream gave an unknown finish reason; the client reads \"stop\"");
        }
    }
}

impl Generator {
    /// A slot for one generation, if one is free; for a caller from this network, if no credential of it was accepted yet.
    pub(crate) async fn reserve(&self, stranger: Option<Network>) -> Option<Slot> {
        self.holds.reserve(stranger).await
    }

    /// Runs a generation until its answer begins: until its end, where the answer is whole. The id is that of the hold that
    /// pays.
    pub(crate) async fn run(
        self: Arc<Self>,
        mut job: Job,
        slot: Slot,
        client: Client,
    ) -> Result<(GenerationId, Started), ApiError> {
        let mut log = GenerationLog::begin(&job);
        let deadline = whole::Deadline::new(&client, self.answer_deadline);
        let started = match self.begin(&mut job, slot, &deadline, &mut log).await {
            Ok((hold, reached)) if job.forward.stream => {
                return Ok((job.id, streamed::start(&self, job, hold, reached, client, log)));
            }
            Ok(begun) => {
                job.forget_prompt();
                whole::run(&self, &job, begun, &deadline, &mut log).await
            }
            Err(error) => Err(error),
        };
        // The departure of a client stays the logged outcome, whichever error it would have got.
        if let Err(error) = &started
            && log.outcome.is_empty()
        {
            log.outcome = error.code.as_str();
        }
        log.write(&job.model, &self.metrics);
        started.map(|started| (job.id, started))
    }

    /// Authorizes the generation and brings it to an upstream.
    async fn begin(
        &self,
        job: &mut Job,
        slot: Slot,
        deadline: &whole::Deadline,
        log: &mut GenerationLog,
    ) -> Result<(OpenHold, Reached), ApiError> {
        let pool = self.pools.get(&job.model).ok_or_else(ApiError::internal)?;
        let Authorized { mut hold, asked, counted_by } = self.authorize(job, pool, slot).await?;
        let mut route = Route { counted_by, asked: None };
        log.generation = hold.generation();
        log.key = Some(hold.key());
        job.is_paid_by(hold.account());
        if let Err(overloaded) = self.count_against(job, &mut hold) {
            hold.release().await;
            return Err(overloaded);
        }
        let job = &*job;
        let reached = tokio::select! {
            reached = self.reach(pool, job, &hold, asked, &mut route) => reached,
            () = revoked(&hold), if job.forward.stream => {
                hold.release().await;
                return Err(Refusal::InvalidApiKey.into());
            }
            () = self.cut.cancelled() => Err(Failure::Broken("cut off, since the gateway stops".into())),
            () = deadline.passed(), if !job.forward.stream => Err(Failure::Timeout),
            _ = deadline.client.left(), if job.forward.stream => {
                self.settle_left_before_head(route.asked, job, hold, log).await;
                // The client reads nothing any more.
                return Err(ApiError::new(Code::UpstreamError, "The client left."));
            }
        };
        match reached {
            Ok(reached) => Ok((hold, reached)),
            Err(failure) => {
                tracing::warn!(generation = %job.id, model = job.model, %failure, "the upstream did not answer");
                metrics::counter!("gateway_upstream_errors_total", "kind" => failure.kind()).increment(1);
                hold.release().await;
                Err(failure.into())
            }
        }
    }

    /// Counts a request against the shares of its account, which is known from here on.
    fn count_against(&self, job: &mut Job, hold: &mut OpenHold) -> Result<(), ApiError> {
        if !hold.take_share() {
            metrics::counter!("gateway_account_share_used_up_total").increment(1);
            let message = "Too many requests of this account are in flight; try again shortly.";
            return Err(ApiError::new(Code::Overloaded, message));
        }
        job.permit.move_to(&self.prompts, hold.account())
    }

    /// A stream whose client left before its upstream answered is free, or pays for its prompt, according to the
    /// `left_before_head` of the upstream that was asked. It is free where none was asked yet.
    async fn settle_left_before_head(
        &self,
        asked: Option<Running>,
        job: &Job,
        hold: OpenHold,
        log: &mut GenerationLog,
    ) {
        metrics::counter!("gateway_client_disconnects_total").increment(1);
        log.outcome = "client_gone";
        let charged = asked.filter(|running| running.upstream().left_before_head == LeftBeforeHead::Prompt);
        let Some(running) = charged else { return hold.release().await };
        let exact = self.count_exactly(&running, job).await;
        let prompt = exact.unwrap_or(job.forward.prompt_estimate);
        log.usage = Usage { prompt, cached: 0, completion: 0 };
        log.charge = hold.capture(log.usage, exact.is_none()).await;
    }
}

/// Returns when the hold's key is found to be revoked.
async fn revoked(hold: &OpenHold) {
    while hold.standing() != HoldStatus::Revoked {
        hold.changed().await;
    }
}
