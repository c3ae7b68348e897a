//! Ids and arguments of earlier calls, in forms that other APIs take.

use std::borrow::Cow;

use raw_json::Members;
use shared::{error::ApiError, json::RawValue};

/// Characters of a call's id that both APIs take.
const MAX_ID: usize = 64;
/// Digits of the digest that stands for an id which they refuse.
const DIGEST_DIGITS: usize = 32;

/// The id of a call as a JSON string that both APIs take. Another id is replaced by a digest of it, the same at the call and at
/// its answer, which is all that an id is for.
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

/// The arguments of a call as an object. What is no object was cut, or is the model's mistake: the model reads it back under
/// a name that no tool has.
pub(super) fn object(arguments: &str) -> String {
    let trimmed = arguments.trim();
    if trimmed.is_empty() || trimmed == "null" {
        return "{}".to_owned();
    }
    if trimmed.starts_with('{') && serde_json::from_str::<&RawValue>(trimmed).is_ok() {
        return trimmed.to_owned();
    }
    serde_json::json!({"invalid_arguments": arguments}).to_string()
}
