//! Ids and arguments of earlier calls, in forms that other APIs accept.

use raw_json::{Members, is_strict_object};
use shared::error::ApiError;

use crate::draft::plain;

/// Returns a call's id as a JSON string that both APIs accept. Any other id is replaced by its digest, both in the call
/// and in its answer. An id has no other use than to link these two.
pub(super) fn id(members: &Members<'_, '_>, name: &str) -> Result<String, ApiError> {
    let id = members.require(name)?;
    let id = id.string()?;
    Ok(plain(&id).unwrap_or_else(|| format!("\"{id}\"")))
}

/// Returns a call's arguments as an object. A text that is not an object was cut, or is a mistake of the model; it
/// becomes a member with a name that no tool uses. An object that strict readers refuse is written in the same way,
/// since the upstream would otherwise refuse the whole request.
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
