//! The body that an upstream of the Messages API gets.

use bytes::Bytes;
use raw_json::{ANY_NUMBER, Members, Value};
use shared::{
    error::{ApiError, Code},
    json::Kind,
};

use super::tools::is_run_by_vendor;
use crate::{
    draft::Draft,
    names::{caller, dropped::DroppedNames, known},
    passage::{ApiMembers, CutWhen, Left, Passage, PassageNotes},
};

/// Member with the output limit. One above the model's is lowered, since every request must have one.
pub(super) const LIMIT: &str = "max_tokens";

/// Members that refer to state stored by a vendor.
const STORED: [&str; 2] = ["container", "thread"];

/// Members that are translated to chat. Upstreams of other APIs do not get the rest.
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

/// Members of the API as its vendor's SDK declares them, sampling parameters of older models, and the older name of the
/// answer's format.
const MEMBERS: ApiMembers = ApiMembers {
    passed: &[
        "betas",
        "cache_control",
        COMPACTION,
        "context_management",
        "diagnostics",
        "messages",
        "output_config",
        "output_format",
        "stop_sequences",
        "stream",
        "system",
        "temperature",
        "thinking",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
    ],
    left: &[
        ("model", Left::ToHead),
        (LIMIT, Left::ToHead),
        ("metadata", Left::Pseudonym),
        // These change the price, ask other models or servers, or choose which of the operator's customers pays.
        ("service_tier", Left::Out),
        ("speed", Left::Out),
        ("inference_geo", Left::Out),
        ("fallbacks", Left::Out),
        ("fallback_credit_token", Left::Out),
        ("billing_policy", Left::Out),
        ("mcp_servers", Left::Out),
        ("user_profile_id", Left::Out),
        ("workspace_id", Left::Out),
    ],
    refused: &STORED,
    nested: &[
        ("cache_control", &["ttl", "type"]),
        ("context_management", &["edits"]),
        ("diagnostics", &["previous_message_id"]),
        ("output_config", &["effort", "format", "task_budget"]),
        ("thinking", &["block_binding", "budget_tokens", "display", "type"]),
        ("tool_choice", &["disable_parallel_tool_use", "name", "type"]),
    ],
    read: &["messages", "system", "tools"],
    compacts,
};

/// Member that requests a summary of the conversation instead of an answer.
const COMPACTION: &str = "compaction";
/// Type prefix of edits that only remove parts of a conversation.
const CLEARS: &str = "clear_";

/// Returns whether a member requests only a compaction. The vendor writes its summary in addition to the answer, so no
/// limit covers its tokens. Otherwise, notes the compacting edits that it contains.
fn compacts(name: &str, value: &Value<'_, '_>, notes: &mut PassageNotes) -> Result<bool, ApiError> {
    if name == COMPACTION && value.kind() != Kind::Null {
        notes.compacts(value);
        return Ok(true);
    }
    if name != "context_management" {
        return Ok(false);
    }
    if value.kind() != Kind::Object {
        return Ok(true);
    }
    let members = value.object()?;
    let Some(edits) = members.get("edits") else { return Ok(false) };
    let mut clears = Vec::new();
    edits.objects_if_any(ANY_NUMBER, |edit| {
        known::check(edit, &["type"], &[])?;
        clears.push(edit.require("type")?.string()?.starts_with(CLEARS));
        Ok(())
    })?;
    let is_mixed = clears.contains(&true) && clears.contains(&false);
    if is_mixed {
        notes.cut_elements(&edits, &clears, CutWhen::Compaction, &[name.to_owned()])?;
    }
    Ok(!is_mixed && clears.contains(&false))
}

/// Refuses members that refer to stored state, rather than ignoring them.
pub(super) fn refuse_stored(members: &Members<'_, '_>) -> Result<(), ApiError> {
    for name in STORED {
        if let Some(value) = members.get(name) {
            return Err(value.error(Code::UnsupportedParameter, "nothing is stored here"));
        }
    }
    Ok(())
}

/// Makes the body that may be passed on.
pub(super) fn of(body: &Bytes, members: &Members<'_, '_>, draft: &mut Draft) -> Result<Passage, ApiError> {
    let mut notes = std::mem::take(&mut draft.passage);
    if let Some(list) = members.get("tools") {
        notes.tools(&list, is_run_by_vendor)?;
    }
    if let Some(user) = caller::user_id(members) {
        notes.name_caller("metadata", &user);
    }
    notes.finish(body, members, &MEMBERS)
}

/// Lists the members that chat cannot express.
pub(super) fn dropped_of_chat(members: &Members<'_, '_>) -> DroppedNames {
    DroppedNames::but(members, &OF_CHAT)
}
