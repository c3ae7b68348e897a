//! Ids and arguments of earlier calls, in forms that other APIs accept.

use raw_json::{Members, is_strict_object};
use shared::error::ApiError;

use crate::draft::plain;

/// Returns the id of a call as a JSON string that both APIs accept. Any other id is replaced by its digest, which is
/// the same at the call and at its answer; an id has no other use.
pub(super) fn id(members: &Members<'_, '_>, name: &str) -> Result<String, ApiError> {
    let id = members.require(name)?;
    let id = id.string()?;
    Ok(plain(&id).unwrap_or_else(|| format!("\"{id}\"")))
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
