//! Requests of the Messages API: from received bytes to a checked request, translated to a chat.
//!
//! Unknown members are dropped. Agents send many that only one provider knows, and stop if one is refused.

mod content;
mod passage;
mod schema;
mod tools;

use std::sync::Arc;

use bytes::Bytes;
use raw_json::Members;
use reply::{MessagesReply, Reply};
use shared::{error::ApiError, generation::kept_user};

pub use schema::{CountRequest, MessagesRequest};

use crate::{
    checked::Request,
    draft::{self, AskedEffort, Draft, Limit, MAX_STOPS, json_schema, stop_sequence},
    names::caller,
};
use content::BLOCKS;
use passage::LIMIT;

/// Name for the answer's schema, which this dialect does not name.
const SCHEMA_NAME: &str = r#""answer""#;

/// Parses the body of a request. The error names the first fault and its location.
pub fn parse(body: &Bytes) -> Result<Request, ApiError> {
    let members = Members::of_body(body)?;
    members.require(LIMIT)?;
    read(&members, body)
}

/// Parses the body of a request to count a prompt, which needs no output limit.
pub fn parse_to_count(body: &Bytes) -> Result<Request, ApiError> {
    read(&Members::of_body(body)?, body)
}

fn read(members: &Members<'_, '_>, body: &Bytes) -> Result<Request, ApiError> {
    passage::refuse_stored(members)?;
    let model = members.require("model")?.string()?.into_owned();
    let stream = members.get("stream").map_or(Ok(false), |value| value.boolean())?;
    let limit = Limit::read_lowered(members, LIMIT)?;
    let mut draft = Draft::of(body);
    sampling(members, &mut draft)?;
    let stops = stops(members, &mut draft)?;
    let Reasoning { effort, is_shown: thinking, budget } = reasoning(members, &mut draft)?;
    let dropped_tools = tools::tools(members, &mut draft)?;
    let list = members.require("messages")?;
    let system = system(members, &mut draft)?;
    content::messages(&list, &system, &mut draft)?;
    let passage = passage::of(body, members, &mut draft)?;
    let earlier_calls = std::mem::take(&mut draft.earlier_calls).complete();
    Ok(Request {
        model,
        stream,
        n: 1,
        // The answer gets what the reasoning budget leaves of the limit.
        least_output: budget.map_or(1, |budget| budget.saturating_add(1)),
        limit,
        effort,
        user: caller::user_id(members).and_then(|user| kept_user(&user)),
        reply: Reply::Messages(Arc::new(MessagesReply { thinking, stops, earlier_calls })),
        dropped_tools,
        dropped_members: passage::dropped_of_chat(members),
        others: Vec::new(),
        passage: Some(passage),
        draft,
    })
}

/// Checks and writes the sampling parameters.
fn sampling(members: &Members<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    draft::sampling(members, draft)?;
    if let Some(value) = members.get("top_k")
        && value.integer(0..=i64::MAX)? > 0
    {
        draft.optional(|draft| draft.member("top_k", value.raw()));
    }
    Ok(())
}

/// Checks and writes the stop sequences.
fn stops(members: &Members<'_, '_>, draft: &mut Draft) -> Result<Vec<String>, ApiError> {
    let Some(value) = members.get("stop_sequences") else { return Ok(Vec::new()) };
    let mut stops = Vec::new();
    value.each_if_any(MAX_STOPS, |stop| {
        stop_sequence(&stop)?;
        stops.push(stop.string()?.into_owned());
        Ok(())
    })?;
    if !stops.is_empty() {
        draft.member("stop", value.raw());
    }
    Ok(stops)
}

/// Reasoning that the request asks for.
struct Reasoning {
    effort: Option<AskedEffort>,
    /// Whether the client sees the reasoning.
    is_shown: bool,
    /// Tokens of the limit that reasoning may use.
    budget: Option<u64>,
}

/// Checks the members about thinking, effort and the answer's format, and writes the format.
fn reasoning(members: &Members<'_, '_>, draft: &mut Draft) -> Result<Reasoning, ApiError> {
    let mut read = Reasoning { effort: None, is_shown: false, budget: None };
    if let Some(value) = members.get("thinking") {
        let thinking = value.object()?;
        let kind = thinking.require("type")?.one_of(&["enabled", "adaptive", "between_tools", "disabled"])?;
        read.is_shown = kind != "disabled";
        if !read.is_shown {
            read.effort = Some(AskedEffort::NONE);
        }
        let budget = thinking.get("budget_tokens").filter(|_| kind == "enabled");
        read.budget = budget.map(|value| value.integer(0..=i64::MAX)).transpose()?.map(i64::unsigned_abs);
    }
    let Some(config) = members.get("output_config") else { return Ok(read) };
    let config = config.object()?;
    if let Some(value) = config.get("effort") {
        read.effort = Some(AskedEffort::nearest(&value)?);
        draft.passage.effort(&value)?;
    }
    if let Some(format) = config.get("format") {
        let format = format.object()?;
        format.require("type")?.one_of(&["json_schema"])?;
        draft.shown.preamble();
        draft.name("response_format");
        draft.push("{\"type\":\"json_schema\"");
        draft.name("json_schema");
        json_schema(&format, Some(SCHEMA_NAME), draft)?;
        draft.push("}");
    }
    Ok(read)
}

/// Beginning of a system block, as a JSON string, in which agents tell their vendor whom to bill. It is not part of the
/// prompt and differs in every request, so it would defeat any cache of the text after it.
const BILLING_BLOCK: &str = "\"x-anthropic-billing-header:";

/// Returns the texts of the system prompt, without a billing block at its start.
fn system<'a>(members: &Members<'a, '_>, draft: &mut Draft) -> Result<Vec<&'a str>, ApiError> {
    let mut texts = Vec::new();
    let Some(system) = members.get("system") else { return Ok(texts) };
    let mut may_bill = !system.is_text(BLOCKS)?;
    system.each_text(BLOCKS, content::text_of, |text| {
        if !std::mem::take(&mut may_bill) || !text.starts_with(BILLING_BLOCK) {
            texts.push(text);
        } else {
            // A body that is passed on contains this text too.
            draft.shown.text(text);
        }
    })?;
    Ok(texts)
}

#[cfg(test)]
mod tests;
