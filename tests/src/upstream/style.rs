//! Ways in which model servers differ. `tests/README.md` names the source of each.

use serde::{Deserialize, Serialize};

/// The ways in which an imitated server differs from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "servers have these habits independently of each other")]
pub struct Style {
    /// Leaves usage out of ordinary chunks even if `continuous_usage_stats` asks for it.
    pub usage_at_end_only: bool,
    /// In an ordinary chunk, reports only the tokens of the choice to which the chunk belongs, as vLLM, SGLang and
    /// llama.cpp's server do.
    pub usage_by_choice: bool,
    /// Sends the usage of each choice in a chunk of its own after the finish chunk. In a whole answer, reports only the
    /// usage of the first choice. llama.cpp's server does both.
    pub usage_apart: bool,
    /// Sends timings in every chunk if the request asks for them, and usage only in the last chunk, as llama.cpp's
    /// server does.
    pub timings: bool,
    /// Refuses two things with a 500, as llama.cpp's server does: a system message that is not the first message, and a
    /// tool call in the history whose arguments are not JSON.
    pub strict_template: bool,
    /// Repeats the id and the name of a call in every piece of the call, as llama-cpp-python does.
    pub repeats_calls: bool,
    /// Format of the ids of tool calls.
    pub call_ids: CallIds,
    /// Repeats the role in every chunk, as Ollama does.
    pub role_everywhere: bool,
    /// Never sends the role.
    pub no_role: bool,
    /// Name of the member that contains reasoning.
    pub reasoning: ReasoningField,
    /// Sends the last token in the finish chunk, as vLLM does.
    pub text_on_finish: bool,
    /// Does not count reasoning in `completion_tokens`, so that `total_tokens` exceeds the sum of prompt and
    /// completion, as at xAI.
    pub reasoning_beside: bool,
    /// Where usage reports contain the number of reasoning tokens.
    pub reasoning_told: ReasoningTold,
    /// Generates a single choice, whatever `n` says, as Ollama does.
    pub one_choice: bool,
    /// Leaves `prompt_tokens_details` out.
    pub no_cached_tokens: bool,
    /// Leaves `prompt_tokens_details` out of ordinary chunks, as vLLM and SGLang do.
    pub cached_tokens_at_end: bool,
    /// Sends all finish chunks after the last token of the longest choice. They contain no usage. SGLang does the same.
    pub finishes_at_end: bool,
    /// Sends a comment before every token.
    pub comments: bool,
    /// Puts line breaks between the members of log probabilities.
    pub lines: bool,
    /// Ends its lines with a carriage return before the line feed.
    pub crlf: bool,
}

impl Style {
    /// Returns the style of a hosted vendor with the OpenAI API.
    pub fn openai() -> Self {
        Self { usage_at_end_only: true, ..Self::default() }
    }

    /// Returns the style of vLLM with `--enable-prompt-tokens-details`.
    pub fn vllm() -> Self {
        Self {
            usage_by_choice: true,
            cached_tokens_at_end: true,
            text_on_finish: true,
            reasoning: ReasoningField::Reasoning,
            ..Self::default()
        }
    }

    /// Returns the style of SGLang with `--enable-cache-report`.
    pub fn sglang() -> Self {
        Self {
            usage_by_choice: true,
            cached_tokens_at_end: true,
            finishes_at_end: true,
            reasoning_told: ReasoningTold::AtTop,
            ..Self::default()
        }
    }

    /// Returns the style of llama.cpp's server.
    pub fn llama_cpp() -> Self {
        Self {
            timings: true,
            usage_by_choice: true,
            usage_apart: true,
            strict_template: true,
            ..Self::default()
        }
    }

    pub fn ollama() -> Self {
        Self {
            usage_at_end_only: true,
            role_everywhere: true,
            reasoning: ReasoningField::Reasoning,
            no_cached_tokens: true,
            one_choice: true,
            ..Self::default()
        }
    }

    /// Returns the style of an upstream of this kind. `kind` is its name in the catalogue.
    pub fn of(kind: &str) -> Self {
        match kind {
            "openai" => Self::openai(),
            "vllm" => Self::vllm(),
            "sglang" => Self::sglang(),
            "llama_cpp" => Self::llama_cpp(),
            "ollama" => Self::ollama(),
            _ => panic!("no style of {kind}"),
        }
    }
}

/// Where `usage` contains the number of reasoning tokens. It is the same for reports about one choice and about all
/// choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningTold {
    #[default]
    Nowhere,
    /// In `completion_tokens_details`.
    InDetails,
    /// Next to `completion_tokens`, as SGLang does.
    AtTop,
}

/// The ids that a server gives to tool calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallIds {
    /// Each call has an id of its own.
    #[default]
    Given,
    /// `null`.
    Null,
    /// No member `id`.
    Missing,
    /// The id is an empty string, as at Gemini.
    Empty,
}

impl CallIds {
    /// Returns the member `id` of a call, and the comma after it.
    pub(super) fn member(self, call: u64) -> String {
        match self {
            Self::Given => format!(r#""id":"call_{call}","#),
            Self::Null => r#""id":null,"#.into(),
            Self::Missing => String::new(),
            Self::Empty => r#""id":"","#.into(),
        }
    }
}

/// The names that the member with the reasoning may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningField {
    /// The name that SGLang and llama.cpp's server use.
    #[default]
    ReasoningContent,
    /// The name that vLLM and Ollama use.
    Reasoning,
}

impl ReasoningField {
    /// Returns the name of the member.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReasoningContent => "reasoning_content",
            Self::Reasoning => "reasoning",
        }
    }
}
