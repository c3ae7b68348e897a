//! The form in which a server accepts a chat's earlier messages.

use serde::{Deserialize, Serialize};

/// The form in which a server accepts earlier messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryForm {
    /// Name of the member in which the server takes the reasoning of earlier answers.
    pub reasoning_param: ReasoningParam,
    /// What to do with system messages that do not come first.
    pub system_messages: SystemMessages,
    /// Ids of tool calls that the server accepts.
    pub call_ids: CallIds,
    /// Whether the server wants back the signatures that it gave to earlier calls.
    pub thought_signatures: bool,
}

/// Name of the member in which a server takes the reasoning of earlier answers in chats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningParam {
    /// It is unknown what the server accepts. Earlier reasoning is sent only if a chat client sends it, and in
    /// the client's form.
    #[default]
    AsSent,
    /// The server refuses earlier reasoning or ignores it, so it gets none.
    None,
    /// `reasoning_content`. A hosted server gets this member only in answers that contain calls. There, it is an empty
    /// text if the answer had no reasoning.
    ReasoningContent,
    /// `reasoning`. A hosted server gets this member only in answers that contain calls.
    Reasoning,
    /// `reasoning_details`, a list of the parts of the reasoning that the server signed. Without such parts,
    /// `reasoning`.
    ReasoningDetails,
}

/// What to do with system messages that do not come first in a chat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SystemMessages {
    /// They stay where they are.
    #[default]
    InPlace,
    /// They become user messages in the same place, because the model's template refuses system messages there.
    AsUser,
    /// They are merged into the first message. Each further system message invalidates the server's prompt cache.
    First,
}

/// Ids of tool calls that a server accepts in chats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallIds {
    /// Any id of up to 64 characters.
    #[default]
    Any,
    /// Only ids of exactly nine letters and digits.
    Nine,
}
