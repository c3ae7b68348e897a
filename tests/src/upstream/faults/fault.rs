//! Faults that a script causes, and the formats of model servers' errors.

use serde::{Deserialize, Serialize};
use serde_json::json;

/// A fault of the upstream. `after` counts the tokens of each choice. A fault that breaks a stream after some token
/// breaks a whole answer in its middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// No fault.
    None,
    /// An error status instead of an answer.
    Error {
        status: u16,
        /// Format of the error's body.
        shape: Shape,
    },
    /// An error status for a request with a query or a header `anthropic-beta`, as from a vendor that reads its
    /// credential from there.
    ErrorOfHead { status: u16 },
    /// The connection is cut before the response's head.
    CutBeforeHead,
    /// The response's head never comes.
    StallBeforeHead,
    /// Output stops; the connection stays open.
    Stall {
        /// Number of tokens before the fault.
        after: u64,
    },
    /// Output stops; comments keep coming.
    Comments {
        /// Number of tokens before the fault.
        after: u64,
    },
    /// The connection is cut.
    Cut {
        /// Number of tokens before the fault.
        after: u64,
    },
    /// The stream ends without an error, but also without finish reason, usage and `[DONE]`.
    End {
        /// Number of tokens before the fault.
        after: u64,
    },
    /// An error event, followed by `[DONE]`.
    ErrorEvent {
        /// Number of tokens before the fault.
        after: u64,
        /// Format of the error.
        shape: Shape,
    },
    /// An event that is not JSON, followed by silence; for a whole answer, a body that is not JSON.
    Nonsense {
        /// Number of tokens before the fault.
        after: u64,
    },
    /// The connection is cut after the finish reason.
    CutBeforeUsage,
    /// Everything is sent except a finish reason, which stays null.
    NoFinishReason,
    /// Everything is sent except `[DONE]`.
    NoDone,
    /// Everything is sent except `[DONE]`, and the connection stays open.
    StallBeforeDone,
}

impl Fault {
    /// Returns the number of tokens of a choice after which the fault occurs; `None` if it does not occur among tokens.
    pub const fn after(self) -> Option<u64> {
        match self {
            Self::Stall { after }
            | Self::Comments { after }
            | Self::Cut { after }
            | Self::End { after }
            | Self::ErrorEvent { after, .. }
            | Self::Nonsense { after } => Some(after),
            Self::None
            | Self::Error { .. }
            | Self::ErrorOfHead { .. }
            | Self::CutBeforeHead
            | Self::StallBeforeHead
            | Self::CutBeforeUsage
            | Self::NoFinishReason
            | Self::NoDone
            | Self::StallBeforeDone => None,
        }
    }
}

/// Formats of model servers' errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// `{"error":{message,type,param,code}}`, as vLLM sends it.
    Nested,
    /// The members without the enclosing `error`, as SGLang sends them.
    Flat,
    /// The error that llama.cpp's server sends for a prompt that is too long.
    TooLong,
    /// The error that llama.cpp's server sends for messages that the model's template refuses.
    Template,
    /// `{"error":"…"}`, as Text Generation Inference sends it.
    Text,
    /// `{"detail":"…"}`, as FastAPI sends it.
    Detail,
    /// vLLM's format, for any status, with a message that contains a host and a credential.
    Telling,
    /// HTML instead of JSON.
    Html,
}

impl Shape {
    /// Returns the message of an error with this status.
    pub(crate) fn message(status: u16) -> String {
        match status {
            400 | 422 => "the scripted upstream refuses this request".to_owned(),
            _ => format!("scripted failure {status} at worker-7.internal:9999"),
        }
    }

    /// Returns the body of the error. Unless the error is about the request, it contains an internal host, which
    /// clients must never see.
    pub fn body(self, status: u16) -> String {
        let message = Self::message(status);
        match self {
            Self::Nested => json!({"error": {"message": message, "type": "BadRequestError", "param": null, "code": status}}).to_string(),
            Self::Flat => json!({"object": "error", "message": message, "type": "BadRequestError", "param": null, "code": status}).to_string(),
            Self::TooLong => json!({"error": {"code": status, "message": "the request exceeds the available context size",
                "type": "exceed_context_size_error", "n_prompt_tokens": 5000, "n_ctx": 4096}}).to_string(),
            Self::Template => json!({"error": {"code": status, "message": TEMPLATE_RAISES, "type": "server_error"}}).to_string(),
            Self::Text => json!({"error": message, "error_type": "validation"}).to_string(),
            Self::Detail => json!({ "detail": message }).to_string(),
            Self::Telling => json!({"error": {"message": "bad key sk-SECRET123456 at http://10.0.0.5:8000/v1", "code": status}}).to_string(),
            Self::Html => format!("<html><body>{message}</body></html>"),
        }
    }
}

/// llama.cpp's message when a template raises an exception.
pub(crate) const TEMPLATE_RAISES: &str = "\n------------\nWhile executing CallExpression at line 85, column 32 in source:\n...first %}↵            {{- raise_exception('System message must be at the beginnin...\n                                           ^\nError: Jinja Exception: System message must be at the beginning.";
