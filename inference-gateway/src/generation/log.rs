//! The record of a generation for metrics and log: one line each, without a word of prompt or answer.

use std::time::Duration;

use shared::{
    ids::{GenerationId, KeyId, RequestId},
    money::NanoUsd,
    process::http::ClientRequestId,
    rpc::Charge,
    tokens::Usage,
};
use tokio::time::Instant;

use super::Job;

/// The facts of one generation.
pub(super) struct GenerationLog {
    began: Instant,
    request: RequestId,
    client_request: Option<ClientRequestId>,
    session: Option<ClientRequestId>,
    pub(super) generation: GenerationId,
    stream: bool,
    pub(super) key: Option<KeyId>,
    pub(super) usage: Usage,
    pub(super) charge: Option<Charge>,
    first_token: Option<Duration>,
    /// [`OK`](crate::model_metrics::OK), or the way in which it ended else.
    pub(super) outcome: &'static str,
}

impl GenerationLog {
    /// A generation that begins now.
    pub(super) fn begin(job: &Job) -> Self {
        Self {
            began: Instant::now(),
            request: job.request,
            client_request: job.client_request.clone(),
            session: job.session.clone(),
            generation: job.id,
            stream: job.forward.stream,
            key: None,
            usage: Usage::default(),
            charge: None,
            first_token: None,
            outcome: "",
        }
    }

    /// Notes the time of the first token.
    pub(super) fn first_token(&mut self) {
        self.first_token.get_or_insert_with(|| self.began.elapsed());
    }

    /// Writes the log line and counts the metrics.
    pub(super) fn write(&self, job: &Job) {
        let took = self.began.elapsed();
        if let Some(metrics) = job.models.metrics.model(&job.model) {
            metrics.record(self.outcome, took, self.first_token, self.usage);
        }
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let shortfall = self.charge.map(|charge| charge.shortfall).filter(|s| *s > NanoUsd::ZERO);
        tracing::info!(
            request = %self.request,
            client_request = self.client_request.as_ref().map(ClientRequestId::as_str),
            session = self.session.as_ref().map(ClientRequestId::as_str),
            generation = %self.generation,
            key = self.key.map(tracing::field::display),
            model = job.model,
            stream = self.stream,
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
