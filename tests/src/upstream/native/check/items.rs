//! Items that OpenAI refuses in a Responses request.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    openai::{at_most, need, of_type, one_of, only, refused},
    refusal::Checked,
};
use crate::upstream::native::{error::ApiError, signature};

/// Types in `response_input_item_param.py` that are not checked further.
const OTHERS: [&str; 25] = [
    "file_search_call",
    "computer_call",
    "computer_call_output",
    "web_search_call",
    "tool_search_call",
    "tool_search_output",
    "additional_tools",
    "configuration_update",
    "compaction",
    "compaction_trigger",
    "image_generation_call",
    "code_interpreter_call",
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "program",
    "program_output",
    "message",
];

/// A call and its output: their types, their name in error messages, the prefix of the call's id, and the member with
/// its input.
struct CallKind {
    call: &'static str,
    output: &'static str,
    name: &'static str,
    prefix: &'static str,
    input: &'static str,
}

const CALLS: [CallKind; 2] = [
    CallKind {
        call: "function_call",
        output: "function_call_output",
        name: "function call",
        prefix: "fc",
        input: "arguments",
    },
    CallKind {
        call: "custom_tool_call",
        output: "custom_tool_call_output",
        name: "custom tool call",
        prefix: "ctc",
        input: "input",
    },
];

/// Checks the input.
pub(super) fn check(body: &Value) -> Checked {
    let items = match &body["input"] {
        Value::Array(items) => items,
        other => return of_type("input", other, "a string"),
    };
    let mut ids = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("input[{index}]");
        one(&path, item, items.get(index + 1), body["store"] == false)?;
        if let Some(id) = item["id"].as_str().filter(|id| !ids.insert(*id)) {
            let message = format!(
                "Duplicate item found with id {id}. Remove duplicate items from your input and try again."
            );
            return refused("invalid_value", "input", &message);
        }
    }
    CALLS.iter().try_for_each(|kind| pairs(items, kind))
}

fn one(path: &str, item: &Value, next: Option<&Value>, stores_nothing: bool) -> Checked {
    let kind = item["type"].as_str();
    if let Some(kind) = CALLS.iter().find(|known| kind == Some(known.call)) {
        return call(path, item, kind);
    }
    if CALLS.iter().any(|known| kind == Some(known.output)) {
        return output(path, item);
    }
    match kind {
        None if item["role"].is_null() && item["id"].is_string() => Err(not_found(item, stores_nothing)),
        None | Some("message") => message(path, item),
        Some("reasoning") => reasoning(path, item, next, stores_nothing),
        Some("item_reference") => Err(not_found(item, stores_nothing)),
        Some(_) => one_of(path, &item["type"], &OTHERS),
    }
}

fn message(path: &str, item: &Value) -> Checked {
    need(path, item, &["role"])?;
    one_of(&format!("{path}.role"), &item["role"], &["assistant", "system", "developer", "user"])?;
    only(path, item, &["type", "role", "content", "id", "status", "phase"])?;
    need(path, item, &["content"])?;
    id(path, item, "msg")?;
    let content = format!("{path}.content");
    match &item["content"] {
        Value::String(_) => Ok(()),
        Value::Array(parts) => parts.iter().enumerate().try_for_each(|(index, part)| {
            let path = format!("{content}[{index}]");
            let known: &[&str] = if item["role"] == "assistant" {
                &["output_text", "refusal"]
            } else {
                &["input_text", "input_image", "input_file"]
            };
            need(&path, part, &["type"])?;
            one_of(&path, &part["type"], known)?;
            self::part(&path, part)
        }),
        other => {
            let found = if other.is_null() { "null" } else { "another type" };
            let message = format!(
                "Invalid type for '{content}': expected one of an array of objects or string, but got {found} instead."
            );
            refused("invalid_type", &content, &message)
        }
    }
}

fn part(path: &str, part: &Value) -> Checked {
    let (needed, known): (&[&str], &[&str]) = match part["type"].as_str() {
        Some("input_text") => (&["text"], &["type", "text", "prompt_cache_breakpoint"]),
        Some("output_text") => (&["text"], &["type", "text", "annotations", "logprobs"]),
        Some("refusal") => (&["refusal"], &["type", "refusal"]),
        Some("input_image") => (&[], &["type", "detail", "image_url", "file_id", "prompt_cache_breakpoint"]),
        _ => return Ok(()),
    };
    need(path, part, needed)?;
    only(path, part, known)?;
    for name in needed {
        of_type(&format!("{path}.{name}"), &part[*name], "a string")?;
    }
    of_type(&format!("{path}.image_url"), &part["image_url"], "a string")?;
    one_of(&format!("{path}.detail"), &part["detail"], &["low", "high", "auto", "original"])?;
    let url = part["image_url"].as_str().unwrap_or("https:");
    if !url.starts_with("https:") && !url.starts_with("http:") && !url.starts_with("data:") {
        let param = format!("{path}.image_url");
        let message =
            format!("Invalid '{param}'. Expected a valid URL, but got a value with an invalid format.");
        return refused("invalid_value", &param, &message);
    }
    Ok(())
}

fn call(path: &str, item: &Value, kind: &CallKind) -> Checked {
    need(path, item, &["call_id", "name", kind.input])?;
    only(
        path,
        item,
        &["type", "id", "call_id", "name", kind.input, "status", "namespace", "async", "caller"],
    )?;
    of_type(&format!("{path}.{}", kind.input), &item[kind.input], "a string")?;
    at_most(&format!("{path}.name"), &item["name"], 128)?;
    call_id(path, item)?;
    id(path, item, kind.prefix)
}

fn output(path: &str, item: &Value) -> Checked {
    need(path, item, &["call_id", "output"])?;
    only(path, item, &["type", "id", "call_id", "output", "status", "name", "namespace", "caller"])?;
    call_id(path, item)?;
    match &item["output"] {
        Value::Array(parts) => parts.iter().enumerate().try_for_each(|(index, part)| {
            let path = format!("{path}.output[{index}]");
            need(&path, part, &["type"])?;
            one_of(&path, &part["type"], &["input_text", "input_image", "input_file"])?;
            self::part(&path, part)
        }),
        Value::Null => need(&format!("{path}.output"), &Value::Null, &["output"]),
        other => of_type(&format!("{path}.output"), other, "a string"),
    }
}

fn call_id(path: &str, item: &Value) -> Checked {
    let param = format!("{path}.call_id");
    of_type(&param, &item["call_id"], "a string")?;
    at_most(&param, &item["call_id"], 64)?;
    if item["call_id"].as_str().is_none_or(str::is_empty) {
        let message = format!(
            "Invalid '{param}': empty string. Expected a string with minimum length 1, but got an empty string instead."
        );
        return refused("empty_string", &param, &message);
    }
    Ok(())
}

/// Checks a reasoning item, which must come from this upstream.
fn reasoning(path: &str, item: &Value, next: Option<&Value>, stores_nothing: bool) -> Checked {
    need(path, item, &["id", "summary"])?;
    only(path, item, &["type", "id", "summary", "content", "encrypted_content", "status"])?;
    id(path, item, "rs")?;
    let shown = item["id"].as_str().unwrap_or_default();
    let Some(content) = item["encrypted_content"].as_str() else {
        return Err(not_found(item, stores_nothing));
    };
    if signature::reasoning_tokens(content).is_none() {
        let message = format!(
            "The encrypted content for item {shown} could not be verified. Reason: Encrypted content could not be decrypted or parsed."
        );
        return refused("invalid_encrypted_content", path, &message);
    }
    let follows = next.is_some_and(|next| {
        let kind = next["type"].as_str().unwrap_or("message");
        next["role"] == "assistant" || !(kind == "message" || kind.ends_with("_output"))
    });
    if follows {
        return Ok(());
    }
    let message =
        format!("Item '{shown}' of type 'reasoning' was provided without its required following item.");
    refused("invalid_value", "input", &message)
}

/// Refuses an id whose prefix differs from the prefix for its type of item.
fn id(path: &str, item: &Value, prefix: &str) -> Checked {
    let param = format!("{path}.id");
    of_type(&param, &item["id"], "a string")?;
    match item["id"].as_str() {
        Some(id) if !id.starts_with(prefix) => {
            let message = format!("Invalid '{param}': '{id}'. Expected an ID that begins with '{prefix}'.");
            refused("invalid_value", &param, &message)
        }
        Some(_) => at_most(&param, &item["id"], 64),
        None => Ok(()),
    }
}

fn not_found(item: &Value, stores_nothing: bool) -> ApiError {
    let id = item["id"].as_str().unwrap_or_default();
    let why = " Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input.";
    let why = if stores_nothing { why } else { "" };
    ApiError {
        status: 404,
        ..ApiError::invalid(&format!("Item with id '{id}' not found.{why}"), Some("input"))
    }
}

/// Refuses calls that no output follows, and outputs that no call precedes.
fn pairs(items: &[Value], kind: &CallKind) -> Checked {
    let of = |items: &[Value], wanted: &str, id: &Value| {
        items.iter().any(|item| item["type"] == wanted && item["call_id"] == *id)
    };
    for (index, item) in items.iter().enumerate() {
        let (id, shown) = (&item["call_id"], item["call_id"].as_str().unwrap_or_default());
        if item["type"] == kind.call && !of(&items[index..], kind.output, id) {
            let message = format!("No tool output found for {} {shown}.", kind.name);
            return Err(ApiError::invalid(&message, Some("input")));
        }
        if item["type"] == kind.output && !of(&items[..index], kind.call, id) {
            let message = format!("No tool call found for {} output with call_id {shown}.", kind.name);
            return Err(ApiError::invalid(&message, Some("input")));
        }
    }
    Ok(())
}
