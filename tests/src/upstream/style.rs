//! Ways in which model servers differ. `tests/README.md` names the source of each.

use serde::{Deserialize, Serialize};

/// Ways in which model servers differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "servers have these habits independently of each other")]
pub struct Style {
    /// Leaves usage out of ordinary chunks even when asked for `continuous_usage_stats`.
    pub usage_at_end_only: bool,
    /// Counts only its own choice's tokens in an ordinary chunk, as vLLM, SGLang and llama.cpp's server do.
    pub usage_by_choice: bool,
    /// Sends each choice's usage in a separate chunk after its finish chunk, and in a whole answer reports only the
    /// first choice's usage, as llama.cpp's server does.
    pub usage_apart: bool,
    /// Sends timings in every chunk on request, and usage only in the last one, as llama.cpp's server does.
    pub timings: bool,
    /// Refuses two things with a 500, as llama.cpp's server does: a system message that is not the first message, and a
    /// tool call in the history whose arguments are not JSON.
    pub strict_template: bool,
    /// Repeats a call's id and name with every piece, as llama-cpp-python does.
    pub repeats_calls: bool,
    /// Format of the tool calls' ids.
    pub call_ids: CallIds,
    /// Repeats the role in every chunk, as Ollama does.
    pub role_everywhere: bool,
    /// Never sends the role.
    pub no_role: bool,
    /// Name of the member for reasoning.
    pub reasoning: ReasoningField,
    /// Sends the last token in the finish chunk, as vLLM does.
    pub text_on_finish: bool,
    /// Reports reasoning in addition to `completion_tokens`, so that `total_tokens` exceeds the sum of the other two,
    /// as xAI does.
    pub reasoning_beside: bool,
    /// Where reports contain the reasoning tokens.
    pub reasoning_told: ReasoningTold,
    /// Generates one choice regardless of `n`, as Ollama does.
    pub one_choice: bool,
    /// Leaves `prompt_tokens_details` out.
    pub no_cached_tokens: bool,
    /// Leaves `prompt_tokens_details` out of ordinary chunks, as vLLM and SGLang do.
    pub cached_tokens_at_end: bool,
    /// Sends all finish chunks after the last token of the longest choice, and without usage, as SGLang does.
    pub finishes_at_end: bool,
    /// Sends a comment before every token.
    pub comments: bool,
    /// Puts line breaks between the members of log probabilities.
    pub lines: bool,
    /// Ends its lines with a carriage return before the line feed.
    pub crlf: bool,
}

impl Style {
    /// Returns the style of a hosted provider of the OpenAI API.
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

    /// Returns the style of a kind of upstream, by its name in the catalogue.
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

/// Where `usage` contains the reasoning tokens, whether the report covers one choice or all.
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

/// Ids that a server assigns to tool calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallIds {
    /// A distinct id for each call.
    #[default]
    Given,
    /// `null`.
    Null,
    /// No member `id`.
    Missing,
    /// An empty string, as Gemini does.
    Empty,
}

impl CallIds {
    /// Returns the member `id` of a call, with the comma after it.
    pub(super) fn member(self, call: u64) -> String {
        match self {
            Self::Given => format!(r#""id":"call_{call}","#),
            Self::Null => r#""id":null,"#.into(),
            Self::Missing => String::new(),
            Self::Empty => r#""id":"","#.into(),
        }
    }
}

/// Names of the member for reasoning.
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
