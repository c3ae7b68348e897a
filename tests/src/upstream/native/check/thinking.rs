//! Values of `thinking` that Anthropic refuses, and what it refuses in combination with thinking.

use serde_json::Value;

use super::{
    blocks::unknown_tag,
    refusal::{Checked, Purpose, all_of, invalid, no_more},
};

/// Minimum budget for thinking.
const LEAST_BUDGET: u64 = 1024;

/// Page of the documentation that several messages refer to.
const DOCS: &str =
    "Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking";

/// Returns whether the request asks for thinking.
pub(super) fn is_on(body: &Value) -> bool {
    body["thinking"]["type"] == "enabled" || body["thinking"]["type"] == "adaptive"
}

/// Checks how the request asks to think.
pub(super) fn check(body: &Value, purpose: Purpose, beta: &str) -> Checked {
    let thinking = &body["thinking"];
    if thinking.is_null() {
        return Ok(());
    }
    let more: &[&str] = match thinking["type"].as_str() {
        Some("enabled") => &["type", "budget_tokens", "display", "block_binding"],
        Some("adaptive") => &["type", "display", "block_binding"],
        Some("disabled" | "between_tools") => &["type"],
        other => {
            return unknown_tag("thinking", other, &["adaptive", "between_tools", "disabled", "enabled"]);
        }
    };
    let path = format!("thinking.{}", thinking["type"].as_str().unwrap_or_default());
    no_more(&path, thinking, more)?;
    if thinking["type"] == "enabled" {
        all_of(&path, thinking, &["budget_tokens"])?;
        budget(body, purpose, beta)?;
    }
    let display = &thinking["display"];
    if !display.is_null() && display != "summarized" && display != "omitted" && display != "updates" {
        return invalid(&format!("{path}.display: Input should be 'summarized' or 'omitted'"));
    }
    if is_on(body) { beside(body) } else { Ok(()) }
}

fn budget(body: &Value, purpose: Purpose, beta: &str) -> Checked {
    let budget = body["thinking"]["budget_tokens"].as_u64().unwrap_or_default();
    if budget < LEAST_BUDGET {
        return invalid(&format!(
            "thinking.enabled.budget_tokens: Input should be greater than or equal to {LEAST_BUDGET}"
        ));
    }
    // Between tool calls, the budget applies to the whole turn.
    let interleaved = beta.contains("interleaved-thinking") && !body["tools"].is_null();
    let most = body["max_tokens"].as_u64().unwrap_or_default();
    if purpose == Purpose::Generate && !interleaved && most <= budget {
        return invalid(&format!(
            "`max_tokens` must be greater than `thinking.budget_tokens`. {DOCS}#max-tokens-and-context-window-size"
        ));
    }
    Ok(())
}

/// Refuses what must not be combined with thinking.
fn beside(body: &Value) -> Checked {
    if body["temperature"].as_f64().is_some_and(|temperature| temperature < 1.0) {
        return invalid(&format!(
            "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode. {DOCS}"
        ));
    }
    if !body["top_k"].is_null() {
        return invalid(&format!(
            "`top_k` must be unset when thinking is enabled or in adaptive mode. {DOCS}"
        ));
    }
    if body["top_p"].as_f64().is_some_and(|top_p| top_p < 0.95) {
        return invalid(&format!(
            "`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled or in adaptive mode. {DOCS}"
        ));
    }
    let forced = body["tool_choice"]["type"] == "any" || body["tool_choice"]["type"] == "tool";
    if forced && body["thinking"]["type"] == "enabled" {
        return invalid("Thinking may not be enabled when tool_choice forces tool use.");
    }
    Ok(())
}
