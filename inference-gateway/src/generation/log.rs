//! The record of a generation for metrics and log: one line each, without a word of prompt or answer.

use std::time::Duration;

use shared::{
    ids::{GenerationId, KeyId, RequestId},
    money::NanoUsd,
    rpc::Charge,
    tokens::Usage,
};
use tokio::time::Instant;

use super::Job;

/// The facts of one generation.
pub(super) struct GenerationLog {
    began: Instant,
    request: RequestId,
    generation: GenerationId,
    stream: bool,
    pub(super) key: Option<KeyId>,
    pub(super) usage: Usage,
    pub(super) charge: Option<Charge>,
    first_token: Option<Duration>,
    /// `ok`, or the way in which it ended else.
    pub(super) outcome: &'static str,
}

impl GenerationLog {
    /// A generation that begins now.
    pub(super) fn begin(job: &Job) -> Self {
        Self {
            began: Instant::now(),
            request: job.request,
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
        self.first_token.get_or_insert(self.began.elapsed());
    }

    /// Writes the log line and counts the metrics, named as the GenAI semantic conventions name them.
    pub(super) fn write(&self, model: &str) {
        let took = self.began.elapsed();
        self.count(model, took);
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let shortfall = self.charge.map(|charge| charge.shortfall).filter(|s| *s > NanoUsd::ZERO);
        tracing::info!(
            request = %self.request,
            generation = %self.generation,
            key = self.key.map(tracing::field::display),
            model,
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

    fn count(&self, model: &str, took: Duration) {
        let label = || model.to_owned();
        metrics::histogram!("gen_ai_server_request_duration", "model" => label(), "outcome" => self.outcome)
            .record(took);
        if let Some(first) = self.first_token {
            metrics::histogram!("gen_ai_server_time_to_first_token", "model" => label()).record(first);
            let rest = u32::try_from(self.usage.completion.saturating_sub(1)).unwrap_or(u32::MAX);
            if let Some(each) = took.saturating_sub(first).checked_div(rest) {
                metrics::histogram!("gen_ai_server_time_per_output_token", "model" => label()).record(each);
            }
        }
        let Usage { prompt, cached, completion } = self.usage;
        for (kind, tokens) in [("input", prompt), ("cached_input", cached), ("output", completion)] {
            if tokens > 0 {
                let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
                metrics::histogram!("gen_ai_client_token_usage", "model" => label(), "type" => kind)
                    .record(tokens);
            }
        }
    }
}
