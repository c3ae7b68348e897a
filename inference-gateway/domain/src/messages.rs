//! A request of the Messages API: from received bytes to a checked request, translated to a chat.
//!
//! Unknown members are dropped: agents send many that only one provider knows, and stop where one is refused.

mod content;
mod schema;
mod tools;

use std::sync::Arc;

use bytes::Bytes;
use shared::error::ApiError;

pub use schema::{CountRequest, MessageErrorSchema, MessageObject, MessagesRequest};

use crate::{
    answer::{MessagesReply, Reply},
    request::{
        self, ANY_NUMBER, AskedEffort, Draft, Limit, MAX_STOPS, Members, Request, SystemTexts, Value,
        json_schema, stop_sequence,
    },
};

/// Name of a list of blocks in errors.
const BLOCKS: &str = "an array of content blocks";

/// Name of the limit of output, which is lowered to the model's own: every request has to name one.
const LIMIT: &str = "max_tokens";

/// Name of a schema for the answer, which this dialect leaves unnamed.
const SCHEMA_NAME: &str = r#""answer""#;

/// Parses the body of a request. The error names the first fault and the fault's place.
pub fn parse(body: &Bytes) -> Result<Request, ApiError> {
    let members = Members::of_body(body)?;
    members.require(LIMIT)?;
    read(&members, body.len())
}

/// Parses the body of a request whose prompt is only to be counted: nothing limits an answer.
pub fn parse_to_count(body: &Bytes) -> Result<Request, ApiError> {
    read(&Members::of_body(body)?, body.len())
}

fn read(members: &Members<'_, '_>, length: usize) -> Result<Request, ApiError> {
    let model = members.require("model")?.string()?.into_owned();
    let stream = members.get("stream").map_or(Ok(false), |value| value.boolean())?;
    let limit = Limit::read(members, LIMIT)?.map(|limit| Limit { is_lowered: true, ..limit });
    let mut draft = Draft::new(length);
    sampling(members, &mut draft)?;
    let stops = stops(members, &mut draft)?;
    let (effort, thinking) = reasoning(members, &mut draft)?;
    let dropped_tools = tools::tools(members, &mut draft)?;
    let list = members.require("messages")?;
    let system = system(members, &list)?;
    content::messages(&list, &system, &mut draft)?;
    Ok(Request {
        model,
        stream,
        n: 1,
        limit,
        effort,
        reply: Reply::Messages(Arc::new(MessagesReply { thinking, stops })),
        dropped_tools,
        others: Vec::new(),
        draft,
    })
}

/// Checks and writes the parameters of sampling.
fn sampling(members: &Members<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    request::sampling(members, draft)?;
    if let Some(value) = members.get("top_k")
        && value.integer(0..=i64::MAX)? > 0
    {
        draft.optional(|draft| draft.member("top_k", value.raw()));
    }
    Ok(())
}

/// Checks and writes the sequences that end the answer.
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

/// Checks the members about thinking, effort and shape of the answer, and writes the shape. Returns the effort that is
/// asked for, and whether thinking is shown.
fn reasoning(members: &Members<'_, '_>, draft: &mut Draft) -> Result<(Option<AskedEffort>, bool), ApiError> {
    let (mut effort, mut thinking) = (None, false);
    if let Some(value) = members.get("thinking") {
        let kind = value.object()?.require("type")?.one_of(&["enabled", "adaptive", "disabled"])?;
        thinking = kind != "disabled";
        if !thinking {
            effort = Some(AskedEffort::NONE);
        }
    }
    if let Some(config) = members.get("output_config") {
        let config = config.object()?;
        if let Some(value) = config.get("effort") {
            effort = Some(AskedEffort::nearest(&value)?);
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
    }
    Ok((effort, thinking))
}

/// Beginning of a system block by which agents tell their vendor whom to bill, a JSON string. It is no prompt: it differs
/// with every request, so that a cache behind it would find nothing.
const BILLING_BLOCK: &str = "\"x-anthropic-billing-header:";

/// The texts of the system prompt, without a billing block at its head, and of all system messages.
fn system<'a>(members: &Members<'a, '_>, list: &Value<'a, '_>) -> Result<SystemTexts<'a>, ApiError> {
    let mut texts = SystemTexts::default();
    if let Some(system) = members.get("system") {
        let mut may_bill = !system.is_text(BLOCKS)?;
        system.each_text(BLOCKS, content::text_of, |text| {
            if !std::mem::take(&mut may_bill) || !text.starts_with(BILLING_BLOCK) {
                texts.add(text);
            }
        })?;
    }
    list.objects(ANY_NUMBER, |message| {
        if message.require("role")?.string()? == "system" {
            message.require("content")?.each_text(BLOCKS, content::text_of, |text| texts.add(text))?;
        }
        Ok(())
    })?;
    Ok(texts)
}

#[cfg(test)]
mod tests;
