//! Metrics of generations: durations and sizes under our own names, and tokens under the names of the GenAI semantic
//! conventions.

use std::time::Duration;

use foldhash::HashMap;
use metrics::{Counter, Histogram, counter, histogram};
use request::Forward;
use shared::tokens::{TOKEN_KINDS, Usage};
use shared_catalog::{Catalog, UpstreamKind};

/// Outcome of an undisturbed generation.
pub const OK: &str = "ok";

/// Counters of tokens, in the order of [`Usage::by_kind`].
const USAGE: [&str; TOKEN_KINDS] = [
    "gen_ai_client_inference_usage_input_tokens_total",
    "gen_ai_client_inference_usage_output_tokens_total",
    "gen_ai_client_inference_usage_cache_read_input_tokens_total",
    "gen_ai_client_inference_usage_cache_write_input_tokens_total",
    "gen_ai_client_inference_usage_reasoning_output_tokens_total",
];

/// Metrics of each model, looked up once, since a lookup by name and labels costs more than a measurement.
pub(crate) struct Metrics(HashMap<String, ModelMetrics>);

pub struct ModelMetrics {
    model: String,
    ok: Histogram,
    first_token: Histogram,
    each_token: Histogram,
    input: Histogram,
    cached_input: Histogram,
    output: Histogram,
    used: Vec<(Operation, UpstreamKind, TokenCounters)>,
}

/// Operation of the GenAI semantic conventions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Chat,
    Embeddings,
}

/// Counters of the tokens that one kind of upstream has used in an operation, in the order of [`Usage::by_kind`].
struct TokenCounters([Counter; TOKEN_KINDS]);

impl Operation {
    pub fn of(forward: &Forward) -> Self {
        if forward.reply.is_of_chat() { Self::Chat } else { Self::Embeddings }
    }

    /// Returns the value of `gen_ai.operation.name`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Embeddings => "embeddings",
        }
    }
}

impl TokenCounters {
    fn of(model: &str, operation: Operation, kind: UpstreamKind) -> Self {
        let of = |name: &'static str| {
            counter!(name, "gen_ai_operation_name" => operation.name(), "gen_ai_provider_name" => kind.provider(),
                "gen_ai_request_model" => model.to_owned())
        };
        Self(USAGE.map(of))
    }

    fn count(&self, usage: Usage) {
        for (counter, tokens) in self.0.iter().zip(usage.by_kind()) {
            if tokens > 0 {
                counter.increment(tokens);
            }
        }
    }
}

impl Metrics {
    /// Makes the metrics of the models in this catalogue.
    pub(crate) fn of(catalog: &Catalog) -> Self {
        Self(catalog.models.iter().map(|model| (model.id.clone(), ModelMetrics::of(model))).collect())
    }

    /// Returns the metrics of a model in the catalogue.
    pub(crate) fn model(&self, model: &str) -> Option<&ModelMetrics> {
        self.0.get(model)
    }
}

impl ModelMetrics {
    fn of(of: &shared_catalog::Model) -> Self {
        let model = of.id.clone();
        let used = used(of);
        let of = |name: &'static str| histogram!(name, "model" => model.clone());
        let tokens = |kind: &'static str| histogram!("gen_ai_client_token_usage", "model" => model.clone(), "type" => kind);
        Self {
            ok: duration(&model, OK),
            first_token: of("gen_ai_server_time_to_first_token"),
            each_token: of("gen_ai_server_time_per_output_token"),
            input: tokens("input"),
            cached_input: tokens("cached_input"),
            output: tokens("output"),
            used,
            model,
        }
    }

    /// Counts the tokens of an operation served by this kind of upstream.
    pub fn count(&self, operation: Operation, kind: UpstreamKind, usage: Usage) {
        let counters = self.used.iter().find(|(of, by, _)| (*of, *by) == (operation, kind));
        if let Some((_, _, counters)) = counters {
            counters.count(usage);
        }
    }

    /// Counts a generation that has ended.
    pub fn record(&self, outcome: &'static str, took: Duration, first_token: Option<Duration>, usage: Usage) {
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

/// Makes the token counters of a model, for each operation and each kind of its upstreams.
fn used(model: &shared_catalog::Model) -> Vec<(Operation, UpstreamKind, TokenCounters)> {
    let serves = model.serves;
    let operations = [(Operation::Chat, serves.chat), (Operation::Embeddings, serves.embeddings)];
    let mut used: Vec<(Operation, UpstreamKind, TokenCounters)> = Vec::new();
    for (operation, _) in operations.into_iter().filter(|(_, served)| *served) {
        for kind in model.upstreams.iter().map(|upstream| upstream.kind) {
            if !used.iter().any(|(of, by, _)| (*of, *by) == (operation, kind)) {
                used.push((operation, kind, TokenCounters::of(&model.id, operation, kind)));
            }
        }
    }
    used
}

fn duration(model: &str, outcome: &'static str) -> Histogram {
    histogram!("gen_ai_server_request_duration", "model" => model.to_owned(), "outcome" => outcome)
}
