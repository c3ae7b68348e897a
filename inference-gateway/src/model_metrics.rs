//! Metrics of generations, named by the GenAI semantic conventions.

use std::time::Duration;

use foldhash::HashMap;
use metrics::{Histogram, histogram};
use shared::tokens::Usage;

/// The outcome of a generation that nothing disturbed.
pub(crate) const OK: &str = "ok";

/// The metrics of each model, looked up once: a lookup by name and labels costs more than the measurement.
pub(crate) struct Metrics(HashMap<String, ModelMetrics>);

/// The metrics of a model.
pub(crate) struct ModelMetrics {
    model: String,
    ok: Histogram,
    first_token: Histogram,
    each_token: Histogram,
    input: Histogram,
    cached_input: Histogram,
    output: Histogram,
}

impl Metrics {
    /// The metrics of these models.
    pub(crate) fn of(models: Vec<String>) -> Self {
        Self(models.into_iter().map(|model| (model.clone(), ModelMetrics::of(model))).collect())
    }

    /// The metrics of a model of the catalogue.
    pub(crate) fn model(&self, model: &str) -> Option<&ModelMetrics> {
        self.0.get(model)
    }
}

impl ModelMetrics {
    fn of(model: String) -> Self {
        let of = |name: &'static str| histogram!(name, "model" => model.clone());
        let tokens = |kind: &'static str| histogram!("gen_ai_client_token_usage", "model" => model.clone(), "type" => kind);
        Self {
            ok: duration(&model, OK),
            first_token: of("gen_ai_server_time_to_first_token"),
            each_token: of("gen_ai_server_time_per_output_token"),
            input: tokens("input"),
            cached_input: tokens("cached_input"),
            output: tokens("output"),
            model,
        }
    }

    /// Counts a generation that has ended.
    pub(crate) fn record(
        &self,
        outcome: &'static str,
        took: Duration,
        first_token: Option<Duration>,
        usage: Usage,
    ) {
        match outcome {
            OK => self.ok.record(took),
            other => duration(&self.model, other).record(took),
        }
        if let Some(first) = first_token {
            self.first_token.record(first);
            let rest = u32::try_from(usage.completion.saturating_sub(1)).unwrap_or(u32::MAX);
            if let Some(each) = took.saturating_sub(first).checked_div(rest) {
                self.each_token.record(each);
            }
        }
        let Usage { prompt, cached, completion, .. } = usage;
        for (histogram, tokens) in
            [(&self.input, prompt), (&self.cached_input, cached), (&self.output, completion)]
        {
            if tokens > 0 {
                histogram.record(u32::try_from(tokens).unwrap_or(u32::MAX));
            }
        }
    }
}

fn duration(model: &str, outcome: &'static str) -> Histogram {
    histogram!("gen_ai_server_request_duration", "model" => model.to_owned(), "outcome" => outcome)
}
