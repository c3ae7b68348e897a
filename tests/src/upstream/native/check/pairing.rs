//! Message orders that Anthropic refuses: tool calls, their results, and the thinking before them.

use std::collections::HashSet;

use serde_json::Value;

use super::refusal::{Checked, invalid};

/// Consecutive messages with the same role, which the vendor reads as one.
struct Turn<'a> {
    role: &'a str,
    /// Index of the turn's first message.
    index: usize,
    /// The turn's blocks. A plain text has none.
    blocks: Vec<&'a Value>,
    /// Location of each block, as error messages give it.
    places: Vec<String>,
    /// Whether the turn begins with text.
    starts_with_text: bool,
}

/// Checks the calls and results of all messages.
pub(super) fn check(body: &Value, messages: &[Value]) -> Checked {
    let turns = turns(messages);
    let mut known = HashSet::new();
    for (at, turn) in turns.iter().enumerate() {
        let calls = ids(turn, "tool_use", "id");
        if let Some(twice) = calls.iter().find(|id| !known.insert(**id)) {
            return invalid(&format!("messages.{}: `tool_use` ids must be unique: {twice}", turn.index));
        }
        let before = at.checked_sub(1).map(|before| ids(&turns[before], "tool_use", "id"));
        results(turn, &before.unwrap_or_default())?;
        if !calls.is_empty() {
            answered(turn, turns.get(at + 1), &calls)?;
        }
    }
    thinking_first(body, &turns)
}

fn turns(messages: &[Value]) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if turns.last().is_none_or(|turn| turn.role != role) {
            turns.push(Turn { role, index, blocks: Vec::new(), places: Vec::new(), starts_with_text: false });
        }
        let Some(turn) = turns.last_mut() else { continue };
        turn.starts_with_text |= turn.blocks.is_empty() && message["content"].is_string();
        for (at, block) in message["content"].as_array().into_iter().flatten().enumerate() {
            turn.blocks.push(block);
            turn.places.push(format!("messages.{index}.content.{at}"));
        }
    }
    turns
}

/// Returns the ids in the blocks of this type.
fn ids<'a>(turn: &Turn<'a>, kind: &str, member: &str) -> Vec<&'a str> {
    let blocks = turn.blocks.iter().filter(|block| block["type"] == kind);
    blocks.filter_map(|block| block[member].as_str()).collect()
}

/// Refuses results of calls that are not in the previous turn, and two results of the same call.
fn results(turn: &Turn<'_>, asked: &[&str]) -> Checked {
    let mut seen = HashSet::new();
    let results = turn.blocks.iter().zip(&turn.places).filter(|(block, _)| block["type"] == "tool_result");
    for (block, place) in results {
        let id = block["tool_use_id"].as_str().unwrap_or_default();
        if !asked.contains(&id) {
            return invalid(&format!(
                "{place}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            ));
        }
        if !seen.insert(id) {
            return invalid(&format!(
                "{place}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"
            ));
        }
    }
    Ok(())
}

/// Refuses calls that the next turn does not answer at its beginning.
fn answered(turn: &Turn<'_>, next: Option<&Turn<'_>>, calls: &[&str]) -> Checked {
    let first: Vec<&str> = match next {
        Some(next) if !next.starts_with_text => {
            let results = next.blocks.iter().take_while(|block| block["type"] == "tool_result");
            results.filter_map(|block| block["tool_use_id"].as_str()).collect()
        }
        Some(_) | None => Vec::new(),
    };
    let left: Vec<&str> = calls.iter().copied().filter(|call| !first.contains(call)).collect();
    if left.is_empty() {
        return Ok(());
    }
    invalid(&format!(
        "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        turn.index,
        left.join(", ")
    ))
}

/// If thinking has a budget, refuses results of tools that were called without thinking.
fn thinking_first(body: &Value, turns: &[Turn<'_>]) -> Checked {
    let [.., assistant, user] = turns else { return Ok(()) };
    let goes_on = user.blocks.iter().any(|block| block["type"] == "tool_result");
    if body["thinking"]["type"] != "enabled" || !goes_on {
        return Ok(());
    }
    let first = if assistant.starts_with_text { Some("text") } else { assistant.blocks[0]["type"].as_str() };
    match first {
        Some("thinking" | "redacted_thinking") => Ok(()),
        other => invalid(&format!(
            "messages.{}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this requirement, disable `thinking`. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking",
            assistant.index,
            other.unwrap_or_default()
        )),
    }
}
