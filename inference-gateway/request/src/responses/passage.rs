//! The body that an upstream of the Responses API gets.

use bytes::Bytes;
use raw_json::Members;
use shared::error::ApiError;

use crate::{
    draft::Draft,
    names::dropped::DroppedNames,
    passage::{Left, Passage},
};

/// Name of the limit of output.
pub(super) const LIMIT: &str = "max_output_tokens";

/// Texts with which a caller names its own caches or users.
const CALLERS_TEXTS: [&str; 3] = ["prompt_cache_key", "safety_identifier", "user"];

/// Members that are written as a chat. Upstreams of other APIs do not get the rest.
const OF_CHAT: [&str; 14] = [
    "model",
    "input",
    "instructions",
    "stream",
    LIMIT,
    "temperature",
    "top_p",
    "top_logprobs",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
    "background",
];

/// Members that a passed body leaves out: those of the head, those that name the caller, and those that other prices
/// bill.
const LEFT: [(&str, Left); 8] = [
    ("model", Left::ToHead),
    (LIMIT, Left::ToHead),
    ("store", Left::ToHead),
    (CALLERS_TEXTS[0], Left::Pseudonym),
    (CALLERS_TEXTS[1], Left::Pseudonym),
    (CALLERS_TEXTS[2], Left::Pseudonym),
    ("service_tier", Left::Out),
    ("metadata", Left::Out),
];

/// Types of tools that clients run themselves.
const RUN_BY_CLIENTS: [&str; 5] = ["function", "custom", "namespace", "local_shell", "apply_patch"];

/// Returns the type of a tool that the vendor runs, since it costs money that no usage shows.
pub(super) fn is_run_by_vendor(tool: &Members<'_, '_>) -> Result<Option<String>, ApiError> {
    let kind = tool.require("type")?.string()?.into_owned();
    let says = |object: &str, name: &str, word: &str| {
        let value = tool.get(object);
        let inner = value.as_ref().and_then(|value| value.object().ok());
        let text = match &inner {
            Some(members) => members.get(name).and_then(|value| value.string().ok().map(|t| t == word)),
            None => value.as_ref().and_then(|value| value.string().ok().map(|t| t == word)),
        };
        text == Some(true)
    };
    let is_run_by_client = match &*kind {
        // A shell or a search may run at the client or at the vendor.
        "shell" => says("environment", "type", "local"),
        "tool_search" => says("execution", "", "client"),
        kind => RUN_BY_CLIENTS.contains(&kind),
    };
    Ok((!is_run_by_client).then_some(kind))
}

/// Makes the body to be passed on.
pub(super) fn of(body: &Bytes, members: &Members<'_, '_>, draft: &mut Draft) -> Passage {
    let mut notes = std::mem::take(&mut draft.passage);
    for name in CALLERS_TEXTS {
        if let Some(text) = members.get(name).and_then(|value| value.string().ok()) {
            notes.name_caller(name, &text);
        }
    }
    notes.finish(body, members, &LEFT)
}

/// Lists the names of members that a chat cannot have.
pub(super) fn dropped_of_chat(members: &Members<'_, '_>) -> DroppedNames {
    DroppedNames::but(members, &OF_CHAT)
}
