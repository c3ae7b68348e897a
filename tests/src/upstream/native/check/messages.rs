//! Messages requests that Anthropic refuses.

use serde_json::Value;

use super::{
    blocks, cache_marks, pairing,
    refusal::{Checked, Purpose, all_of, invalid, no_more},
    thinking, tools,
};
use crate::upstream::{native::error::ApiError, prompts::prompt::Prompt};

/// Efforts in `output_config_param.py`.
const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

/// Checks a request; `beta` is the value of the header `anthropic-beta`.
pub(super) fn check(prompt: &Prompt, purpose: Purpose, beta: &str) -> Checked {
    let body = &prompt.body;
    all_of("", body, &["model", "messages"])?;
    if purpose == Purpose::Generate {
        all_of("", body, &["max_tokens"])?;
        generation(body)?;
    }
    if body["model"].as_str().is_none_or(str::is_empty) {
        return invalid("model: String should have at least 1 character");
    }
    thinking::check(body, purpose, beta)?;
    system(&body["system"])?;
    tools::check(body)?;
    output_config(&body["output_config"])?;
    conversation(body)?;
    cache_marks::check(body, !beta.is_empty())
}

/// Checks the members that only a generation has.
fn generation(body: &Value) -> Checked {
    match body["max_tokens"].as_u64() {
        None => return invalid("max_tokens: Input should be a valid integer"),
        Some(0) if body["stream"] == true => {
            return invalid("max_tokens: Input should be greater than or equal to 1");
        }
        Some(_) => {}
    }
    for name in ["temperature", "top_p"] {
        in_unit_interval(name, &body[name])?;
    }
    let metadata = &body["metadata"];
    no_more("metadata", metadata, &["user_id"])?;
    if metadata["user_id"].as_str().is_some_and(|user| user.chars().count() > 512) {
        return invalid("metadata.user_id: String should have at most 512 characters");
    }
    let tier = &body["service_tier"];
    if !tier.is_null() && tier != "auto" && tier != "standard_only" {
        return invalid("service_tier: Input should be 'auto' or 'standard_only'");
    }
    let mut stops = body["stop_sequences"].as_array().into_iter().flatten();
    if stops.any(|stop| stop.as_str().is_none_or(|stop| stop.trim().is_empty())) {
        return invalid("stop_sequences: each stop sequence must contain non-whitespace");
    }
    Ok(())
}

fn in_unit_interval(name: &str, value: &Value) -> Checked {
    match value.as_f64() {
        None if value.is_null() => Ok(()),
        None => invalid(&format!("{name}: Input should be a valid number")),
        Some(number) if number > 1.0 => invalid(&format!("{name}: Input should be less than or equal to 1")),
        Some(number) if number < 0.0 => {
            invalid(&format!("{name}: Input should be greater than or equal to 0"))
        }
        Some(_) => Ok(()),
    }
}

fn system(system: &Value) -> Checked {
    match system {
        Value::Null | Value::String(_) => Ok(()),
        Value::Array(parts) => (0..).zip(parts).try_for_each(|(index, part): (usize, _)| {
            let path = format!("system.{index}");
            match part["type"].as_str() {
                Some("text") => blocks::text(&path, "system", part),
                kind => blocks::unknown_tag(&path, kind, &["text"]),
            }
        }),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            invalid("system: Input should be a valid string or a valid list")
        }
    }
}

fn output_config(config: &Value) -> Checked {
    if config.is_null() {
        return Ok(());
    }
    no_more("output_config", config, &["effort", "format", "task_budget"])?;
    let (effort, format) = (&config["effort"], &config["format"]);
    if !effort.is_null() && !EFFORTS.iter().any(|known| effort == known) {
        return invalid("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'");
    }
    if !format.is_null() {
        no_more("output_config.format", format, &["type", "schema"])?;
        all_of("output_config.format", format, &["type", "schema"])?;
        tools::closed("output_config.format.schema", &format["schema"])?;
    }
    Ok(())
}

/// Checks each message, and the order of the messages.
fn conversation(body: &Value) -> Checked {
    let Some(messages) = body["messages"].as_array() else {
        return invalid("messages: Input should be a valid list");
    };
    if messages.is_empty() {
        return invalid("messages: at least one message is required");
    }
    for (index, message) in messages.iter().enumerate() {
        one_message(index, message, index + 1 == messages.len())?;
    }
    if messages[0]["role"] != "user" {
        return invalid("messages: first message must use the \"user\" role");
    }
    let ends_with_assistant = messages.last().is_some_and(|last| last["role"] == "assistant");
    if ends_with_assistant && thinking::is_on(body) {
        return invalid(
            "This model does not support assistant message prefill. The conversation must end with a user message.",
        );
    }
    pairing::check(body, messages)
}

fn one_message(index: usize, message: &Value, last: bool) -> Checked {
    let path = format!("messages.{index}");
    all_of(&path, message, &["role", "content"])?;
    let role = match message["role"].as_str() {
        Some(role @ ("user" | "assistant")) => role,
        Some("system") if index > 0 => "system",
        other => return Err(unexpected_role(other)),
    };
    let beside: &[&str] = if role == "system" {
        &["role", "content", "clear_at", "output_config"]
    } else {
        &["role", "content"]
    };
    no_more(&path, message, beside)?;
    let may_be_empty = last && role == "assistant";
    let empty = format!(
        "{path}: all messages must have non-empty content except for the optional final assistant message"
    );
    match &message["content"] {
        Value::String(text) if text.is_empty() && !may_be_empty => invalid(&empty),
        Value::Array(blocks) if blocks.is_empty() && !may_be_empty => invalid(&empty),
        Value::String(text) if !text.is_empty() && text.trim().is_empty() => {
            invalid("messages: text content blocks must contain non-whitespace text")
        }
        Value::String(text) if may_be_empty && text.ends_with(char::is_whitespace) => {
            invalid("messages: final assistant content cannot end with trailing whitespace")
        }
        Value::String(_) => Ok(()),
        Value::Array(blocks) => (0..).zip(blocks).try_for_each(|(at, block): (usize, _)| {
            blocks::check(&format!("{path}.content.{at}"), role, block)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            invalid(&format!("{path}.content: Input should be a valid string or a valid list"))
        }
    }
}

fn unexpected_role(role: Option<&str>) -> ApiError {
    let role = role.unwrap_or_default();
    ApiError::invalid(
        &format!(
            "messages: Unexpected role \"{role}\". The Messages API accepts a top-level `system` parameter, not \"system\" as an input message role."
        ),
        None,
    )
}
