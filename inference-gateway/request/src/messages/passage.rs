//! The body that an upstream of the Messages API gets.

use bytes::Bytes;
use raw_json::Members;
use shared::error::{ApiError, Code};

use super::tools::is_run_by_vendor;
use crate::{
    draft::Draft,
    names::{caller, dropped::DroppedNames},
    passage::{Left, Passage},
};

/// Member with the limit of output. It is lowered to the model's own, since every request must have one.
pub(super) const LIMIT: &str = "max_tokens";

/// Members that refer to what a vendor stored of earlier requests.
const STORED: [&str; 2] = ["container", "thread"];

/// Members that are written as a chat. Upstreams of other APIs do not get the rest.
const OF_CHAT: [&str; 14] = [
    "model",
    "max_tokens",
    "messages",
    "system",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "betas",
];

/// Members that a passed body leaves out: those of the head, those that name the caller, and those that cost money
/// which no usage shows or which other prices bill.
const LEFT: [(&str, Left); 10] = [
    ("model", Left::ToHead),
    (LIMIT, Left::ToHead),
    ("metadata", Left::Pseudonym),
    ("service_tier", Left::Out),
    ("speed", Left::Out),
    ("inference_geo", Left::Out),
    ("fallbacks", Left::Out),
    ("fallback_credit_token", Left::Out),
    ("billing_policy", Left::Out),
    ("mcp_servers", Left::Out),
];

/// Refuses members that refer to stored state, rather than ignoring them.
pub(super) fn refuse_stored(members: &Members<'_, '_>) -> Result<(), ApiError> {
    for name in STORED {
        if let Some(value) = members.get(name) {
            return Err(value.error(Code::UnsupportedParameter, "nothing is stored here"));
        }
    }
    Ok(())
}

/// Makes the body to be passed on.
pub(super) fn of(body: &Bytes, members: &Members<'_, '_>, draft: &mut Draft) -> Result<Passage, ApiError> {
    let mut notes = std::mem::take(&mut draft.passage);
    if let Some(list) = members.get("tools") {
        notes.tools(&list, is_run_by_vendor)?;
    }
    if let Some(user) = caller::user_id(members) {
        notes.name_caller("metadata", &user);
    }
    Ok(notes.finish(body, members, &LEFT))
}

/// Lists the names of members that a chat cannot have.
pub(super) fn dropped_of_chat(members: &Members<'_, '_>) -> DroppedNames {
    DroppedNames::but(members, &OF_CHAT)
}
