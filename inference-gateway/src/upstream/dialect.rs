//! Features that each kind of server has, and the routes to them. Answers are read alike for all kinds: see
//! `domain/answer` for usage, thoughts and calls, and `domain/upstream_error` for errors.

use shared::catalog::UpstreamKind;

use domain::{chat::ProgressReports, metering::UsageScope};

/// Features of a kind of server beyond the OpenAI chat API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    /// Form in which a stream reports usage so far, so that one that is left is billed exactly.
    pub(super) progress: ProgressReports,
    /// Route that counts a prompt's tokens.
    pub(super) counter: Counter,
    /// True if its cache of prompts is kept apart by a `cache_salt`.
    pub(super) salted: bool,
    /// Output that its reports count, where an answer has several choices.
    pub(super) usage: UsageScope,
}

/// Where a server counts the tokens of a chat request, with its template around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    /// Nowhere.
    None,
    /// `/tokenize` beside `/v1`, which answers `{"count"}`; each image counts as its placeholder, whatever its size.
    BesideV1,
    /// `/v1/tokenize`, which answers the same.
    UnderV1,
    /// `/v1/chat/completions/input_tokens`, which answers `{"input_tokens"}`, images included.
    InputTokens,
}

impl Counter {
    /// Returns whether its count includes the tokens of images.
    pub(super) const fn counts_images(self) -> bool {
        match self {
            Self::InputTokens => true,
            Self::None | Self::BesideV1 | Self::UnderV1 => false,
        }
    }

    /// Returns whether its count includes the description of tools.
    pub(super) const fn counts_tools(self) -> bool {
        match self {
            Self::InputTokens | Self::BesideV1 => true,
            Self::None | Self::UnderV1 => false,
        }
    }
}

impl Dialect {
    /// Any server of the API: only promised features are asked for, since strict servers refuse unknown ones.
    const OPENAI: Self = Self {
        progress: ProgressReports::None,
        counter: Counter::None,
        salted: false,
        usage: UsageScope::Answer,
    };

    /// vLLM. Its progress reports count the chunk's choice, its last report all of them. Sends `prompt_tokens_details` only with `--enable-prompt-tokens-details`, and in the last chunk alone: the
    /// prompt of a stream that is left is billed as not cached.
    const VLLM: Self = Self {
        progress: ProgressReports::Usage,
        counter: Counter::BesideV1,
        salted: true,
        usage: UsageScope::ChunkChoice,
    };

    /// SGLang. Its progress reports count the chunk's choice, its last report all of them. Reports cached tokens only with `--enable-cache-report`. Versions whose `/v1/tokenize` takes plain texts
    /// refuse a chat, which then has no exact count.
    const SGLANG: Self = Self { counter: Counter::UnderV1, ..Self::VLLM };

    /// llama.cpp's server. Counts each choice by itself, also in the usage that follows the choice's end, and in a whole answer
    /// only the first. Its cache is a slot's own and cannot be kept apart.
    const LLAMA_CPP: Self = Self {
        progress: ProgressReports::Timings,
        counter: Counter::InputTokens,
        usage: UsageScope::Choice,
        ..Self::OPENAI
    };

    /// Ollama. Never reports cached tokens, and cuts a prompt that is too long instead of refusing it: the model's
    /// `context_window` and its `num_ctx` should agree.
    const OLLAMA: Self = Self::OPENAI;

    /// The model inside the `faregate` binary. Its progress reports count all choices.
    const BUILTIN: Self =
        Self { progress: ProgressReports::Usage, counter: Counter::BesideV1, ..Self::OPENAI };

    /// Dialect of this kind of server.
    pub(super) const fn of(kind: UpstreamKind) -> Self {
        match kind {
            UpstreamKind::Openai => Self::OPENAI,
            UpstreamKind::Vllm => Self::VLLM,
            UpstreamKind::Sglang => Self::SGLANG,
            UpstreamKind::LlamaCpp => Self::LLAMA_CPP,
            UpstreamKind::Ollama => Self::OLLAMA,
            UpstreamKind::Builtin => Self::BUILTIN,
        }
    }
}
