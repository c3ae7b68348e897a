//! Values of `tools` and `tool_choice` that Anthropic refuses.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    blocks::unknown_tag,
    refusal::{Checked, all_of, invalid, is_plain, no_more},
};

/// Members in `tool_param.py`.
const OF_CUSTOM: [&str; 10] = [
    "type",
    "name",
    "description",
    "input_schema",
    "allowed_callers",
    "cache_control",
    "defer_loading",
    "eager_input_streaming",
    "input_examples",
    "strict",
];

/// Types in `tool_union_param.py` and its beta version, without their dates.
const OF_THE_VENDOR: [&str; 12] = [
    "bash",
    "text_editor",
    "computer",
    "computer_toolset",
    "browser_toolset",
    "memory",
    "web_search",
    "web_fetch",
    "code_execution",
    "tool_search_tool_regex",
    "tool_search_tool_bm25",
    "advisor",
];

/// Checks the tools and the choice among them.
pub(super) fn check(body: &Value) -> Checked {
    let tools = match &body["tools"] {
        Value::Null => &[],
        Value::Array(tools) => tools.as_slice(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            return invalid("tools: Input should be a valid list");
        }
    };
    for (index, tool) in tools.iter().enumerate() {
        one(&format!("tools.{index}"), tool)?;
    }
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    if names.iter().collect::<HashSet<_>>().len() < names.len() {
        return invalid("tools: Tool names must be unique.");
    }
    if !tools.is_empty() && tools.iter().all(|tool| tool["defer_loading"] == true) {
        return invalid("At least one tool must have defer_loading=false. All tools cannot be deferred.");
    }
    choice(&body["tool_choice"], &names, tools.is_empty())
}

fn one(path: &str, tool: &Value) -> Checked {
    match tool["type"].as_str() {
        None if tool.get("type").is_none_or(Value::is_null) => custom(&format!("{path}.custom"), tool),
        Some("custom") => custom(&format!("{path}.custom"), tool),
        Some("mcp_toolset") => Ok(()),
        Some(kind) if OF_THE_VENDOR.contains(&undated(kind)) => Ok(()),
        other => unknown_tag(path, other, &["custom", "bash_20250124", "web_search_20250305"]),
    }
}

/// Returns a type without the date at its end.
fn undated(kind: &str) -> &str {
    match kind.rsplit_once('_') {
        Some((name, date)) if date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => kind,
    }
}

fn custom(path: &str, tool: &Value) -> Checked {
    all_of(path, tool, &["name", "input_schema"])?;
    no_more(path, tool, &OF_CUSTOM)?;
    let name = tool["name"].as_str().unwrap_or_default();
    if !is_plain(name) || name.len() > 128 {
        return invalid(&format!("{path}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"));
    }
    if !tool["description"].is_null() && !tool["description"].is_string() {
        return invalid(&format!("{path}.description: Input should be a valid string"));
    }
    let schema = &tool["input_schema"];
    if !schema.is_object() {
        return invalid(&format!("{path}.input_schema: Input should be a valid dictionary"));
    }
    all_of(&format!("{path}.input_schema"), schema, &["type"])?;
    if schema["type"] != "object" {
        return invalid(&format!("{path}.input_schema.type: Input should be 'object'"));
    }
    if ["oneOf", "allOf", "anyOf"].iter().any(|name| schema.get(name).is_some()) {
        return invalid(&format!(
            "{path}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
        ));
    }
    if tool["strict"] == true { closed(path, schema) } else { Ok(()) }
}

fn choice(choice: &Value, names: &[&str], no_tools: bool) -> Checked {
    if choice.is_null() {
        return Ok(());
    }
    let members: &[&str] = match choice["type"].as_str() {
        Some("auto" | "any") => &["type", "disable_parallel_tool_use"],
        Some("tool") => &["type", "name", "disable_parallel_tool_use"],
        Some("none") => &["type"],
        other => return unknown_tag("tool_choice", other, &["any", "auto", "none", "tool"]),
    };
    let kind = choice["type"].as_str().unwrap_or_default();
    no_more(&format!("tool_choice.{kind}"), choice, members)?;
    if no_tools {
        return invalid("tool_choice may only be specified while providing tools.");
    }
    if kind == "tool" {
        all_of("tool_choice.tool", choice, &["name"])?;
        let name = choice["name"].as_str().unwrap_or_default();
        if !names.contains(&name) {
            return invalid(&format!("Tool '{name}' not found in provided tools"));
        }
    }
    Ok(())
}

/// Refuses a schema that contains an object with unknown members allowed.
pub(super) fn closed(path: &str, schema: &Value) -> Checked {
    if schema["type"] == "object" && schema["additionalProperties"] != false {
        return invalid(&format!(
            "{path}: For 'object' type, 'additionalProperties' must be explicitly set to false"
        ));
    }
    let properties = schema["properties"].as_object().into_iter().flatten().map(|(_, schema)| schema);
    properties.chain(schema.get("items")).try_for_each(|schema| closed(path, schema))
}
