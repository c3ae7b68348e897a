//! The body that an upstream of the Responses API gets.

use bytes::Bytes;
use raw_json::{ANY_NUMBER, Members};
use shared::error::ApiError;

use crate::{
    draft::Draft,
    names::{dropped::DroppedNames, known::check_tool},
    passage::{ApiMembers, Left, Passage},
};

pub(super) const LIMIT: &str = "max_output_tokens";

/// Texts that name the caller's caches or users.
const CALLERS_TEXTS: [&str; 3] = ["prompt_cache_key", "safety_identifier", "user"];

/// Members that are translated to chat. Upstreams of other APIs do not get the rest.
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

/// Members of the API as its vendor's SDK declares them, and `client_metadata`, which agents send.
const MEMBERS: ApiMembers = ApiMembers {
    passed: &[
        "access_programs",
        "background",
        "client_metadata",
        "context_management",
        "image",
        "include",
        "input",
        "instructions",
        "max_tool_calls",
        "parallel_tool_calls",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
    ],
    left: &[
        ("model", Left::ToHead),
        (LIMIT, Left::ToHead),
        ("store", Left::ToHead),
        (CALLERS_TEXTS[0], Left::Pseudonym),
        (CALLERS_TEXTS[1], Left::Pseudonym),
        (CALLERS_TEXTS[2], Left::Pseudonym),
        // Another tier has another price, and moderation runs another model.
        ("service_tier", Left::Out),
        ("moderation", Left::Out),
        ("metadata", Left::Out),
    ],
    refused: &STORED,
    nested: &[
        ("access_programs", &["cyber"]),
        ("image", &["context_compression"]),
        ("prompt_cache_options", &["comparison_response_id", "mode", "prewarm", "ttl"]),
        ("reasoning", &["context", "effort", "generate_summary", "mode", "summary"]),
        ("stream_options", &["include_obfuscation"]),
        ("text", &["format", "verbosity"]),
        ("tool_choice", &["mode", "name", "namespace", "server_label", "tools", "type"]),
    ],
    read: &["input", "tools"],
    // This member requests only compaction, and no limit covers its tokens.
    compacts: |name, _, _| Ok(name == "context_management"),
};

/// Members that refer to state stored by a vendor.
pub(super) const STORED: [&str; 3] = ["previous_response_id", "conversation", "prompt"];

/// Types of tools that clients run themselves.
const RUN_BY_CLIENTS: [&str; 4] = ["function", "custom", "local_shell", "apply_patch"];
/// Types of tools that a namespace may contain.
const IN_NAMESPACES: [&str; 2] = ["function", "custom"];

/// Returns the type of a tool that the vendor runs, alone or in a namespace. It costs money that the usage does not
/// show.
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
        "namespace" => return run_in_namespace(tool),
        // No other tool contains tools.
        _ if tool.get("tools").is_some() => false,
        kind => RUN_BY_CLIENTS.contains(&kind),
    };
    Ok((!is_run_by_client).then_some(kind))
}

/// Returns the type of a namespace's first tool that no client runs.
fn run_in_namespace(namespace: &Members<'_, '_>) -> Result<Option<String>, ApiError> {
    let mut found = None;
    namespace.require("tools")?.objects_if_any(ANY_NUMBER, |tool| {
        check_tool(tool)?;
        let kind = tool.require("type")?.string()?;
        if found.is_none() && !IN_NAMESPACES.contains(&&*kind) {
            found = Some(kind.into_owned());
        }
        Ok(())
    })?;
    Ok(found)
}

/// Makes the body that may be passed on.
pub(super) fn of(body: &Bytes, members: &Members<'_, '_>, draft: &mut Draft) -> Result<Passage, ApiError> {
    let mut notes = std::mem::take(&mut draft.passage);
    for name in CALLERS_TEXTS {
        if let Some(text) = members.get(name).and_then(|value| value.string().ok()) {
            notes.name_caller(name, &text);
        }
    }
    notes.finish(body, members, &MEMBERS)
}

/// Lists the members that chat cannot express.
pub(super) fn dropped_of_chat(members: &Members<'_, '_>) -> DroppedNames {
    DroppedNames::but(members, &OF_CHAT)
}
