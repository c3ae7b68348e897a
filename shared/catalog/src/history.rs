//! The form in which a server accepts a chat's earlier messages.

use serde::{Deserialize, Serialize};

/// The form in which a server accepts earlier messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryForm {
    /// The server's name for the reasoning of earlier answers.
    pub reasoning_param: ReasoningParam,
    /// What to do with system messages that do not come first.
    pub system_messages: SystemMessages,
    /// Ids of calls that the server accepts.
    pub call_ids: CallIds,
    /// Whether the server wants back the signatures that it gave earlier calls.
    pub thought_signatures: bool,
}

/// A server's name for the reasoning of earlier answers in chats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningParam {
    /// The server's rules are unknown. It gets only the reasoning that a chat client sends.
    #[default]
    AsSent,
    /// The server refuses earlier reasoning, or ignores it.
    None,
    /// `reasoning_content`. A hosted server gets it only with answers that contain calls, as an empty text if there was
    /// no reasoning.
    ReasoningContent,
    /// `reasoning`. A hosted server gets it only with answers that contain calls.
    Reasoning,
    /// `reasoning_details`, a list of the parts that the server signed, or else `reasoning`.
    ReasoningDetails,
}

/// What to do with system messages that do not come first in a chat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SystemMessages {
    /// They stay where they are.
    #[default]
    InPlace,
    /// They become user text in the same place, since the model's template refuses system messages there.
    AsUser,
    /// They are merged into the first message. Each new one invalidates the server's prompt cache.
    First,
}

/// Ids of calls that a server accepts in chats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallIds {
    /// Any id of up to 64 characters.
    #[default]
    Any,
    /// Ids of nine letters and digits.
    Nine,
}
