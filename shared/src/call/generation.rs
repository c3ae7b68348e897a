//! What is known about a generation besides its tokens: how the caller asked, and how it went.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ids::RequestId, text::is_control};

/// Maximum length in characters of the name that is kept for an end user. Vendors accept the same length.
const MAX_USER_CHARS: usize = 64;

/// The API in which a model is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[cbor(index_only)]
pub enum ModelApi {
    /// Chat completions.
    #[n(1)]
    Chat,
    /// The Responses API.
    #[n(2)]
    Responses,
    /// The Messages API.
    #[n(3)]
    Messages,
    /// Embeddings.
    #[n(4)]
    Embeddings,
}

crate::names! {
    ModelApi: Chat = "chat", Responses = "responses", Messages = "messages", Embeddings = "embeddings",
}

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[cbor(index_only)]
pub enum FinishReason {
    /// The model was done, or met a stop sequence.
    #[n(1)]
    Stop,
    /// The output limit was reached.
    #[n(2)]
    Length,
    /// The model calls tools.
    #[n(3)]
    ToolCalls,
    /// A filter withheld the rest.
    #[n(4)]
    ContentFilter,
}

crate::names! {
    FinishReason: Stop = "stop", Length = "length", ToolCalls = "tool_calls",
    ContentFilter = "content_filter",
}

/// How a caller requested a generation.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Origin {
    #[n(0)]
    pub api: ModelApi,
    /// The caller requested a stream.
    #[n(1)]
    pub stream: bool,
    /// The caller's name for its end user, cleaned by [`kept_user`].
    #[n(2)]
    pub user: Option<String>,
    /// The answer's `x-request-id`; `None` from versions that do not report it.
    #[n(3)]
    pub request: Option<RequestId>,
}

/// How a generation has gone so far. Times are milliseconds since the request was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(default)]
pub struct Course {
    /// Name, in the catalogue, of the upstream that was asked last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(0)]
    pub upstream: Option<String>,
    /// When money was held for the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub authorized_ms: Option<u64>,
    /// Time of the first token of a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub first_token_ms: Option<u64>,
    /// When the answer was complete or abandoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub latency_ms: Option<u64>,
    /// Why the first choice ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cbor(n(4), with = "crate::forms::stored::known_value", has_nil)]
    pub finish_reason: Option<FinishReason>,
    /// Cost in nano-USD as the vendor reported it, if another model than the requested one answered. The bill is at
    /// least this. Not stored with the bill.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cbor(skip)]
    pub least_cost_nanos: Option<i64>,
}

/// Shortens a caller's name for its user and removes control characters. `None` if nothing is left.
pub fn kept_user(text: &str) -> Option<String> {
    let user: String = text.trim().chars().filter(|c| !is_control(*c)).take(MAX_USER_CHARS).collect();
    (!user.is_empty()).then_some(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_name_is_cut_and_commands_nothing() {
        assert_eq!(kept_user(" alice@example.org "), Some("alice@example.org".into()));
        assert_eq!(kept_user("a\u{1b}[31mb\n\u{202e}c"), Some("a[31mbc".into()));
        assert_eq!(kept_user(&"ü".repeat(100)), Some("ü".repeat(MAX_USER_CHARS)));
        assert_eq!([kept_user(""), kept_user(" \u{7}\n")], [None, None]);
    }
}
