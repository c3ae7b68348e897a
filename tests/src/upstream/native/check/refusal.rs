//! Refusals, and checks that several parts of a request share.

use serde_json::Value;

use crate::upstream::native::error::ApiError;

/// Purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To generate an answer.
    Generate,
    /// To count the tokens of a prompt.
    Count,
}

pub(super) type Checked = Result<(), ApiError>;

/// Refuses a request with this message.
pub(super) fn invalid(message: &str) -> Checked {
    Err(ApiError::invalid(message, None))
}

/// Refuses an object with members other than these.
pub(super) fn no_more(path: &str, object: &Value, known: &[&str]) -> Checked {
    let mut names = object.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    match names.find(|name| !known.contains(name)) {
        Some(name) => invalid(&format!("{path}.{name}: Extra inputs are not permitted")),
        None => Ok(()),
    }
}

/// Refuses an object that lacks one of these members.
pub(super) fn all_of(path: &str, object: &Value, names: &[&str]) -> Checked {
    match names.iter().find(|name| object.get(**name).is_none()) {
        Some(name) if path.is_empty() => invalid(&format!("{name}: Field required")),
        Some(name) => invalid(&format!("{path}.{name}: Field required")),
        None => Ok(()),
    }
}

/// Returns whether a text consists of letters, digits, underscores and hyphens, and is not empty.
pub(super) fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}
