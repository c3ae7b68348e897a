//! Ids and arguments of earlier calls, in forms that other APIs accept.

use std::borrow::Cow;

use raw_json::{Members, is_strict_object};
use shared::error::ApiError;

/// Most characters of a call's id that both APIs accept.
const MAX_ID: usize = 64;
/// Digits of the digest that stands for an id they refuse.
const DIGEST_DIGITS: usize = 32;

/// Returns the id of a call as a JSON string that both APIs accept. Any other id is replaced by its digest, which is
/// the same at the call and at its answer; an id has no other use.
pub(super) fn id(members: &Members<'_, '_>, name: &str) -> Result<Cow<'static, str>, ApiError> {
    let id = members.require(name)?.string()?;
    let is_taken = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if id.len() <= MAX_ID && id.bytes().all(is_taken) {
        return Ok(format!("\"{id}\"").into());
    }
    let digest = blake3::derive_key("faregate 2026 ids of calls for other APIs", id.as_bytes());
    let digest = blake3::Hash::from_bytes(digest).to_hex();
    Ok(format!("\"call_{}\"", &digest[..DIGEST_DIGITS]).into())
}

/// Returns the arguments of a call as an object. Text that is no object was cut, or is the model's mistake; the model
/// reads it under a name that no tool has. An object that a strict reader refuses would have the upstream
/// refuse the whole request.
pub(super) fn object(arguments: &str) -> String {
    let trimmed = arguments.trim();
    if trimmed.is_empty() || trimmed == "null" {
        return "{}".to_owned();
    }
    if is_strict_object(trimmed) {
        return trimmed.to_owned();
    }
    serde_json::json!({"invalid_arguments": arguments}).to_string()
}
