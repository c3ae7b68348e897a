//! A request for a generation, and a generation whose answer begins.

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

/// Maximum length in characters of an upstream's model name in the log.
const MAX_SHOWN_MODEL: usize = 120;
/// Maximum length in characters of an upstream's finish reason in the log.
const MAX_SHOWN_REASON: usize = 40;

pub(crate) struct Job {
    /// Id of the generation. Each new authorization gets a new id.
    pub(crate) id: GenerationId,
    /// Id of the HTTP request, for the log and the bill.
    pub(crate) request: RequestId,
    /// The span of the HTTP request.
    pub(crate) span: Span,
    /// The client's id for the request, for the log.
    pub(crate) client_request: Option<ClientRequestId>,
    /// The client's id for its session, for the log.
    pub(crate) session: Option<ClientRequestId>,
    /// Time of arrival, in seconds since 1970.
    pub(crate) created: i64,
    /// Time of arrival, by the monotonic clock.
    pub(crate) accepted: Instant,
    pub(crate) credential: String,
    /// The models that were current when the request began.
    pub(crate) models: Arc<Models>,
    pub(crate) model: String,
    /// The alias in the request, if the request names the model by an alias.
    pub(crate) alias: Option<String>,
    /// The request, in the form for upstreams.
    pub(crate) forward: Forward,
    /// The client's query and headers, for a body that is passed on.
    pub(crate) passed: PassedHead,
    /// The request's share of the gateway.
    pub(crate) admitted: Admitted,
}

/// A generation whose answer begins.
pub(crate) struct Started {
    /// Id of the generation, and of the hold that pays for it.
    pub(crate) id: GenerationId,
    /// The value to which `max_tokens` was lowered, if it was.
    pub(crate) max_tokens: Option<u64>,
    /// State of the rate limits of the key and its groups.
    pub(crate) rates: Option<Box<RateStatus>>,
    pub(crate) body: AnswerBody,
}

pub(crate) enum AnswerBody {
    Whole(Bytes),
    Stream(StreamBody),
}

impl AnswerBody {
    /// Makes the answer keep the memory of those parts of the request that the answer repeats, until the connection has
    /// sent everything.
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
    /// Returns the requested output tokens over all choices.
    pub(super) fn wanted(&self) -> u64 {
        self.forward.max_tokens.saturating_mul(self.forward.n)
    }

    /// Frees the prompt once an upstream has read it and no count is needed.
    pub(super) fn forget_prompt(&mut self) {
        self.forward.forget_prompt();
        self.admitted.forget_prompt(self.forward.kept_bytes());
    }

    /// Returns the members with which every object of the answer begins.
    pub(super) fn generation(&self, server: ServerId) -> answer::Generation<'_> {
        let model = self.alias.as_ref().unwrap_or(&self.model);
        answer::Generation { id: self.id, created: self.created, model, server }
    }

    /// Returns how a failure affects the upstream's health.
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

    /// Returns the upstream's limit if it is lower than requested, because of the model's limit or because there is too
    /// little money.
    pub(super) fn lowered(&self, max_tokens: u64) -> Option<u64> {
        (max_tokens < self.forward.asked_tokens).then_some(max_tokens)
    }

    /// Makes a counter of what this upstream generates, at most `max_tokens` for each choice.
    pub(super) fn usage_counter(&self, max_tokens: u64, running: &Running) -> UsageCounter {
        let Forward { prompt_estimate, images, n, bounds, .. } = self.forward;
        let bounds = UsageBounds { prompt_estimate, images, max_tokens, choices: n, catalogue: bounds };
        UsageCounter::new(bounds, running.upstream().usage_scope(&self.forward))
    }

    /// Compares an answer's usage and finish reasons with what was assumed for this request, and logs mismatches. If
    /// another model answered, the bill is at least the cost that the vendor reports.
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
            tracing::warn!(generation = %self.id, ?reported, "the upstream reported a part that exceeds its total; the total is billed");
        }
        if let Some(reason) = unknown_finish {
            let reason = shown(reason, MAX_SHOWN_REASON);
            tracing::warn!(generation = %self.id, reason, "the upstream gave an unknown finish reason; the client gets \"stop\"");
        }
    }

    /// Logs and counts an answer by a model other than the requested model.
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
            tracing::warn!(
                generation = %self.id, asked, answered, cost_usd,
                "an upstream answered with a model other than the requested model; if the upstream reports a higher \
                 cost than the price, that cost is billed"
            );
        }
        if let Some(cost) = cost {
            hold.costs_at_least(cost);
        }
    }
}
