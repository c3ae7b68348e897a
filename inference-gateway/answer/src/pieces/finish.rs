//! Reasons why a choice ended, in the API's words.

use shared::generation::FinishReason;

/// What an upstream's finish reason means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishWord {
    /// A word that some server uses for this reason.
    Known(FinishReason),
    /// A word that no known server uses. The answer is complete and billed, and clients read `stop`.
    Unknown,
    /// A word for a failure. An answer that was cut short must not look like a finished answer.
    Failure,
}

impl FinishWord {
    /// Finish reasons of servers, compared without regard to case.
    const WORDS: [(&str, Self); 42] = [
        ("stop", Self::Known(FinishReason::Stop)),
        ("length", Self::Known(FinishReason::Length)),
        ("tool_calls", Self::Known(FinishReason::ToolCalls)),
        ("content_filter", Self::Known(FinishReason::ContentFilter)),
        ("eos", Self::Known(FinishReason::Stop)),
        ("eos_token", Self::Known(FinishReason::Stop)),
        ("stop_sequence", Self::Known(FinishReason::Stop)),
        ("end_turn", Self::Known(FinishReason::Stop)),
        ("max_tokens", Self::Known(FinishReason::Length)),
        ("model_length", Self::Known(FinishReason::Length)),
        ("function_call", Self::Known(FinishReason::ToolCalls)),
        ("tool_use", Self::Known(FinishReason::ToolCalls)),
        // Reasons of Anthropic's Messages API.
        ("refusal", Self::Known(FinishReason::ContentFilter)),
        ("pause_turn", Self::Known(FinishReason::Stop)),
        ("compaction", Self::Known(FinishReason::Stop)),
        ("model_context_window_exceeded", Self::Known(FinishReason::Length)),
        // Reasons of OpenAI's Responses API.
        ("max_output_tokens", Self::Known(FinishReason::Length)),
        ("max_messages", Self::Known(FinishReason::Length)),
        ("incomplete", Self::Known(FinishReason::Length)),
        // Reasons of Cohere, of AI21 and of older servers.
        ("complete", Self::Known(FinishReason::Stop)),
        ("completed", Self::Known(FinishReason::Stop)),
        ("eos_token_id", Self::Known(FinishReason::Stop)),
        ("endoftext", Self::Known(FinishReason::Stop)),
        ("tool_call", Self::Known(FinishReason::ToolCalls)),
        // Reasons of Gemini's own API that its chat API passes through.
        ("safety", Self::Known(FinishReason::ContentFilter)),
        ("prohibited_content", Self::Known(FinishReason::ContentFilter)),
        ("blocklist", Self::Known(FinishReason::ContentFilter)),
        ("spii", Self::Known(FinishReason::ContentFilter)),
        ("recitation", Self::Known(FinishReason::ContentFilter)),
        ("image_safety", Self::Known(FinishReason::ContentFilter)),
        ("malformed_function_call", Self::Failure),
        ("unexpected_tool_call", Self::Failure),
        // Reasons of Z.ai, of Bedrock and of Azure.
        ("sensitive", Self::Known(FinishReason::ContentFilter)),
        ("content_filtered", Self::Known(FinishReason::ContentFilter)),
        ("guardrail_intervened", Self::Known(FinishReason::ContentFilter)),
        ("network_error", Self::Failure),
        // Reasons of DeepSeek, vLLM and SGLang.
        ("insufficient_system_resource", Self::Failure),
        ("repetition", Self::Known(FinishReason::Stop)),
        ("length_exceeded", Self::Known(FinishReason::Length)),
        ("abort", Self::Failure),
        ("aborted", Self::Failure),
        ("error", Self::Failure),
    ];

    pub(crate) fn read(upstream: &str) -> Self {
        // Some servers write the name of a variant, such as `FinishReason.SAFETY`.
        let last = upstream.rsplit(['.', ':']).next().unwrap_or(upstream).trim();
        let named = |told: &str| Self::WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(told));
        named(upstream).or_else(|| named(last)).map_or(Self::Unknown, |(_, meaning)| *meaning)
    }

    /// Returns the reason that clients read; `None` for a failure.
    pub(crate) fn reason(self) -> Option<FinishReason> {
        match self {
            Self::Known(reason) => Some(reason),
            Self::Unknown => Some(FinishReason::Stop),
            Self::Failure => None,
        }
    }
}
