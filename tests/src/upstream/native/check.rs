//! Refuses the requests that the vendors refuse, in the vendors' words.

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};

use super::error::ApiError;
use crate::upstream::{prompts::prompt::Prompt, record::Api};
pub(super) use refusal::Purpose;
use refusal::{Checked, invalid};

mod blocks;
mod cache_marks;
mod items;
mod members;
mod messages;
mod openai;
mod pairing;
mod refusal;
mod responses;
mod thinking;
mod tools;

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

/// Refuses a request that the vendor of the API refuses.
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
