//! A model's server as the catalogue describes it: its address, its APIs, and what the gateway may send to it.

use http::Uri;
use serde::{Deserialize, Serialize};

use crate::{
    access::Access,
    history::{HistoryForm, ReasoningParam, SystemMessages},
    price::Price,
};

/// A server that runs a model.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a line of the catalogue")]
pub struct Upstream {
    /// Name that accounts see instead of the address. No other upstream of the model has the same name.
    pub name: String,
    /// Software of the server. It decides how the server is called.
    pub kind: UpstreamKind,
    /// Base address, including `/v1`. If it has a query, every request carries that query. `None` only for the built-in
    /// model.
    pub url: Option<Uri>,
    /// The server's own name for the model.
    pub model: String,
    /// APIs that the server speaks. Each is listed once, and there is at least one.
    pub speaks: Vec<UpstreamApi>,
    /// Credential, further headers, trusted certificate authorities, and proxy.
    pub access: Access,
    /// Name of the member in which the server takes the output limit.
    pub limit_param: LimitParam,
    /// The form in which the server accepts a chat's earlier messages.
    pub history: HistoryForm,
    /// Weight of this upstream when requests are divided among the model's upstreams.
    pub weight: u32,
    /// Number of tokens that the upstream's template adds to a prompt in excess of the usual number.
    pub prompt_overhead: u64,
    /// What is charged for a stream whose client leaves before the upstream begins its answer.
    pub left_before_head: LeftBeforeHead,
    /// What to do with a stream whose client leaves midway.
    pub left_mid_stream: LeftMidStream,
    /// Kinds of image URLs that may be sent to the upstream.
    pub image_urls: ImageUrls,
    /// Whether requests that are translated to the Messages API mark what the vendor should cache.
    pub cache_breakpoints: bool,
    /// Query parameters that pass to the server together with a client's body, in addition to `beta`.
    pub pass_query: Vec<String>,
    /// Undocumented members that this server receives when a client's body passes to it.
    pub pass_members: Vec<String>,
    /// Whether requests may ask the server to compact a conversation, for which it generates tokens that the output
    /// limit does not cover.
    pub compaction: bool,
    /// Whether accounts share the vendor's prompt cache. If they do not, requests in the Messages API begin with a
    /// block that is different for each account.
    pub share_cache: bool,
    /// Index, from 0, of the model's first upstream to which the same members of a client's body pass.
    pub passes_like: usize,
    /// Whether a stream shows every token that is generated, so that no reasoning is hidden.
    pub streams_every_token: bool,
    /// Price that the upstream charges the operator; `None` if unknown.
    pub cost: Option<Price>,
}

/// Kinds of image URLs that may be sent to an upstream. Each kind includes the kinds before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageUrls {
    /// Only images that are part of the request, so that the upstream fetches nothing.
    #[default]
    Data,
    /// Also `https` addresses of public hosts.
    Https,
    /// Any address, including plain `http` and internal hosts.
    Any,
}

impl ImageUrls {
    /// Returns the default for a kind of server. By default, a self-hosted server fetches nothing, because it could
    /// reach private addresses.
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

/// What is charged for a stream whose client leaves before the upstream begins its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftBeforeHead {
    #[default]
    Free,
    /// The prompt is charged, because the upstream has read it by then.
    Prompt,
}

/// What to do with a stream whose client leaves midway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftMidStream {
    /// The upstream is stopped at once. The number of tokens that it has not reported is estimated.
    Stop,
    /// The upstream's answer is read to the end, and all tokens are billed as it reports them.
    Finish,
}

impl LeftMidStream {
    /// Returns the default for a server. In the Responses and Messages APIs, servers report usage only at the end and
    /// do not show all of their reasoning, so streams are read to the end.
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
    /// Returns whether the operator runs servers of this kind.
    const fn is_self_hosted(self) -> bool {
        match self {
            Self::Openai | Self::Anthropic => false,
            Self::Vllm | Self::Sglang | Self::LlamaCpp | Self::Ollama | Self::Builtin => true,
        }
    }

    /// Returns the APIs that a server of this kind speaks if its entry in the catalogue lists none.
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

    /// Returns the name of the kind in telemetry, where it is `gen_ai.provider.name`.
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
    /// Returns the default for a kind of server. Strict hosted servers refuse members that they do not know.
    pub(crate) const fn of(kind: UpstreamKind) -> Self {
        match kind {
            UpstreamKind::Openai | UpstreamKind::Anthropic => Self::AsSent,
            UpstreamKind::Vllm | UpstreamKind::Ollama => Self::Reasoning,
            UpstreamKind::Sglang | UpstreamKind::LlamaCpp | UpstreamKind::Builtin => Self::ReasoningContent,
        }
    }
}

impl SystemMessages {
    /// Returns the default for a kind of server. The templates of many models refuse system messages that do not come
    /// first.
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

// If a hosted server does not speak the client's API, the gateway uses the first of these APIs that the server speaks.
shared::names! { UpstreamApi: Responses = "responses", Messages = "messages", Chat = "chat" }

impl Upstream {
    /// Returns the API in which to call the server for a client of this API. If possible, this is the client's own. A
    /// self-hosted server is called in chat: it reports its progress there, so that a stream is billed exactly even if
    /// it is cut or its client leaves.
    pub fn api_for(&self, client: UpstreamApi) -> UpstreamApi {
        let speaks = |api: &UpstreamApi| self.speaks.contains(api);
        let first = if self.kind.is_self_hosted() { UpstreamApi::Chat } else { client };
        let preferred = [first, client].into_iter().chain(UpstreamApi::ALL);
        preferred.into_iter().find(speaks).unwrap_or(UpstreamApi::Chat)
    }

    /// Returns whether the server belongs to the vendor that defines this API. There, members that the gateway does not
    /// know mean what the vendor documents, so they may pass.
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

    /// Returns whether both servers receive the same members of a client's body.
    pub(crate) fn passes_as(&self, other: &Self) -> bool {
        let is_own = |upstream: &Self| {
            [UpstreamApi::Responses, UpstreamApi::Messages].map(|api| upstream.is_vendors_own(api))
        };
        let terms = |upstream: &Self| (upstream.compaction, is_own(upstream));
        terms(self) == terms(other) && self.pass_members == other.pass_members
    }
}

/// Name of the member in which a server takes the output limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitParam {
    /// The usual name. OpenAI's newer models refuse it.
    #[default]
    MaxTokens,
    /// OpenAI's newer name, which many servers do not support.
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
