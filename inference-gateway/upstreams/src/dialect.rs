//! Features of each kind of server. Answers are read in the same way for all kinds: see the crates `answer` for usage,
//! thoughts and calls, and `upstream-error` for errors.

use metering::UsageScope;
use request::ProgressReports;
use shared_catalog::UpstreamKind;

/// What a kind of server has in addition to the OpenAI chat API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// Form in which a stream reports its usage while it is running. With such reports, bills are exact even if a
    /// client leaves a stream.
    pub(crate) progress: ProgressReports,
    /// Route that counts a prompt's tokens.
    pub(crate) counter: TokenCounter,
    /// Whether the server accepts a `cache_salt`, which separates prompt caches.
    pub(crate) salted: bool,
    /// Which output a usage report covers in an answer with several choices.
    pub(crate) usage: UsageScope,
}

/// How the server counts the tokens of a chat request, template included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenCounter {
    None,
    /// `/tokenize` next to `/v1`. It returns `{"count"}`. An image of any size counts as a placeholder.
    BesideV1,
    /// `/v1/tokenize`, with the same answer as [`Self::BesideV1`].
    UnderV1,
    /// `/v1/chat/completions/input_tokens`, or the counting route of another API. It returns `{"input_tokens"}`, and
    /// counts images.
    InputTokens,
}

impl TokenCounter {
    /// Returns whether the count includes the tokens of images.
    pub(crate) const fn counts_images(self) -> bool {
        match self {
            Self::InputTokens => true,
            Self::None | Self::BesideV1 | Self::UnderV1 => false,
        }
    }

    /// Returns whether the count includes the description of tools.
    pub(crate) const fn counts_tools(self) -> bool {
        match self {
            Self::InputTokens | Self::BesideV1 => true,
            Self::None | Self::UnderV1 => false,
        }
    }
}

impl Dialect {
    /// Any server of the API. Only features that the API promises are used, since strict servers refuse unknown
    /// parameters.
    const OPENAI: Self = Self {
        progress: ProgressReports::None,
        counter: TokenCounter::None,
        salted: false,
        usage: UsageScope::Answer,
    };

    /// vLLM. Reports during a stream cover the chunk's choice; the last report covers all choices. It sends
    /// `prompt_tokens_details` only with `--enable-prompt-tokens-details`, and only in the last chunk. So if a client
    /// leaves a stream, its prompt is billed as uncached.
    const VLLM: Self = Self {
        progress: ProgressReports::Usage,
        counter: TokenCounter::BesideV1,
        salted: true,
        usage: UsageScope::ChunkChoice,
    };

    /// SGLang. Reports during a stream cover the chunk's choice; the last report covers all choices. It reports cached
    /// tokens only with `--enable-cache-report`. Versions whose `/v1/tokenize` accepts only plain text refuse to count
    /// a chat.
    const SGLANG: Self = Self { counter: TokenCounter::UnderV1, ..Self::VLLM };

    /// llama.cpp's server. It counts each choice separately, even in the usage after the choice's end. A whole answer
    /// has usage only for its first choice, so a request for several choices is sent as a stream. Each slot has its own
    /// cache, and a cache cannot be separated by account.
    const LLAMA_CPP: Self = Self {
        progress: ProgressReports::Timings,
        counter: TokenCounter::InputTokens,
        usage: UsageScope::Choice,
        ..Self::OPENAI
    };

    /// Ollama. It never reports cached tokens, and truncates a prompt that is too long instead of refusing it, so the
    /// model's `context_window` and the server's `num_ctx` should agree.
    const OLLAMA: Self = Self::OPENAI;

    /// The model inside the `faregate` binary. Reports during a stream cover all choices.
    const BUILTIN: Self =
        Self { progress: ProgressReports::Usage, counter: TokenCounter::BesideV1, ..Self::OPENAI };

    /// Any server of the Responses or the Messages API.
    pub(crate) const HOSTED: Self = Self { counter: TokenCounter::InputTokens, ..Self::OPENAI };

    /// Returns the dialect of this kind of server.
    pub(crate) const fn of(kind: UpstreamKind) -> Self {
        match kind {
            UpstreamKind::Openai | UpstreamKind::Anthropic => Self::OPENAI,
            UpstreamKind::Vllm => Self::VLLM,
            UpstreamKind::Sglang => Self::SGLANG,
            UpstreamKind::LlamaCpp => Self::LLAMA_CPP,
            UpstreamKind::Ollama => Self::OLLAMA,
            UpstreamKind::Builtin => Self::BUILTIN,
        }
    }
}
