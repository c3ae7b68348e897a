//! A small generation through the API that a server speaks, and the exact cost of the usage it reports.

use answer::Reported;
use key_service_domain::pricing;
use metering::{UsageBounds, UsageCounter, UsageScope};
use serde_json::{Value, json};
use shared::{money::NanoUsd, tokens::Usage};
use shared_catalog::{Model, Upstream, UpstreamApi};

/// Output tokens to request: the minimum that OpenAI's API accepts.
const MAX_OUTPUT_TOKENS: u64 = 16;
const QUESTION: &str = "Say yes.";

pub(super) struct Generation {
    /// Path below the base address.
    pub(super) path: &'static str,
    pub(super) body: Value,
}

impl Generation {
    pub(super) fn of(upstream: &Upstream) -> Self {
        let model = &upstream.model;
        let messages = json!([{"role": "user", "content": QUESTION}]);
        match upstream.api_for(UpstreamApi::Chat) {
            UpstreamApi::Chat => Self {
                path: "/chat/completions",
                body: json!({
                    "model": model,
                    "messages": messages,
                    upstream.limit_param.as_str(): MAX_OUTPUT_TOKENS,
                }),
            },
            UpstreamApi::Responses => Self {
                path: "/responses",
                body: json!({
                    "model": model,
                    "input": QUESTION,
                    "max_output_tokens": MAX_OUTPUT_TOKENS,
                    "store": false,
                }),
            },
            UpstreamApi::Messages => Self {
                path: "/messages",
                body: json!({"model": model, "max_tokens": MAX_OUTPUT_TOKENS, "messages": messages}),
            },
        }
    }
}

/// Reads the usage from an answer, and prices it as a gateway would bill it. `None` if the answer reports no usage.
pub(super) fn bill(model: &Model, answer: &[u8]) -> Option<(Usage, NanoUsd)> {
    let bounds = UsageBounds {
        prompt_estimate: 0,
        images: 0,
        max_tokens: MAX_OUTPUT_TOKENS,
        choices: 1,
        catalogue: Usage::of(model.context_window, 0, model.max_output_tokens),
    };
    let counter = UsageCounter::new(bounds, UsageScope::Answer);
    let counter = counter.with_end_of_answer(u64::try_from(answer.len()).ok()?, Reported::find_last(answer));
    if counter.is_estimate() {
        return None;
    }
    let usage = counter.usage();
    Some((usage, pricing::cost(&model.price, usage)))
}

#[cfg(test)]
mod tests {
    use shared_catalog::Catalog;

    use super::*;

    fn model(upstream: &str) -> Model {
        let text = format!(
            "[service]\nname = \"f\"\nprovider = \"f\"\ndocs = \"f\"\n[[model]]\nid = \"m\"\nowned_by = \"o\"\ncontext_window = 9000\n\
             max_output_tokens = 900\n[model.price]\ninput = \"3\"\ncached_input = \"0.3\"\noutput = \"15\"\ncache_write = \"3.75\"\n\
             [[model.upstream]]\nmodel = \"x\"\nurl = \"http://a/v1\"\n{upstream}\n"
        );
        Catalog::parse(&text, "m").unwrap().models.remove(0)
    }

    #[test]
    fn a_server_is_asked_by_its_own_api_for_no_more_than_sixteen_tokens() {
        let asked = |upstream: &str| {
            let Generation { path, body } = Generation::of(&model(upstream).upstreams[0]);
            (path, body)
        };
        let (path, body) = asked("kind = \"openai\"\nlimit_param = \"max_completion_tokens\"");
        assert_eq!(
            (path, &body["max_completion_tokens"], &body["model"]),
            ("/chat/completions", &json!(16), &json!("x"))
        );
        assert!(body.get("max_tokens").is_none());
        let (path, body) = asked("kind = \"openai\"\nspeaks = [\"responses\"]");
        assert_eq!(
            (path, &body["max_output_tokens"], &body["store"]),
            ("/responses", &json!(16), &json!(false))
        );
        let (path, body) = asked("kind = \"anthropic\"");
        assert_eq!((path, &body["max_tokens"]), ("/messages", &json!(16)));
        assert_eq!(asked("kind = \"vllm\"\nspeaks = [\"chat\", \"responses\"]").0, "/chat/completions");
    }

    #[test]
    fn the_cost_is_that_of_the_reported_usage_to_the_nano_dollar() {
        let model = model("kind = \"openai\"");
        let nanos = |answer: &str| bill(&model, answer.as_bytes()).map(|(_, cost)| cost.nanos());
        // (13 × 3 + 5 × 15) millionths of a dollar.
        let chat = r#"{"choices":[{"message":{"content":"Yes."}}],"usage":{"prompt_tokens":13,"completion_tokens":5,"total_tokens":18}}"#;
        assert_eq!(nanos(chat), Some(114_000));
        let responses = r#"{"status":"incomplete","output":[],"usage":{"input_tokens":13,"input_tokens_details":{"cached_tokens":3},
            "output_tokens":16,"output_tokens_details":{"reasoning_tokens":16},"total_tokens":29}}"#;
        assert_eq!(nanos(responses), Some(10 * 3_000 + 3 * 300 + 16 * 15_000));
        // Anthropic's `input_tokens` exclude what a cache reads and writes.
        let messages = r#"{"type":"message","content":[],"usage":{"input_tokens":10,"cache_creation_input_tokens":2,
            "cache_read_input_tokens":1,"output_tokens":4}}"#;
        assert_eq!(nanos(messages), Some(10 * 3_000 + 2 * 3_750 + 300 + 4 * 15_000));
        for silent in [r#"{"choices":[]}"#, r#"{"usage":{"prompt_tokens":13}}"#, "<html>", ""] {
            assert_eq!(nanos(silent), None, "{silent}");
        }
    }
}
