//! Finds the script of a conversation. It is in the last user message that contains one, and may have a part for the
//! present round of tool calls.

use serde_json::Value;

use super::script::Script;

/// Returns the script in these messages or items. Some of them may contain the result of a tool.
pub(super) fn script_of(items: &[Value], has_result: impl Fn(&Value) -> bool) -> Option<Script> {
    let users = items.iter().enumerate().filter(|(_, item)| item["role"] == "user");
    let (asked, script) =
        users.rev().find_map(|(index, item)| Some((index, script_in(&item["content"])?)))?;
    let results: Vec<bool> = items[asked + 1..].iter().map(has_result).collect();
    Some(script.after_rounds(rounds(&results)))
}

/// Returns the script in a message's content, which is a string or a list of parts.
fn script_in(content: &Value) -> Option<Script> {
    match content {
        Value::String(text) => Script::in_message(text),
        Value::Array(parts) => parts.iter().find_map(|part| Script::in_message(part["text"].as_str()?)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// Returns how many rounds of tool calls have results. Results that follow each other belong to the same round.
fn rounds(results: &[bool]) -> usize {
    let nexts = results.iter().skip(1).chain([&false]);
    results.iter().zip(nexts).filter(|(result, next)| **result && !**next).count()
}
