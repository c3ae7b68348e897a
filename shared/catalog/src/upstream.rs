//! A model's server as the catalogue describes it: its address, its APIs, and what may be sent to it.

use http::Uri;
use serde::{Deserialize, Serialize};

use crate::{
    access::Access,
    history::{HistoryForm, ReasoningParam, SystemMessages},
    price::Price,
};

/// A server of a model.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a line of the catalogue")]
pub struct Upstream {
    /// Name that accounts see instead of its address; unique among the model's upstreams.
    pub name: String,
    /// Software of the server. It decides how the server is called.
    pub kind: UpstreamKind,
    /// Base address with `/v1`; its query is sent with every request. `None` only for the built-in model.
    pub url: Option<Uri>,
    /// The server's own name for the model.
    pub model: String,
    /// APIs that the server speaks, each once; never empty.
    pub speaks: Vec<UpstreamApi>,
    /// Credential, further headers, trusted authorities and proxy.
    pub access: Access,
    /// The server's name for the output limit.
    pub limit_param: LimitParam,
    /// The form in which the server accepts a chat's earlier messages.
    pub history: HistoryForm,
    /// Share of the requests, relative to the model's other upstreams.
    pub weight: u32,
    /// Tokens that the upstream's template adds to a prompt beyond the usual number.
    pub prompt_overhead: u64,
    /// Charge for a stream whose client leaves before the upstream answers.
    pub left_before_head: LeftBeforeHead,
    /// What to do with a stream whose client leaves midway.
    pub left_mid_stream: LeftMidStream,
    /// Kinds of image URLs that the upstream may be handed.
    pub image_urls: ImageUrls,
    /// Whether requests translated to the Messages API mark what the vendor should cache.
    pub cache_breakpoints: bool,
    /// Query parameters that are passed on with a client's body, in addition to `beta`.
    pub pass_query: Vec<String>,
    /// Undocumented members that this server gets when a client's body is passed on.
    pub pass_members: Vec<String>,
    /// Whether requests may ask the server to compact a conversation, which generates tokens beyond the output limit.
    pub compaction: bool,
    /// Whether accounts share the vendor's prompt cache. If not, requests of the Messages API begin with a block that
    /// differs by account.
    pub share_cache: bool,
    /// Index, from 0, of the model's first upstream that gets the same members of a client's body.
    pub passes_like: usize,
    /// Whether a stream shows every generated token, with no hidden reasoning.
    pub streams_every_token: bool,
    /// Prices that the upstream charges the operator; `None` if unknown.
    pub cost: Option<Price>,
}

/// Kinds of image URLs that an upstream may get. Each kind includes the previous ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageUrls {
    /// Only images inside the request; the upstream fetches nothing.
    #[default]
    Data,
    /// Also `https` addresses of public hosts.
    Https,
    /// Any address, including `http` and internal hosts.
    Any,
}

impl ImageUrls {
    /// Returns the default for a kind of server. A self-hosted server could reach private addresses, so by default it
    /// fetches nothing.
    pub(crate) const fn of(kind: UpstreamKind) -> Self {
        match kind {
            UpstreamKind::Openai | UpstreamKind::Anthropic => Self::Https,
            UpstreamKind::Vllm
            | UpstreamKind::Sglang
            | UpstreamKind::LlamaCpp
            | UpstreamKind::Ollama
            | UpstreamKind::Builtin => Self::Data,
        }
    }
}

/// Charge for a stream whose client leaves before the upstream answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftBeforeHead {
    #[default]
    Free,
    /// The prompt, which the upstream has read by then.
    Prompt,
}

/// What to do with a stream whose client leaves midway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftMidStream {
    /// The upstream is stopped at once. Unreported tokens are estimated.
    Stop,
    /// The upstream is read to the end, so that all tokens are billed as it reports them.
    Finish,
}

impl LeftMidStream {
    /// Returns the default for a server. Servers of the Responses and Messages APIs report usage only at the end, and
    /// do not show all of their reasoning.
    pub(crate) fn of(speaks: &[UpstreamApi]) -> Self {
        if speaks.iter().all(|api| *api == UpstreamApi::Chat) { Self::Stop } else { Self::Finish }
    }
}

/// The software of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamKind {
    /// Any server of the OpenAI API.
    Openai,
    /// Any server of the Anthropic API.
    Anthropic,
    Vllm,
    Sglang,
    LlamaCpp,
    Ollama,
    /// The model inside the `faregate` binary.
    Builtin,
}

impl UpstreamKind {
    /// Returns whether servers of this kind run on the operator's machines.
    const fn is_self_hosted(self) -> bool {
        match self {
            Self::Openai | Self::Anthropic => false,
            Self::Vllm | Self::Sglang | Self::LlamaCpp | Self::Ollama | Self::Builtin => true,
        }
    }

    /// Returns the APIs of a server whose entry in the catalogue lists none.
    pub(crate) fn speaks(self) -> Vec<UpstreamApi> {
        let is_anthropic = self == Self::Anthropic;
        vec![if is_anthropic { UpstreamApi::Messages } else { UpstreamApi::Chat }]
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Openai | Self::Anthropic | Self::Vllm | Self::Sglang | Self::LlamaCpp | Self::Ollama => {
                self.provider()
            }
            Self::Builtin => "builtin",
        }
    }

    /// Returns the name in telemetry, as `gen_ai.provider.name`.
    pub const fn provider(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::LlamaCpp => "llama_cpp",
            Self::Ollama => "ollama",
            Self::Builtin => "faregate",
        }
    }
}

impl ReasoningParam {
    /// Returns the default for a kind of server. Strict hosted servers refuse unknown members.
    pub(crate) const fn of(kind: UpstreamKind) -> Self {
        match kind {
            UpstreamKind::Openai | UpstreamKind::Anthropic => Self::AsSent,
            UpstreamKind::Vllm | UpstreamKind::Ollama => Self::Reasoning,
            UpstreamKind::Sglang | UpstreamKind::LlamaCpp | UpstreamKind::Builtin => Self::ReasoningContent,
        }
    }
}

impl SystemMessages {
    /// Returns the default for a kind of server. Many models' templates refuse a system message that is not first.
    pub(crate) const fn of(kind: UpstreamKind) -> Self {
        match kind {
            UpstreamKind::Openai | UpstreamKind::Anthropic | UpstreamKind::Builtin => Self::InPlace,
            UpstreamKind::Vllm | UpstreamKind::Sglang | UpstreamKind::LlamaCpp | UpstreamKind::Ollama => {
                Self::AsUser
            }
        }
    }
}

/// An API for chats with models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamApi {
    Chat,
    Responses,
    Messages,
}

// A hosted server without the client's API is called in the first of these that it speaks.
shared::names! { UpstreamApi: Responses = "responses", Messages = "messages", Chat = "chat" }

impl Upstream {
    /// Returns the API to use for a client of this API: the client's own if the server speaks it, or chat if the server
    /// shows its progress there, so that a stream that is left or cut is billed exactly.
    pub fn api_for(&self, client: UpstreamApi) -> UpstreamApi {
        let speaks = |api: &UpstreamApi| self.speaks.contains(api);
        let first = if self.kind.is_self_hosted() { UpstreamApi::Chat } else { client };
        let preferred = [first, client].into_iter().chain(UpstreamApi::ALL);
        preferred.into_iter().find(speaks).unwrap_or(UpstreamApi::Chat)
    }

    /// Returns whether the server belongs to the vendor that defines this API. Members unknown to the gateway mean what
    /// the vendor documents there, so they may pass.
    pub fn is_vendors_own(&self, api: UpstreamApi) -> bool {
        let vendors = match api {
            UpstreamApi::Chat | UpstreamApi::Responses => "api.openai.com",
            UpstreamApi::Messages => "api.anthropic.com",
        };
        let host = self.url.as_ref().and_then(Uri::host).unwrap_or_default().trim_end_matches('.');
        let Some(start) = host.len().checked_sub(vendors.len()) else { return false };
        let is_below = start == 0 || host.as_bytes().get(start - 1) == Some(&b'.');
        is_below && host.get(start..).is_some_and(|end| end.eq_ignore_ascii_case(vendors))
    }

    /// Returns whether the same members of a client's body pass to both servers.
    pub(crate) fn passes_as(&self, other: &Self) -> bool {
        let is_own = |upstream: &Self| {
            [UpstreamApi::Responses, UpstreamApi::Messages].map(|api| upstream.is_vendors_own(api))
        };
        let terms = |upstream: &Self| (upstream.compaction, is_own(upstream));
        terms(self) == terms(other) && self.pass_members == other.pass_members
    }
}

/// A server's name for the output limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitParam {
    /// The common name. OpenAI's newer models refuse it.
    #[default]
    MaxTokens,
    /// OpenAI's newer name. Many servers do not support it.
    MaxCompletionTokens,
}

impl LimitParam {
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::MaxTokens => Self::MaxCompletionTokens,
            Self::MaxCompletionTokens => Self::MaxTokens,
        }
    }

    /// Returns the name of the member in a request.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}
