//! What servers say about requests that exceed the context.

use serde::{Deserialize, Serialize};

/// How a server refuses a request that exceeds its context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TooLong {
    /// Like vLLM: it counts the tokens of a prompt only up to its window, and has a check of its own for a limit above
    /// the window.
    #[default]
    Vllm,
    /// Like SGLang: it states all numbers.
    Sglang,
    /// Like a server that states no numbers.
    Mute,
}

impl TooLong {
    /// Returns the message for a prompt and a limit with these numbers of tokens.
    pub(crate) fn words(self, context: u64, prompt: u64, most: u64) -> String {
        match self {
            Self::Vllm if most > context => format!(
                "max_tokens={most} cannot be greater than max_model_len=max_total_tokens={context}. Please request fewer output tokens. (parameter=max_tokens, value={most})"
            ),
            Self::Vllm => {
                let (counted, total) = (context + 1 - most, context + 1);
                format!(
                    "This model's maximum context length is {context} tokens. However, you requested {most} output tokens and your prompt contains at least {counted} input tokens, for a total of at least {total} tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value={counted})"
                )
            }
            Self::Sglang if prompt >= context => {
                format!(
                    "The input ({prompt} tokens) is longer than the model's context length ({context} tokens)."
                )
            }
            Self::Sglang => format!(
                "Requested token count exceeds the model's maximum context length of {context} tokens. You requested a total of {} tokens: {prompt} tokens from the input messages and {most} tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.",
                prompt + most
            ),
            Self::Mute => "the request exceeds the context length".into(),
        }
    }
}
