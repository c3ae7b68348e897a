//! Content blocks that Anthropic refuses.

use serde_json::Value;

use super::refusal::{Checked, all_of, invalid, is_plain, no_more};
use crate::upstream::native::signature;

/// Types of blocks for the vendor's own tools, which occur only in its answers.
const OF_THE_VENDOR: [&str; 12] = [
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "container_upload",
    "mcp_tool_use",
    "mcp_tool_result",
    "compaction",
    "fallback",
];

/// Types that every message may have.
const OF_MESSAGES: [&str; 8] = [
    "text",
    "image",
    "document",
    "search_result",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "tool_result",
];

/// Types that a tool's result may have.
const OF_RESULTS: [&str; 6] =
    ["text", "image", "search_result", "document", "tool_reference", "browser_state"];

/// Checks a block of a message with this role.
pub(super) fn check(path: &str, role: &str, block: &Value) -> Checked {
    let Some(kind) = block["type"].as_str() else {
        return invalid(&format!("{path}.type: Field required"));
    };
    let misplaced = match role {
        "user" => matches!(kind, "thinking" | "redacted_thinking" | "tool_use"),
        "assistant" => matches!(kind, "tool_result" | "image" | "document"),
        _ => kind != "text" && !kind.starts_with("tool_"),
    };
    if misplaced {
        let owner = if role == "assistant" { "user" } else { "assistant" };
        return invalid(&format!("{path}: `{kind}` blocks can only be in `{owner}` messages"));
    }
    match kind {
        "text" => text(path, "messages", block),
        "image" => image(path, block),
        "document" => members(path, block, kind, &["source"], &["title", "context", "citations"]),
        "search_result" => members(path, block, kind, &["source", "title", "content"], &["citations"]),
        "thinking" => thinking(path, block),
        "redacted_thinking" => {
            all_of(&format!("{path}.redacted_thinking"), block, &["data"])?;
            invalid(&format!("{path}: Invalid `data` in `redacted_thinking` block"))
        }
        "tool_use" => tool_use(path, block),
        "tool_result" => tool_result(path, block),
        other if OF_THE_VENDOR.contains(&other) => Ok(()),
        other => unknown_tag(path, Some(other), &OF_MESSAGES),
    }
}

/// Checks a text block in this part of the request.
pub(super) fn text(path: &str, part: &str, block: &Value) -> Checked {
    let Some(text) = block["text"].as_str() else {
        return invalid(&format!("{path}.text.text: Field required"));
    };
    no_more(&format!("{path}.text"), block, &["type", "text", "citations", "cache_control"])?;
    if text.is_empty() && !block["cache_control"].is_null() {
        return invalid(&format!("{path}: cache_control cannot be set for empty text blocks"));
    }
    if text.is_empty() {
        return invalid(&format!("{part}: text content blocks must be non-empty"));
    }
    if text.trim().is_empty() {
        return invalid(&format!("{part}: text content blocks must contain non-whitespace text"));
    }
    Ok(())
}

/// Refuses any type other than the known ones.
pub(super) fn unknown_tag(path: &str, kind: Option<&str>, known: &[&str]) -> Checked {
    let (kind, known) = (kind.unwrap_or_default(), known.join("', '"));
    invalid(&format!(
        "{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags: '{known}'"
    ))
}

/// Checks the members of a block that may be a cache breakpoint.
fn members(path: &str, block: &Value, kind: &str, needed: &[&str], more: &[&str]) -> Checked {
    let path = format!("{path}.{kind}");
    all_of(&path, block, needed)?;
    no_more(&path, block, &[needed, more, &["type", "cache_control"]].concat())
}

fn image(path: &str, block: &Value) -> Checked {
    members(path, block, "image", &["source"], &["transformations"])?;
    let (source, path) = (&block["source"], format!("{path}.image.source"));
    match source["type"].as_str() {
        Some("base64") => {
            let path = format!("{path}.base64");
            all_of(&path, source, &["media_type", "data"])?;
            no_more(&path, source, &["type", "media_type", "data"])?;
            let known = ["image/jpeg", "image/png", "image/gif", "image/webp"];
            if known.iter().any(|known| source["media_type"] == *known) {
                return Ok(());
            }
            invalid(&format!(
                "{path}.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
            ))
        }
        Some("url") => all_of(&format!("{path}.url"), source, &["url"]),
        Some("file") => all_of(&format!("{path}.file"), source, &["file_id"]),
        other => unknown_tag(&path, other, &["base64", "url", "file"]),
    }
}

/// Checks that the thinking block came from this upstream.
fn thinking(path: &str, block: &Value) -> Checked {
    let inner = format!("{path}.thinking");
    all_of(&inner, block, &["thinking", "signature"])?;
    no_more(&inner, block, &["type", "thinking", "signature"])?;
    let signature = block["signature"].as_str().unwrap_or_default();
    let Some(tokens) = signature::thinking_tokens(signature) else {
        return invalid(&format!("{path}: Invalid `signature` in `thinking` block"));
    };
    // An answer that omits its thinking still contains its signature.
    let text = block["thinking"].as_str().unwrap_or_default();
    if text.is_empty() || text == crate::upstream::script::text(tokens) {
        return Ok(());
    }
    invalid(&format!(
        "{path}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response."
    ))
}

fn tool_use(path: &str, block: &Value) -> Checked {
    members(path, block, "tool_use", &["id", "name", "input"], &["caller", "toolset_name"])?;
    if !is_plain(block["id"].as_str().unwrap_or_default()) {
        return invalid(&format!("{path}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"));
    }
    let name = block["name"].as_str().unwrap_or_default();
    if !is_plain(name) || name.len() > 200 {
        return invalid(&format!(
            "{path}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$'"
        ));
    }
    if !block["input"].is_object() {
        return invalid(&format!("{path}.tool_use.input: Input should be a valid dictionary"));
    }
    Ok(())
}

fn tool_result(path: &str, block: &Value) -> Checked {
    members(path, block, "tool_result", &["tool_use_id"], &["content", "is_error", "toolset_name"])?;
    if !is_plain(block["tool_use_id"].as_str().unwrap_or_default()) {
        return invalid(&format!(
            "{path}.tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        ));
    }
    let inner = match &block["content"] {
        Value::Null | Value::String(_) => return Ok(()),
        Value::Array(inner) => inner,
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return invalid(&format!(
                "{path}.tool_result.content: Input should be a valid string or a valid list"
            ));
        }
    };
    (0..).zip(inner).try_for_each(|(index, part): (usize, _)| {
        let path = format!("{path}.tool_result.content.{index}");
        match part["type"].as_str() {
            Some("text") => text(&path, "messages", part),
            Some("image") => image(&path, part),
            Some(kind) if OF_RESULTS.contains(&kind) => Ok(()),
            other => unknown_tag(&path, other, &OF_RESULTS),
        }
    })
}
