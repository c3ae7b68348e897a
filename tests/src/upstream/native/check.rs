//! What the vendors refuse of a request, in their words.

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use serde_json::Value;

use super::{error::ApiError, prompt::Prompt};
use crate::upstream::record::Api;

mod blocks;
mod cache_marks;
mod items;
mod members;
mod messages;
mod openai;
mod pairing;
mod responses;
mod thinking;
mod tools;

/// Purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A generation.
    Generate,
    /// The length of a prompt.
    Count,
}

/// Result of a check.
type Checked = Result<(), ApiError>;

/// Refuses a request without this credential, with or without `Bearer` before it.
pub(super) fn credential(api: Api, headers: &HeaderMap, key: Option<&str>) -> Checked {
    let Some(key) = key else { return Ok(()) };
    let is_right = |value: &HeaderValue| {
        let value = value.to_str().unwrap_or_default();
        value.strip_prefix("Bearer ").unwrap_or(value) == key
    };
    if headers.values().any(is_right) {
        return Ok(());
    }
    if headers.contains_key("x-api-key") || headers.contains_key(AUTHORIZATION) {
        return Err(ApiError::wrong_key(api));
    }
    let message = match api {
        Api::Messages => "x-api-key header is required",
        Api::Responses | Api::Chat => "Missing bearer authentication in header",
    };
    Err(ApiError { status: 401, ..ApiError::invalid(message, None) })
}

/// Refuses what the vendor of the API refuses.
pub(super) fn check(prompt: &Prompt, purpose: Purpose, headers: &HeaderMap) -> Checked {
    let beta = headers.get("anthropic-beta").and_then(|beta| beta.to_str().ok()).unwrap_or_default();
    if prompt.api == Api::Messages && !headers.contains_key("anthropic-version") {
        return invalid("anthropic-version: header is required");
    }
    members::check(prompt.api, purpose, &prompt.body, !beta.is_empty())?;
    match prompt.api {
        Api::Messages => messages::check(prompt, purpose, beta),
        Api::Responses | Api::Chat => responses::check(prompt, purpose),
    }
}

/// Refuses a request with this message.
fn invalid(message: &str) -> Checked {
    Err(ApiError::invalid(message, None))
}

/// Refuses an object with members other than these.
fn no_more(path: &str, object: &Value, known: &[&str]) -> Checked {
    let mut names = object.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    match names.find(|name| !known.contains(name)) {
        Some(name) => invalid(&format!("{path}.{name}: Extra inputs are not permitted")),
        None => Ok(()),
    }
}

/// Refuses an object without one of these members.
fn all_of(path: &str, object: &Value, names: &[&str]) -> Checked {
    match names.iter().find(|name| object.get(**name).is_none()) {
        Some(name) if path.is_empty() => invalid(&format!("{name}: Field required")),
        Some(name) => invalid(&format!("{path}.{name}: Field required")),
        None => Ok(()),
    }
}

/// Returns whether a text has letters, digits, underscores and hyphens alone, at least one of them.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}
