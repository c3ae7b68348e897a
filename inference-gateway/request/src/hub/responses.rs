//! Writes a chat as a request of the Responses API.

use raw_json::Members;
use reply::carried::{CarriedPart, PlacedPart};
use shared::error::ApiError;
use shared_catalog::Effort;

use super::{
    calls,
    chat::{EMPTY, Hub, LEFT_OUT, ToolChoice, member},
};
use crate::{draft::parts_at, names::dropped::DroppedNames};

/// The chat's member for stop sequences. This API has none.
const STOP: &str = "stop";

/// Requests log probabilities, and reasoning that the next request sends back.
const LOGPROBS: &str = r#""message.output_text.logprobs""#;
const ENCRYPTED: &str = r#""reasoning.encrypted_content""#;

/// Schema of a function without parameters.
const NO_PARAMETERS: &str = r#"{"type":"object","properties":{}}"#;

/// Writes the body without its head.
pub(super) fn write(hub: &Hub<'_>, dropped: &mut DroppedNames) -> Result<String, ApiError> {
    hub.refuse_unsaid()?;
    hub.refuse(STOP)?;
    hub.leave_out(&LEFT_OUT, dropped);
    hub.leave_out(&["top_k"], dropped);
    let mut out = hub.begin();
    hub.copy("temperature", &mut out);
    hub.copy("top_p", &mut out);
    let logs = hub.chat.get("logprobs").is_some_and(|value| value.raw() == "true");
    match (logs, reasons(hub)) {
        (true, true) => member("include", &format!("[{LOGPROBS},{ENCRYPTED}]"), &mut out),
        (true, false) => member("include", &format!("[{LOGPROBS}]"), &mut out),
        (false, true) => member("include", &format!("[{ENCRYPTED}]"), &mut out),
        (false, false) => {}
    }
    if logs {
        let most = hub.chat.get("top_logprobs");
        member("top_logprobs", most.as_ref().map_or("0", |most| most.raw()), &mut out);
    }
    reasoning(hub, &mut out);
    tools(hub, &mut out)?;
    text_format(hub, &mut out)?;
    out.push_str(",\"input\":[");
    let mut before = "";
    hub.chat
        .require("messages")?
        .objects(usize::MAX, |message| items(message, &hub.carried(message), &mut before, &mut out))?;
    out.push_str("]}");
    Ok(out)
}

fn reasons(hub: &Hub<'_>) -> bool {
    hub.reasons && hub.effort != Some(Effort::None)
}

/// Writes the reasoning effort, and requests a summary if the client is shown one.
fn reasoning(hub: &Hub<'_>, out: &mut String) {
    let reasons = reasons(hub);
    let summary = if reasons && hub.shows_reasoning() { r#","summary":"auto""# } else { "" };
    let effort = hub.effort.map(|effort| format!(r#","effort":"{}""#, effort.word())).unwrap_or_default();
    let members = effort + summary;
    if !members.is_empty() {
        member("reasoning", &format!("{{{}}}", &members[1..]), out);
    }
}

/// Writes the functions. As in chat, arguments need not match the schema strictly unless the client says so: this API's
/// default would refuse most schemas.
fn tools(hub: &Hub<'_>, out: &mut String) -> Result<(), ApiError> {
    let mut before = ",\"tools\":[";
    hub.each_function(|function| {
        out.push_str(std::mem::replace(&mut before, ","));
        out.push_str("{\"type\":\"function\",\"name\":");
        out.push_str(function.require("name")?.raw());
        if let Some(description) = function.get("description") {
            member("description", description.raw(), out);
        }
        let parameters = function.get("parameters");
        member("parameters", parameters.as_ref().map_or(NO_PARAMETERS, |value| value.raw()), out);
        let strict = function.get("strict");
        member("strict", strict.as_ref().map_or("false", |value| value.raw()), out);
        out.push('}');
        Ok(())
    })?;
    if before == "," {
        out.push(']');
    }
    match ToolChoice::read(hub)? {
        None => {}
        Some(ToolChoice::Mode(mode)) => member("tool_choice", &format!("\"{mode}\""), out),
        Some(ToolChoice::Function(name)) => {
            member("tool_choice", &format!(r#"{{"type":"function","name":{name}}}"#), out);
        }
    }
    hub.copy("parallel_tool_calls", out);
    Ok(())
}

/// Writes the format of the answer's text. This API has the schema next to the type.
fn text_format(hub: &Hub<'_>, out: &mut String) -> Result<(), ApiError> {
    let Some(format) = hub.chat.get("response_format") else { return Ok(()) };
    let format = format.object()?;
    let kind = format.require("type")?;
    out.push_str(",\"text\":{\"format\":{\"type\":");
    out.push_str(kind.raw());
    if let Some(described) = format.get("json_schema") {
        for (name, value) in described.object()?.iter() {
            member(name, value.raw(), out);
        }
    }
    out.push_str("}}");
    Ok(())
}

/// Writes the items of a message: its texts and images, the reasoning and calls of an earlier answer, or a tool's
/// output.
fn items(
    message: &Members<'_, '_>,
    carried: &[PlacedPart],
    before: &mut &'static str,
    out: &mut String,
) -> Result<(), ApiError> {
    let role = message.require("role")?.string()?;
    let mut open = |out: &mut String| out.push_str(std::mem::replace(before, ","));
    if role == "tool" {
        open(out);
        out.push_str("{\"type\":\"function_call_output\",\"call_id\":");
        out.push_str(&calls::id(message, "tool_call_id")?);
        out.push_str(",\"output\":");
        parts(message, "input_text", out)?;
        out.push('}');
        return Ok(());
    }
    let is_answer = role == "assistant";
    reasoning_items(carried, 0, &mut open, out);
    if message.get("content").is_some_and(|content| content.raw() != EMPTY || !is_answer) {
        open(out);
        out.push_str("{\"role\":\"");
        out.push_str(&role);
        out.push_str("\",\"content\":");
        parts(message, if is_answer { "output_text" } else { "input_text" }, out)?;
        out.push('}');
    }
    let Some(calls) = message.get("tool_calls") else { return Ok(()) };
    let mut place = 0;
    calls.objects(usize::MAX, |call| {
        let function = call.require("function")?;
        let function = function.object()?;
        if place > 0 {
            reasoning_items(carried, place, &mut open, out);
        }
        place += 1;
        open(out);
        out.push_str("{\"type\":\"function_call\",\"call_id\":");
        out.push_str(&calls::id(call, "id")?);
        member("name", function.require("name")?.raw(), out);
        member("arguments", function.require("arguments")?.raw(), out);
        out.push('}');
        Ok(())
    })
}

/// Writes the encrypted reasoning that preceded the call at this index in an earlier answer.
fn reasoning_items(carried: &[PlacedPart], place: u64, open: &mut impl FnMut(&mut String), out: &mut String) {
    for part in parts_at(carried, place) {
        match part {
            CarriedPart::Encrypted { id, content } => {
                open(out);
                out.push_str("{\"type\":\"reasoning\"");
                for (name, text) in [("id", id), ("encrypted_content", content)] {
                    if !text.is_empty() {
                        member(name, &serde_json::Value::from(text.as_str()).to_string(), out);
                    }
                }
                out.push_str(",\"summary\":[]}");
            }
            CarriedPart::Thought { .. }
            | CarriedPart::Redacted { .. }
            | CarriedPart::Detail(_)
            | CarriedPart::CallSignature { .. }
            | CarriedPart::TextSignature { .. } => {}
        }
    }
}

/// Writes the content of a message: a text unchanged, and parts under this API's types.
fn parts(message: &Members<'_, '_>, text_type: &str, out: &mut String) -> Result<(), ApiError> {
    let content = message.require("content")?;
    if !content.is_text("an array of content parts")? {
        out.push('[');
        let start = out.len();
        content.objects_if_any(usize::MAX, |part| {
            if out.len() > start {
                out.push(',');
            }
            part_of(part, text_type, out)
        })?;
        out.push(']');
        return Ok(());
    }
    out.push_str(content.raw());
    Ok(())
}

/// Writes a part of content.
fn part_of(part: &Members<'_, '_>, text_type: &str, out: &mut String) -> Result<(), ApiError> {
    if let Some(text) = part.get("text") {
        out.push_str("{\"type\":\"");
        out.push_str(text_type);
        out.push('"');
        member("text", text.raw(), out);
    } else {
        let image = part.require("image_url")?;
        let image = image.object()?;
        out.push_str("{\"type\":\"input_image\"");
        member("image_url", image.require("url")?.raw(), out);
        if let Some(detail) = image.get("detail") {
            member("detail", detail.raw(), out);
        }
    }
    out.push('}');
    Ok(())
}
