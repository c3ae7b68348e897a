//! Requests of the Responses API: from received bytes to a checked request, translated to a chat.
//!
//! Nothing is stored here, so members and items that refer to stored state are refused by name.

mod echo;
mod input;
mod passage;
mod schema;
mod tools;

use std::sync::Arc;

use bytes::Bytes;
use raw_json::Members;
use reply::{Reply, ResponsesReply};
use shared::error::{ApiError, Code};

pub use schema::ResponsesRequest;

use crate::{
    checked::Request,
    draft::{self, AskedEffort, Draft, Limit, TOP_LOGPROBS, json_schema},
    names::caller,
};
use input::NOTHING_STORED;
use passage::LIMIT;
use schema::SUMMARIES;
use tools::Tools;

/// Reasoning mode that a model's prices are for, as a JSON string.
const USUAL_MODE: &str = r#""standard""#;

/// Parses the body of a request. The error names the first fault and its location. `passes` returns whether all answers
/// of a model are passed on.
pub fn parse(body: &Bytes, passes: impl FnOnce(&str) -> bool) -> Result<Request, ApiError> {
    let members = Members::of_body(body)?;
    let model = members.require("model")?.string()?.into_owned();
    refuse_stored(&members)?;
    echo::check_metadata(&members)?;
    let stream = members.get("stream").map_or(Ok(false), |value| value.boolean())?;
    let limit = Limit::read(&members, LIMIT)?;
    let mut draft = Draft::of(body);
    sampling(&members, &mut draft)?;
    let (effort, summary) = reasoning(&members, &mut draft)?;
    text_format(&members, &mut draft)?;
    let input = members.require("input")?;
    let mut tools = Tools::new(&members, &mut draft)?;
    if let Some(list) = members.get("tools") {
        tools.offer(&list, &mut draft)?;
        draft.passage.tools(&list, passage::is_run_by_vendor)?;
    }
    input::additional_tools(&input, &mut tools, &mut draft)?;
    let (names, dropped_tools) = tools.finish(&members, &mut draft)?;
    input::messages(&members, &input, &names, &mut draft)?;
    // A whole answer that is passed on already repeats the request. For a stream, the gateway may have to write the
    // last event, which also repeats the request.
    let echo = if stream || !passes(&model) { echo::echo(&members)? } else { String::new() };
    let passage = passage::of(body, &members, &mut draft)?;
    let earlier_calls = std::mem::take(&mut draft.earlier_calls).complete();
    Ok(Request {
        model,
        stream,
        n: 1,
        limit,
        least_output: 1,
        effort,
        user: caller::user(&members),
        reply: Reply::Responses(Arc::new(ResponsesReply { echo, names, summary, earlier_calls })),
        dropped_tools,
        dropped_members: passage::dropped_of_chat(&members),
        others: Vec::new(),
        passage: Some(passage),
        draft,
    })
}

/// Refuses members that refer to stored state, rather than ignoring them.
fn refuse_stored(members: &Members<'_, '_>) -> Result<(), ApiError> {
    for name in passage::STORED {
        if let Some(value) = members.get(name) {
            return Err(value.error(Code::UnsupportedParameter, NOTHING_STORED));
        }
    }
    match members.get("background") {
        Some(value) if value.boolean()? => Err(value.error(Code::UnsupportedParameter, NOTHING_STORED)),
        Some(_) | None => Ok(()),
    }
}

/// Checks and writes the sampling parameters.
fn sampling(members: &Members<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    draft::sampling(members, draft)?;
    if let Some(value) = members.get("top_logprobs")
        && value.integer(TOP_LOGPROBS)? > 0
    {
        draft.member("logprobs", "true");
        draft.member("top_logprobs", value.raw());
    }
    Ok(())
}

/// Checks the members about reasoning. Returns the requested effort, and whether a summary is requested.
fn reasoning(members: &Members<'_, '_>, draft: &mut Draft) -> Result<(Option<AskedEffort>, bool), ApiError> {
    let Some(reasoning) = members.get("reasoning") else { return Ok((None, false)) };
    let reasoning = reasoning.object()?;
    let word = reasoning.get("effort");
    let effort = word.as_ref().map(AskedEffort::nearest).transpose()?;
    word.map_or(Ok(()), |word| draft.passage.effort(&word))?;
    if let Some(mode) = reasoning.get("mode")
        && mode.raw() != USUAL_MODE
    {
        // Another mode would have another price.
        draft.passage.replace(&mode, USUAL_MODE);
    }
    // The summary's older name is `generate_summary`.
    let summary = reasoning.get("summary").or_else(|| reasoning.get("generate_summary"));
    let summary = summary.map_or(Ok(false), |summary| summary.one_of(&SUMMARIES).map(|_| true))?;
    Ok((effort, summary))
}

/// Checks and writes the requested format of the answer's text.
fn text_format(members: &Members<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    let Some(text) = members.get("text") else { return Ok(()) };
    let text = text.object()?;
    if let Some(verbosity) = text.get("verbosity") {
        verbosity.one_of(&["low", "medium", "high"])?;
    }
    let Some(format) = text.get("format") else { return Ok(()) };
    let format = format.object()?;
    let kind = format.require("type")?.one_of(&["text", "json_object", "json_schema"])?;
    if kind == "text" {
        return Ok(());
    }
    draft.shown.preamble();
    draft.name("response_format");
    draft.push(&format!("{{\"type\":\"{kind}\""));
    if kind == "json_schema" {
        draft.name("json_schema");
        json_schema(&format, None, draft)?;
    }
    draft.push("}");
    Ok(())
}

#[cfg(test)]
mod tests;
