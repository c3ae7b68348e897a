//! The name that a caller gives its user. It is kept with the bill.

use std::borrow::Cow;

use raw_json::Members;
use shared::generation::kept_user;

/// Members of the OpenAI APIs that name the user. If a request has both, the first of this list is used.
const USER: [&str; 2] = ["user", "safety_identifier"];

/// Reads the user named in a body of the OpenAI APIs, in the form kept with bills. Only a text counts.
pub(crate) fn user(members: &Members<'_, '_>) -> Option<String> {
    USER.iter().find_map(|name| kept_user(&members.get(name)?.string().ok()?))
}

/// Reads the user that a body of the Messages API names.
pub(crate) fn user_id<'a>(members: &Members<'a, '_>) -> Option<Cow<'a, str>> {
    members.get("metadata").and_then(|metadata| metadata.object().ok()?.get("user_id")?.string().ok())
}
