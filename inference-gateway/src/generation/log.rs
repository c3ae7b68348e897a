//! The record of a generation: one log line and metrics, without any text of prompt or answer.

use std::time::Duration;

use request::Sampling;
use shared::{
    error::ApiError,
    generation::FinishReason,
    ids::{GenerationId, KeyId},
    money::NanoUsd,
    time::millis,
    tokens::{TOKEN_KINDS, Usage},
};
use shared_catalog::UpstreamKind;
use shared_door::http::ClientRequestId;
use shared_observe::{
    standard_metrics::Inference,
    traces::{Array, KeyValue, Span, SpanKind, StringValue, Value},
};
use shared_rpc::Charge;
use tokio::time::Instant;
use upstreams::{Operation, Upstream};

use super::job::Job;

/// Attributes of the usage, in the order of [`Usage::by_kind`].
const USAGE: [&str; TOKEN_KINDS] = [
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.reasoning.output_tokens",
];

pub(super) struct GenerationLog {
    began: Instant,
    pub(super) generation: GenerationId,
    pub(super) key: Option<KeyId>,
    pub(super) usage: Usage,
    pub(super) charge: Option<Charge>,
    first_token: Option<Duration>,
    /// How the generation ended, such as [`OK`](upstreams::OK).
    pub(super) outcome: &'static str,
    /// Span of the inference: the time that the upstream takes, including retries.
    pub(super) inference: Span,
    /// When the inference began and, once it has ended, how long it took.
    inference_time: Option<(Instant, Option<Duration>)>,
    /// Class of the error that ended the inference.
    failed: Option<&'static str>,
    /// Software of the upstream that answered.
    answered_by: Option<UpstreamKind>,
    /// Software of the upstream that was asked last, even if it did not answer.
    pub(super) asked: Option<UpstreamKind>,
}

impl GenerationLog {
    pub(super) fn begin(job: &Job) -> Self {
        Self {
            began: job.accepted,
            generation: job.id,
            key: None,
            usage: Usage::default(),
            charge: None,
            first_token: None,
            outcome: "",
            inference: Span::default(),
            inference_time: None,
            failed: None,
            answered_by: None,
            asked: None,
        }
    }

    /// Begins the record of the inference.
    pub(super) fn begin_inference(&mut self, job: &Job) {
        self.inference_time = Some((Instant::now(), None));
        self.inference = job.span.child(SpanKind::Client, || {
            let count = |n| i64::try_from(n).unwrap_or(i64::MAX);
            let operation = Operation::of(&job.forward).name();
            let mut attributes = vec![
                KeyValue::new("gen_ai.operation.name", operation),
                KeyValue::new("gen_ai.request.model", job.model.clone()),
                KeyValue::new("gen_ai.request.stream", job.forward.stream),
            ];
            if job.forward.limited {
                attributes.push(KeyValue::new("gen_ai.request.max_tokens", count(job.forward.max_tokens)));
            }
            let Sampling { temperature, top_p, seed } = job.forward.sampling;
            attributes.extend(temperature.map(|value| KeyValue::new("gen_ai.request.temperature", value)));
            attributes.extend(top_p.map(|value| KeyValue::new("gen_ai.request.top_p", value)));
            attributes.extend(seed.map(|value| KeyValue::new("gen_ai.request.seed", value)));
            if job.forward.n > 1 {
                attributes.push(KeyValue::new("gen_ai.request.choice.count", count(job.forward.n)));
            }
            (format!("{operation} {}", job.model).into(), attributes)
        });
    }

    /// Records the upstream that answered 200.
    pub(super) fn reached(&mut self, upstream: &Upstream) {
        self.answered_by = Some(upstream.entry.kind);
        self.inference.set("gen_ai.response.model", upstream.entry.model.clone());
        // The client reads this id as the id of the answer.
        self.inference.set("gen_ai.response.id", self.generation.to_string());
    }

    /// Records why the choices of an answer ended.
    pub(super) fn finished(&self, reasons: &[FinishReason]) {
        if self.inference.is_sampled() && !reasons.is_empty() {
            let words = reasons.iter().map(|reason| StringValue::from(reason.as_str()));
            let words = Array::String(words.collect());
            self.inference.set("gen_ai.response.finish_reasons", Value::Array(words));
        }
    }

    /// Ends the inference, with the usage so far.
    pub(super) fn end_inference(&mut self, usage: Usage) {
        self.usage = usage;
        if let Some((began, took)) = &mut self.inference_time {
            *took = Some(began.elapsed());
        }
    }

    /// Records that the inference failed.
    pub(super) fn fail(&mut self, error: &ApiError) {
        let class = error.code.as_str();
        self.inference.fail(class);
        self.failed = Some(class);
    }

    /// Records that a stream failed after its answer had begun with 200.
    pub(super) fn cut(&mut self, job: &Job, error: &ApiError) {
        self.fail(error);
        if error.code.status().is_server_error() {
            job.span.fail(error.code.as_str());
        }
    }

    /// Writes the usage to the span of the inference.
    fn note_usage(&self, job: &Job) {
        if !self.inference.is_sampled() {
            return;
        }
        for (name, tokens) in USAGE.into_iter().zip(self.usage.by_kind()) {
            if tokens > 0 {
                self.inference.set(name, i64::try_from(tokens).unwrap_or(i64::MAX));
            }
        }
        if let Some(first) = self.first_token.filter(|_| job.forward.stream) {
            self.inference.set("gen_ai.response.time_to_first_chunk", first.as_secs_f64());
        }
        self.inference.set("faregate.generation.id", self.generation.to_string());
        self.inference.set("faregate.outcome", self.outcome);
    }

    /// Records the inference in the metrics with OpenTelemetry's names.
    fn record_inference(&self, job: &Job) {
        let Some((began, took)) = self.inference_time else { return };
        let waited = began.duration_since(self.began);
        Inference {
            operation: Operation::of(&job.forward).name(),
            provider: self.asked.map(UpstreamKind::provider),
            model: &job.model,
            error: self.failed,
            took: took.unwrap_or_else(|| began.elapsed()),
            first_chunk: self
                .first_token
                .filter(|_| job.forward.stream)
                .map(|first| first.saturating_sub(waited)),
            usage: self.usage,
        }
        .record();
    }

    /// Records the time of the first token.
    pub(super) fn first_token(&mut self) {
        self.first_token.get_or_insert_with(|| self.began.elapsed());
    }

    /// Writes the log line and updates the metrics.
    pub(super) fn write(&self, job: &Job) {
        let took = self.began.elapsed();
        if let Some(metrics) = job.models.metrics(&job.model) {
            metrics.record(self.outcome, took, self.first_token, self.usage);
            if let Some(kind) = self.answered_by {
                metrics.count(Operation::of(&job.forward), kind, self.usage);
            }
        }
        self.note_usage(job);
        self.record_inference(job);
        let shortfall = self.charge.map(|charge| charge.shortfall).filter(|s| *s > NanoUsd::ZERO);
        tracing::info!(
            request = %job.request,
            client_request = job.client_request.as_ref().map(ClientRequestId::as_str),
            session = job.session.as_ref().map(ClientRequestId::as_str),
            generation = %self.generation,
            key = self.key.map(tracing::field::display),
            model = job.model,
            stream = job.forward.stream,
            outcome = self.outcome,
            prompt_tokens = self.usage.prompt,
            cached_tokens = self.usage.cached,
            completion_tokens = self.usage.completion,
            cost_usd = self.charge.map(|charge| tracing::field::display(charge.charged)),
            shortfall_usd = shortfall.map(tracing::field::display),
            first_token_ms = self.first_token.map(millis),
            duration_ms = millis(took),
            "chat",
        );
    }
}
