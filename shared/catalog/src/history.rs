//! The form in which a server takes the earlier messages of a chat.

use serde::{Deserialize, Serialize};

/// The form in which a server takes earlier messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryForm {
    /// The server's name for the reasoning of earlier answers.
    pub reasoning_param: ReasoningParam,
    /// Place of system messages that do not come first.
    pub system_messages: SystemMessages,
    /// Ids of calls that the server accepts.
    pub call_ids: CallIds,
    /// Earlier calls need the signatures that the server gave them.
    pub thought_signatures: bool,
}

/// A server's name in chats for the reasoning of earlier answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningParam {
    /// The server's rules are not known. It gets what a client of chats sends itself, and nothing else.
    #[default]
    AsSent,
    /// The server refuses earlier reasoning, or ignores it.
    None,
    /// `reasoning_content`. A hosted server gets it with calls alone, and an empty text where there was no reasoning.
    ReasoningContent,
    /// `reasoning`. A hosted server gets it with calls alone.
    Reasoning,
    /// `reasoning_details`, a list of what the server signed, or else `reasoning`.
    ReasoningDetails,
}

/// Place of system messages that do not come first in a chat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SystemMessages {
    /// They stay where they are.
    #[default]
    InPlace,
    /// They stay where they are, as texts of the user, since the model's template refuses them there.
    AsUser,
    /// They are merged into the first message. A cache of the prompt is lost with each new one.
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
