//! Finds the script of a conversation: in the last user message that has one, for the current round of tool calls.

use serde_json::Value;

use super::script::Script;

/// Returns the script of these messages or items, some of which contain a tool's result.
pub(super) fn script_of(items: &[Value], has_result: impl Fn(&Value) -> bool) -> Option<Script> {
    let users = items.iter().enumerate().filter(|(_, item)| item["role"] == "user");
    let (asked, script) =
        users.rev().find_map(|(index, item)| Some((index, script_in(&item["content"])?)))?;
    let results: Vec<bool> = items[asked + 1..].iter().map(has_result).collect();
    Some(script.after_rounds(rounds(&results)))
}

/// Returns the script in a content, which is a string or a list of parts.
fn script_in(content: &Value) -> Option<Script> {
    match content {
        Value::String(text) => Script::in_message(text),
        Value::Array(parts) => parts.iter().find_map(|part| Script::in_message(part["text"].as_str()?)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// Returns the number of rounds of tool calls that have results. Adjacent results count as one round.
fn rounds(results: &[bool]) -> usize {
    let nexts = results.iter().skip(1).chain([&false]);
    results.iter().zip(nexts).filter(|(result, next)| **result && !**next).count()
}
