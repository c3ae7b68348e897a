//! Ids and arguments of earlier calls, in forms that other APIs accept.

use raw_json::{Members, is_strict_object};
use shared::error::ApiError;

use crate::draft::plain;

/// Returns a call's id as a JSON string that both APIs accept. Any other id is replaced by its digest, both in the call
/// and in its answer. Ids have no other use.
pub(super) fn id(members: &Members<'_, '_>, name: &str) -> Result<String, ApiError> {
    let id = members.require(name)?;
    let id = id.string()?;
    Ok(plain(&id).unwrap_or_else(|| format!("\"{id}\"")))
}

/// Returns a call's arguments as an object. Text that is no object was cut or is the model's mistake, and is written
/// under a member name that no tool has. An object that strict readers refuse is treated the same, since the upstream
/// would refuse the whole request.
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
