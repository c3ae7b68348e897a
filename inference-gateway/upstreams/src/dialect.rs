//! Features of each kind of server. Answers are read in the same way for all kinds: see the crates `answer` for usage,
//! thoughts and calls, and `upstream-error` for errors.

use metering::UsageScope;
use request::ProgressReports;
use shared_catalog::UpstreamKind;

/// Features of a kind of server beyond the OpenAI chat API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// Form in which a stream reports usage in progress. It makes bills exact for streams that clients leave.
    pub(crate) progress: ProgressReports,
    /// Route that counts a prompt's tokens.
    pub(crate) counter: TokenCounter,
    /// Whether a `cache_salt` separates prompt caches.
    pub(crate) salted: bool,
    /// The output that reports cover in an answer with several choices.
    pub(crate) usage: UsageScope,
}

/// How the server counts the tokens of a chat request, template included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenCounter {
    None,
    /// `/tokenize` next to `/v1`, which returns `{"count"}`. An image of any size counts as a placeholder.
    BesideV1,
    /// `/v1/tokenize`, which returns the same.
    UnderV1,
    /// `/v1/chat/completions/input_tokens` or another API's counter, which returns `{"input_tokens"}`, images included.
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

    /// vLLM. Progress reports cover the chunk's choice; the last report covers all. It sends `prompt_tokens_details`
    /// only with `--enable-prompt-tokens-details`, and only in the last chunk, so if a client leaves a stream, its
    /// prompt is billed as uncached.
    const VLLM: Self = Self {
        progress: ProgressReports::Usage,
        counter: TokenCounter::BesideV1,
        salted: true,
        usage: UsageScope::ChunkChoice,
    };

    /// SGLang. Progress reports cover the chunk's choice; the last report covers all. It reports cached tokens only
    /// with `--enable-cache-report`. Versions whose `/v1/tokenize` accepts only plain text refuse a chat, which then
    /// has no exact count.
    const SGLANG: Self = Self { counter: TokenCounter::UnderV1, ..Self::VLLM };

    /// llama.cpp's server. It counts each choice separately, even in the usage after the choice's end. A whole answer
    /// has usage only for its first choice, so a request for several choices is sent as a stream. The cache belongs to
    /// a slot and cannot be separated.
    const LLAMA_CPP: Self = Self {
        progress: ProgressReports::Timings,
        counter: TokenCounter::InputTokens,
        usage: UsageScope::Choice,
        ..Self::OPENAI
    };

    /// Ollama. It never reports cached tokens, and truncates a prompt that is too long instead of refusing it, so the
    /// model's `context_window` and the server's `num_ctx` should agree.
    const OLLAMA: Self = Self::OPENAI;

    /// The model inside the `faregate` binary. Progress reports cover all choices.
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
