//! Reasons why an answer is unusable.

use std::str::Utf8Error;

/// The parser's error for an overlong list or name. A request can cause it by asking a model for many calls.
pub(crate) const BEYOND: &str = "beyond the limits of answers";

/// Why an upstream's answer cannot be used. The message is for the log, and contains nothing generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    /// The answer is not JSON, or a member has a different type than in the API.
    #[error("not the JSON that was expected, at line {line}, column {column}")]
    Malformed {
        /// Line of the payload, from 1.
        line: usize,
        /// Column of the line, from 1.
        column: usize,
    },
    /// The answer is an error although its status was 200.
    #[error("an error, although the status is 200")]
    Error,
    /// The answer has no choice, or more than can be requested.
    #[error("no choices, or too many")]
    Choices,
    /// The answer has more calls than any model makes, or an id or a name that is too long.
    #[error("more calls, or longer names, than are accepted")]
    Beyond,
    /// The answer does not have the usual form, so it must be converted.
    #[error("not in the usual form")]
    Form,
    /// A choice ended without a finish reason, or with a reason that means failure.
    #[error("a choice ended without a finish reason, or with a reason that means failure")]
    Unfinished,
    /// Pieces of several calls were mixed, so that a call continued after its end.
    #[error("a call continued after its arguments were complete")]
    Interleaved,
}

impl From<serde_json::Error> for Nonsense {
    fn from(error: serde_json::Error) -> Self {
        if error.is_data() && error.to_string().starts_with(BEYOND) {
            return Self::Beyond;
        }
        // The parser's message may quote generated text, so it is left out.
        Self::Malformed { line: error.line(), column: error.column() }
    }
}

impl From<Utf8Error> for Nonsense {
    fn from(error: Utf8Error) -> Self {
        Self::Malformed { line: 1, column: error.valid_up_to() + 1 }
    }
}
