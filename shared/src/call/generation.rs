//! What is known about a generation besides its tokens: how the caller asked, and how it went.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ids::RequestId, text::is_control};

/// Longest name for an end user that is kept, in characters. Vendors accept the same length.
const MAX_USER_CHARS: usize = 64;

/// The API in which a model is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ModelApi {
    /// Chat completions.
    Chat = 1,
    /// The Responses API.
    Responses = 2,
    /// The Messages API.
    Messages = 3,
    /// Embeddings.
    Embeddings = 4,
}

// Records store these numbers: add new ones, never renumber.
crate::names! {
    ModelApi: Chat = "chat", Responses = "responses", Messages = "messages", Embeddings = "embeddings",
}

impl ModelApi {
    /// Finds the API with this number.
    pub fn of_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|api| *api as u32 == number)
    }
}

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum FinishReason {
    /// The model was done, or met a stop sequence.
    Stop = 1,
    /// The limit of output was reached.
    Length = 2,
    /// The model calls tools.
    ToolCalls = 3,
    /// A filter withheld the rest.
    ContentFilter = 4,
}

// Records store these numbers: add new ones, never renumber.
crate::names! {
    FinishReason: Stop = "stop", Length = "length", ToolCalls = "tool_calls",
    ContentFilter = "content_filter",
}

impl FinishReason {
    /// Finds the reason with this number.
    pub fn of_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u32 == number)
    }
}

/// How a caller requested a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub api: ModelApi,
    /// The caller requested a stream.
    pub stream: bool,
    /// The caller's name for its end user, cleaned by [`kept_user`].
    pub user: Option<String>,
    /// The answer's `x-request-id`; `None` from versions that do not report it.
    pub request: Option<RequestId>,
}

/// How a generation has gone so far. Times are milliseconds since the request was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Course {
    /// Name, in the catalogue, of the upstream that was asked last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// When money was held for the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorized_ms: Option<u64>,
    /// Time of the first token of a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<u64>,
    /// When the answer was complete or abandoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    /// Why the first choice ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// Cost in nano-USD as the vendor reported it, if another model than the requested one answered. The bill is at
    /// least this. Not stored with the bill.
    #[serde(skip_serializing_if = "Option::is_none")]
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

    #[test]
    fn numbers_in_records_are_those_of_the_names() {
        for api in ModelApi::ALL {
            assert_eq!(ModelApi::of_number(api as u32), Some(api));
        }
        for reason in FinishReason::ALL {
            assert_eq!(FinishReason::of_number(reason as u32), Some(reason));
        }
        assert_eq!((ModelApi::of_number(0), FinishReason::of_number(9)), (None, None));
    }
}
