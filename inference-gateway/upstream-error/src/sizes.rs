//! Sizes of a prompt that is too long, from the members or the text of an error.

use serde_json::Value;

/// Phrases for the limit of a context. The number of tokens comes after the phrase, or right before it.
const LIMITS: [&str; 14] = [
    "maximum context length",
    "context length",
    "context window",
    "context size",
    "context limit",
    "maximum model length",
    "maximum prompt length",
    "maximum number of tokens allow",
    "maximum allowed length",
    "must be <=",                 // Text Generation Inference
    "batch size",                 // llama.cpp, for embeddings
    "model token limit",          // Moonshot
    "exceeds the limit of",       // Copilot
    "input length should be [1,", // Alibaba
];

/// Sizes of a prompt that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextSizes {
    /// Tokens of the prompt; `None` if the upstream does not say, or if the prompt alone fits.
    pub prompt: Option<u64>,
    /// Maximum number of tokens that the upstream accepts.
    pub most: u64,
}

impl ContextSizes {
    fn new(prompt: u64, most: u64) -> Self {
        Self { prompt: Some(prompt).filter(|prompt| *prompt >= most), most }
    }

    /// Reads the sizes in the members of an error of llama.cpp's server.
    pub(super) fn of_members(error: &Value) -> Option<Self> {
        let (prompt, most) = (error["n_prompt_tokens"].as_u64()?, error["n_ctx"].as_u64()?);
        (most > 0).then(|| Self::new(prompt, most))
    }

    /// Reads the sizes in a text. If a text gives the total of prompt and output, both parts follow it.
    pub(super) fn in_text(text: &str) -> Option<Self> {
        let lower = text.to_lowercase();
        let numbers = numbers(&lower);
        let most = limit(&lower, &numbers)?;
        let others: Vec<u64> =
            numbers.iter().map(|number| number.value).filter(|value| *value != most).collect();
        let mut prompt = others.iter().copied().find(|value| *value > most);
        if let [total, first, second] = others[..]
            && first.checked_add(second) == Some(total)
        {
            prompt = Some(first);
        }
        Some(prompt.map_or(Self { prompt: None, most }, |prompt| Self::new(prompt, most)))
    }
}

struct Number {
    value: u64,
    start: usize,
}

/// Finds the numbers of a text that may count tokens, ignoring parts of words and numbers of characters.
fn numbers(text: &str) -> Vec<Number> {
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(start) = (at..bytes.len()).find(|at| bytes[*at].is_ascii_digit()) {
        let end = (start..bytes.len()).find(|at| !is_of_number(bytes, *at)).unwrap_or(bytes.len());
        at = end;
        let before = start.checked_sub(1).map_or(b' ', |at| bytes[at]);
        let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let after = bytes.get(end).copied().filter(|byte| *byte != b'.').unwrap_or(b' ');
        if is_of_word(before) || is_of_word(after) || text[end..].starts_with(" characters") {
            continue;
        }
        let digits: String = text[start..end].chars().filter(char::is_ascii_digit).collect();
        if let Ok(value) = digits.parse() {
            found.push(Number { value, start });
        }
    }
    found
}

/// Returns whether a byte continues a number: a digit, or a comma between digits.
fn is_of_number(bytes: &[u8], at: usize) -> bool {
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    is_digit(at) || (bytes[at] == b',' && is_digit(at + 1) && is_digit(at + 2) && is_digit(at + 3))
}

/// Returns how many bytes to skip if this phrase ends with the lower end of a range, which is not the limit.
fn skipped(text: &str, at: usize) -> usize {
    const RANGE: &str = "input length should be [1,";
    if text[at..].starts_with(RANGE) { RANGE.len() - 1 } else { 0 }
}

/// Finds the limit in a text: the first number after a phrase for it, or else the last number before the phrase.
fn limit(text: &str, numbers: &[Number]) -> Option<u64> {
    let named = LIMITS.iter().find_map(|phrase| text.find(phrase));
    // Anthropic: "exceed context limit: 190000 + 20000 > 200000".
    // MiniMax: "context window exceeds limit (2013)", where the number is the error's code.
    let is_of_error = |number: &&Number| text[..number.start].ends_with("exceeds limit (");
    let behind = |at: usize| {
        let at = text[at..]
            .starts_with("context limit:")
            .then(|| text[at..].find(" > "))
            .flatten()
            .map_or(at, |more| at + more);
        numbers.iter().filter(|number| !is_of_error(number)).find(|number| number.start > at)
    };
    let in_front = |at: usize| numbers.iter().rfind(|number| number.start < at);
    let limit = match named {
        Some(at) => behind(at + skipped(text, at)).or_else(|| in_front(at)),
        // Anthropic: "prompt is too long: 210000 tokens > 200000 maximum".
        None => text.rfind(" maximum").and_then(in_front),
    };
    limit.map(|number| number.value).filter(|value| *value > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(text: &str) -> Option<(Option<u64>, u64)> {
        ContextSizes::in_text(text).map(|ContextSizes { prompt, most }| (prompt, most))
    }

    #[test]
    fn the_sizes_are_read_in_every_servers_words() {
        for (text, expected) in [
            // vLLM
            (
                "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.",
                (Some(2049), 2048),
            ),
            (
                "This model's maximum context length is 2048 tokens. However, your prompt contains 100000 characters (more than 20480 characters, which is the upper bound for 2048 input tokens). Please reduce the length of the input prompt.",
                (None, 2048),
            ),
            (
                "The decoder prompt (length 10127) is longer than the maximum model length of 8192. Make sure that `max_model_len` is no smaller than the number of text tokens.",
                (Some(10127), 8192),
            ),
            ("Input length (9000) exceeds model's maximum context length (8192).", (Some(9000), 8192)),
            // OpenAI
            (
                "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4500 in the messages, 500 in the completion). Please reduce the length of the messages or completion.",
                (Some(4500), 4096),
            ),
            (
                "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (3000 in the messages, 2000 in the completion).",
                (None, 4096),
            ),
            (
                "This model's maximum context length is 128,000 tokens. However, your messages resulted in 140,123 tokens.",
                (Some(140_123), 128_000),
            ),
            // SGLang
            (
                "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
                (Some(61709), 40960),
            ),
            (
                "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9500 tokens: 8500 tokens from the input messages and 1000 tokens for the completion.",
                (Some(8500), 8192),
            ),
            // llama.cpp
            (
                "request (28680 tokens) exceeds the available context size (2048 tokens), try increasing it",
                (Some(28680), 2048),
            ),
            (
                "input (5000 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
                (Some(5000), 512),
            ),
            // llama-cpp-python
            ("Requested tokens (28680) exceed context window of 2048", (Some(28680), 2048)),
            // Gemini
            (
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                (Some(1_200_000), 1_048_576),
            ),
            ("Your request exceeded model token limit: 131072 (requested: 140000)", (Some(140_000), 131_072)),
            ("prompt token count of 140000 exceeds the limit of 128000", (Some(140_000), 128_000)),
            ("Range of input length should be [1, 129024]", (None, 129_024)),
            // Anthropic
            ("prompt is too long: 210000 tokens > 200000 maximum", (Some(210_000), 200_000)),
            (
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again",
                (None, 200_000),
            ),
            // Mistral
            (
                "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
                (Some(40000), 32768),
            ),
            // xAI
            (
                "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
                (Some(200_000), 131_072),
            ),
            // Text Generation Inference
            (
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 `max_new_tokens`",
                (Some(5000), 4096),
            ),
        ] {
            assert_eq!(sizes(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_text_without_a_limit_tells_no_sizes() {
        for text in [
            "",
            "the input length exceeds the context length",
            "gpt-4096 failed",
            "0 maximum",
            "invalid params, context window exceeds limit (2013)",
        ] {
            assert_eq!(sizes(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_survived(text in ".{0,80}", number in any::<u64>()) {
            let _ = sizes(&text);
            let _ = sizes(&format!("{text} context length {number}{text}{number}0 maximum"));
        }
    }
}
