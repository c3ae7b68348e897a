//! Output limits that upstreams refuse, and the room that they report instead. All texts come from servers' sources or
//! answers.

use crate::error::UpstreamError;

/// Lower-case texts that report a model's highest output; `#` is the number.
const MOST_OUTPUT: [&str; 11] = [
    "supports at most # completion tokens",                      // OpenAI
    "less than or equal to `#`",                                 // Groq
    "less than or equal to #",                                   // NVIDIA
    "range of max_tokens is [1, #]",                             // DeepSeek
    "range of max_tokens should be [1, #]",                      // Alibaba
    "> #, which is the maximum allowed number of output tokens", // Anthropic, behind proxies
    "maximum output tokens (#)",                                 // Ollama's cloud
    "max_tokens cannot exceed #",                                // Z.ai
    "must be at most #",                                         // several
    "the maximum value is #",                                    // several
    "range of max_completion_tokens should be [1, #]",           // Alibaba
];
/// Texts that report the lowest refused number of output tokens.
const TOO_MUCH_OUTPUT: [&str; 2] = [
    "to # (exclusive)", // Gemini
    "range [1, #)",     // Gemini
];

/// Texts that report the window for prompt and output together.
const WINDOW: [&str; 8] = [
    "max_model_len=max_total_tokens=#",    // vLLM
    "max_model_len=#",                     // NVIDIA
    "maximum context length is #",         // OpenAI, vLLM, DeepSeek
    "maximum context length of #",         // SGLang
    "context window of #",                 // llama-cpp-python
    "model with # maximum context length", // Mistral
    "must be <= #",                        // Text Generation Inference
    "> #, decrease input length",          // Anthropic
];

/// Texts that report the prompt's tokens. vLLM's "at least # input tokens" is left out if output was requested, since
/// vLLM stops counting once the prompt no longer fits next to the output.
const PROMPT: [&str; 9] = [
    "(# in the messages",                     // OpenAI, older vLLM
    "messages resulted in # tokens",          // OpenAI
    "request has # input tokens",             // vLLM
    "prompt contains # input tokens",         // vLLM
    "at least # input tokens, which exceeds", // vLLM, for a prompt that alone is too long
    ": # tokens from the input messages",     // SGLang
    "prompt contains # tokens",               // Mistral
    "given: # `inputs` tokens",               // Text Generation Inference
    "exceed context limit: # +",              // Anthropic
];

/// Names of the limit, in errors that are about nothing else.
const LIMIT_NAMES: [&str; 6] = [
    "max_tokens",
    "max_output_tokens",
    "maxoutputtokens",
    "max_completion_tokens",
    "max_new_tokens",
    "output tokens",
];

/// An output limit that an upstream refused, alone or together with the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedLimit {
    /// Highest output limit for any request.
    most: Option<u64>,
    /// Window for prompt and output together.
    window: Option<u64>,
    prompt: Option<u64>,
}

impl RefusedLimit {
    /// Returns the highest output limit for any request, if the upstream reports it.
    pub const fn most(self) -> Option<u64> {
        self.most
    }

    /// Returns the output tokens that fit; `None` if the upstream does not say.
    pub fn room(self) -> Option<u64> {
        let beside = self.prompt.and_then(|prompt| self.room_beside(prompt));
        self.most.into_iter().chain(beside).min()
    }

    /// Returns the output tokens that fit with a prompt of this size; `None` if the upstream does not report its
    /// window.
    pub fn room_beside(self, prompt: u64) -> Option<u64> {
        // SGLang requires one spare token.
        Some(self.window?.saturating_sub(prompt).saturating_sub(1))
    }
}

impl UpstreamError {
    /// Returns the refused output limit, if this error is about one.
    pub fn refused_limit(&self, status: u16) -> Option<RefusedLimit> {
        let text = self.message.to_lowercase();
        let names_limit = LIMIT_NAMES.iter().any(|name| text.contains(name));
        let read = |templates: &[&str]| templates.iter().find_map(|template| number(&text, template));
        let below = || read(&TOO_MUCH_OUTPUT).map(|number| number.saturating_sub(1));
        let most = read(&MOST_OUTPUT).or_else(below).filter(|_| names_limit);
        let refused = RefusedLimit { most, window: read(&WINDOW), prompt: read(&PROMPT) };
        let is_told = most.is_some() || (names_limit && refused.window.is_some()) || self.says_too_long();
        (is_told && matches!(status, 400 | 413 | 422 | 500..)).then_some(refused)
    }
}

/// Reads the number in place of `#`, if a text matches this form.
fn number(text: &str, template: &str) -> Option<u64> {
    let (before, after) = template.split_once('#')?;
    text.match_indices(before).find_map(|(at, _)| {
        let rest = &text[at + before.len()..];
        let is_digit = |at: usize| rest.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        // Some servers write "128,000" with a comma.
        let is_comma = |at: usize| rest.as_bytes().get(at) == Some(&b',') && is_digit(at + 1);
        let end = (0..rest.len()).find(|at| !is_digit(*at) && !is_comma(*at)).unwrap_or(rest.len());
        let (number, rest) = rest.split_at(end);
        rest.starts_with(after).then(|| number.replace(',', "").parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(message: &str) -> Option<RefusedLimit> {
        let error = UpstreamError { message: message.into(), ..UpstreamError::default() };
        error.refused_limit(400)
    }

    #[test]
    fn the_room_is_read_in_every_servers_words() {
        for (message, room) in [
            // Gemini
            (
                "Unable to submit request because it has a maxOutputTokens value of 131072 but the supported range is from 1 (inclusive) to 65537 (exclusive). Update the value and try again.",
                65536,
            ),
            // OpenAI
            (
                "max_tokens is too large: 131072. This model supports at most 16384 completion tokens, whereas you provided 131072.",
                16384,
            ),
            (
                "This model's maximum context length is 16385 tokens. However, you requested 132072 tokens (1000 in the messages, 131072 in the completion). Please reduce the length of the messages or completion.",
                15384,
            ),
            // vLLM
            (
                "'max_tokens' or 'max_completion_tokens' is too large: 8000. This model's maximum context length is 32768 tokens and your request has 25201 input tokens (8000 > 32768 - 25201).",
                7566,
            ),
            (
                "This model's maximum context length is 8192 tokens. However, you requested 9000 output tokens and your prompt contains 1000 input tokens, for a total of 10000 tokens.",
                7191,
            ),
            // SGLang
            (
                "Requested token count exceeds the model's maximum context length of 64000 tokens. You requested a total of 71897 tokens: 7897 tokens from the input messages and 64000 tokens for the completion.",
                56102,
            ),
            // Text Generation Inference
            (
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 96 `inputs` tokens and 5000 `max_new_tokens`",
                3999,
            ),
            // Mistral
            (
                "Prompt contains 67 tokens and 0 draft tokens, too large for model with 32,768 maximum context length",
                32700,
            ),
            // Groq
            (
                "`max_tokens` must be less than or equal to `32768`, the maximum value for `max_tokens` is less than the `context_window` for this model",
                32768,
            ),
            // NVIDIA
            (
                "body -> max_tokens\n  Input should be less than or equal to 4096 (type=less_than_equal; le=4096)",
                4096,
            ),
            // DeepSeek
            ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
            // Anthropic, behind LiteLLM
            (
                "litellm.BadRequestError: max_tokens: 128000 > 64000, which is the maximum allowed number of output tokens for x",
                64000,
            ),
            (
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again",
                9999,
            ),
            // Ollama's cloud
            ("max_tokens (128000) exceeds model's maximum output tokens (65536) for model x", 65536),
            // vLLM, for a prompt that alone is too long
            (
                "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens, which exceeds this limit even without any output tokens.",
                0,
            ),
        ] {
            assert_eq!(refused(message).and_then(RefusedLimit::room), Some(room), "{message}");
        }
    }

    #[test]
    fn where_the_prompt_is_not_told_the_room_follows_from_a_count() {
        for message in [
            "max_tokens=38000 cannot be greater than max_model_len=max_total_tokens=32768. Please request fewer output tokens. (parameter=max_tokens, value=38000)",
            "max_completion_tokens=38000cannot be greater than max_model_len=max_total_tokens=32768. Please request fewer output tokens.",
            "This model's maximum context length is 32768 tokens. However, you requested 32000 output tokens and your prompt contains at least 769 input tokens, for a total of at least 32769 tokens. (parameter=input_tokens, value=769)",
            "This model's maximum context length is 32768 tokens. However, you requested 64 output tokens and your prompt contains 1000000 characters (more than 81280 characters, which is the upper bound for 8128 input tokens).",
        ] {
            let limit = refused(message).unwrap_or_else(|| panic!("{message}"));
            assert_eq!((limit.room(), limit.room_beside(2767)), (None, Some(30000)), "{message}");
            assert_eq!(limit.room_beside(40000), Some(0));
        }
    }

    #[test]
    fn other_errors_refuse_no_limit() {
        for message in [
            "",
            "Invalid 'temperature': must be less than or equal to 2",
            "top_logprobs must be less than or equal to 20",
            "max_tokens is not supported; use max_completion_tokens",
            "The model is overloaded.",
        ] {
            assert_eq!(refused(message), None, "{message}");
        }
        let told = UpstreamError { message: "max_model_len=5 max_tokens".into(), ..UpstreamError::default() };
        for status in [401, 403, 404, 429] {
            assert_eq!(told.refused_limit(status), None, "{status}");
        }
        assert!(told.refused_limit(500).is_some());
    }

    proptest! {
        #[test]
        fn whatever_comes_is_survived(text in ".{0,40}", number in any::<u128>()) {
            for around in [format!("max_tokens max_model_len={number}{text}"), format!("{text}must be <= {number},{text}max_tokens")] {
                let _ = refused(&around).map(|limit| (limit.room(), limit.room_beside(u64::MAX)));
            }
        }
    }
}
