//! A request that is generated for, and the answer that begins.

use std::sync::Arc;

use admission::Admitted;
use answer::{Reported, ServerId};
use bytes::Bytes;
use holds::OpenHold;
use metering::{UsageBounds, UsageCounter};
use request::Forward;
use routing::AttemptOutcome;
use shared::{
    ids::{AccountId, GenerationId, RequestId},
    money::NanoUsd,
    rates::RateStatus,
    text::shown,
};
use shared_door::{http::ClientRequestId, serve::Detach};
use shared_observe::traces::Span;
use tokio::time::Instant;
use upstreams::{Models, PassedHead, Running, UpstreamFailure};

use super::model_names::is_same_model;
use crate::client::StreamBody;

/// Most characters logged of an upstream's name for a model.
const MAX_SHOWN_MODEL: usize = 120;
/// Most characters logged of an upstream's finish reason.
const MAX_SHOWN_REASON: usize = 40;

pub(crate) struct Job {
    /// Generation, renewed by every new authorization.
    pub(crate) id: GenerationId,
    /// The HTTP request, for the log and the bill.
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
    /// Id of the hold that pays.
    pub(crate) id: GenerationId,
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
    pub(super) fn keeping(self, admitted: &mut Admitted) -> Self {
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
    pub(super) fn wanted(&self) -> u64 {
        self.forward.max_tokens.saturating_mul(self.forward.n)
    }

    /// Frees the prompt once an upstream has read it and no count is needed.
    pub(super) fn forget_prompt(&mut self) {
        self.forward.forget_prompt();
        self.admitted.forget_prompt(self.forward.kept_bytes());
    }

    /// Returns the members that every object of the answer begins with.
    pub(super) fn generation(&self, server: ServerId) -> answer::Generation<'_> {
        let model = self.alias.as_ref().unwrap_or(&self.model);
        answer::Generation { id: self.id, created: self.created, model, server }
    }

    /// Returns the effect of a failure on the health of an upstream.
    pub(super) fn outcome(
        &self,
        failure: &UpstreamFailure,
        running: &Running,
        account: AccountId,
    ) -> AttemptOutcome {
        let upstream = running.upstream();
        if upstream.form(&self.forward).is_passed() {
            return failure.outcome_of_passed(account, self.passed.is_own(&upstream.entry));
        }
        failure.outcome()
    }

    /// Returns this limit of the upstream if it is below what the request asks for, be it for the model's sake or since no
    /// more can be paid.
    pub(super) fn lowered(&self, max_tokens: u64) -> Option<u64> {
        (max_tokens < self.forward.asked_tokens).then_some(max_tokens)
    }

    /// Makes a counter for the tokens that this upstream generates, at most `max_tokens` for each choice.
    pub(super) fn usage_counter(&self, max_tokens: u64, running: &Running) -> UsageCounter {
        let Forward { prompt_estimate, images, n, bounds, .. } = self.forward;
        let bounds = UsageBounds { prompt_estimate, images, max_tokens, choices: n, catalogue: bounds };
        UsageCounter::new(bounds, running.upstream().usage_scope(&self.forward))
    }

    /// Compares an answer's reports and finish reasons with what was assumed for this request, and logs each mismatch.
    /// The bill of another model's answer is at least its cost by the vendor's own report.
    pub(super) fn check_answer(
        &self,
        counter: &UsageCounter,
        unknown_finish: Option<&str>,
        running: &Running,
        hold: &OpenHold,
    ) {
        self.check_model(counter, running, hold);
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

    /// Logs and counts an answer of another model than the one that was asked for.
    fn check_model(&self, counter: &UsageCounter, running: &Running, hold: &OpenHold) {
        let asked = &*running.upstream().entry.model;
        let Some(answered) = counter.model().filter(|answered| !is_same_model(asked, answered)) else {
            return;
        };
        metrics::counter!("gateway_answers_of_other_models_total").increment(1);
        let answered = shown(answered, MAX_SHOWN_MODEL);
        let cost = counter.reported().cost.and_then(|cost| i64::try_from(cost).ok()).map(NanoUsd::from_nanos);
        if running.upstream().answers_as(&answered) {
            let cost_usd = cost.map(tracing::field::display);
            tracing::warn!(generation = %self.id, asked, answered, cost_usd, "an upstream answers with another model than it is asked for; where its own cost is higher than the price, that is billed");
        }
        if let Some(cost) = cost {
            hold.costs_at_least(cost);
        }
    }
}
