//! Reasons why a choice ended, in the API's words.

use shared::generation::FinishReason;

/// An upstream's finish reason, as far as it is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishWord {
    /// A word that some server uses for this reason.
    Known(FinishReason),
    /// A word that no known server uses. The answer is complete and billed, and clients read `stop`.
    Unknown,
    /// A word for a failure. An answer that was cut short must not pass for a finished one.
    Failure,
}

impl FinishWord {
    /// Finish reasons of servers, which are matched in any case.
    const WORDS: [(&str, Self); 20] = [
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
        ("abort", Self::Failure),
        ("error", Self::Failure),
    ];

    pub(crate) fn read(upstream: &str) -> Self {
        let known = Self::WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(upstream));
        known.map_or(Self::Unknown, |(_, meaning)| *meaning)
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
