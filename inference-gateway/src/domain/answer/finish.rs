//! Why a choice ended, in the API's words.

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishReason {
    /// The model was done, or met a stop sequence.
    Stop,
    /// The limit of its output was reached.
    Length,
    /// The model calls tools.
    ToolCalls,
    /// A filter withheld the rest.
    ContentFilter,
}

impl FinishReason {
    /// Every reason there is.
    pub(crate) const ALL: [Self; 4] = [Self::Stop, Self::Length, Self::ToolCalls, Self::ContentFilter];

    /// The reason as clients read it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::ContentFilter => "content_filter",
        }
    }

    /// The reason that an upstream means; `None` for a failure (`abort`, `error`) and for an unknown word, since an
    /// answer that was cut short must not pass for a finished one.
    pub(super) fn read(upstream: &str) -> Option<Self> {
        match upstream {
            "stop" | "eos" | "eos_token" | "stop_sequence" | "end_turn" => Some(Self::Stop),
            "length" | "max_tokens" | "model_length" => Some(Self::Length),
            "tool_calls" | "function_call" | "tool_use" => Some(Self::ToolCalls),
            "content_filter" => Some(Self::ContentFilter),
            _ => None,
        }
    }
}
