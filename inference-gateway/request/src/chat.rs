//! A chat request: from received bytes to a checked request.

mod messages;
mod params;
mod schema;
mod tools;

use bytes::Bytes;
use raw_json::Members;
use reply::Reply;
use shared::{
    error::{ApiError, Code},
    json::Kind,
};

pub use schema::ChatRequest;

use crate::{
    checked::Request,
    draft::{AskedEffort, Draft},
    names::{caller, dropped::DroppedNames},
};

/// Members that the gateway parses and, if needed, writes itself. A model's extra parameters cannot have these names.
const READ_HERE: [&str; 15] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "reasoning_effort",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "functions",
    "function_call",
    "audio",
    "modalities",
];

/// Parses the body of a request. The error names the first fault and its location.
pub fn parse(body: &Bytes) -> Result<Request, ApiError> {
    let members = Members::of_body(body)?;
    let model = members.require("model")?.string()?.into_owned();
    refuse_other_dialect(&members)?;
    params::refuse_unsupported(&members)?;
    let (stream, include_usage) = params::stream(&members)?;
    let limit = params::limit(&members)?;
    let n = params::choices(&members)?;
    let effort = members.get("reasoning_effort").map(|value| AskedEffort::exact(&value)).transpose()?;
    let mut draft = Draft::new(body.len());
    params::pass_on(&members, &mut draft)?;
    tools::tools(&members, &mut draft)?;
    tools::response_format(&members, &mut draft)?;
    messages::messages(&members.require("messages")?, &mut draft)?;
    Ok(Request {
        model,
        stream,
        n,
        limit,
        least_output: n,
        effort,
        user: caller::user(&members),
        reply: Reply::Chat { include_usage },
        dropped_tools: DroppedNames::default(),
        dropped_members: DroppedNames::default(),
        others: others(&members, body),
        passage: None,
        draft,
    })
}

/// Refuses a body of the Responses API. The error names the route for such bodies.
fn refuse_other_dialect(members: &Members<'_, '_>) -> Result<(), ApiError> {
    if members.get("messages").is_some() || members.get("input").is_none() {
        return Ok(());
    }
    let message = "Missing required parameter: 'messages'. A body with 'input' is for POST /v1/responses.";
    Err(ApiError::at(Code::MissingRequiredParameter, "messages", message))
}

/// Lists the members that are neither parsed here nor `null`.
fn others(members: &Members<'_, '_>, body: &Bytes) -> Vec<(String, Bytes)> {
    let others = members.iter().filter(|(name, value)| {
        value.kind() != Kind::Null && !READ_HERE.contains(name) && !params::is_passed_on(name)
    });
    others.map(|(name, value)| (name.to_owned(), body.slice_ref(value.raw().as_bytes()))).collect()
}

#[cfg(test)]
mod tests;
