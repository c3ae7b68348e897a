//! Refuses messages that llama.cpp's server refuses, in its own words and with the status of a server error.

use serde_json::{Value, json};

use super::request::Asked;
use crate::upstream::{faults::fault::TEMPLATE_RAISES, script::Script};

/// Status of the refusals.
pub(crate) const STATUS: u16 = 500;

/// Returns the body of the refusal; `None` for messages that the model accepts.
pub(crate) fn refusal(asked: &Asked<'_>, script: &Script) -> Option<String> {
    if !script.style.strict_template && !script.takes_no_images {
        return None;
    }
    let messages: Vec<Value> = serde_json::from_str(asked.messages.get()).ok()?;
    let has_image = || {
        let parts = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
        parts.into_iter().any(|part| part["type"] == "image_url")
    };
    let has_bad_arguments = || {
        let calls = messages.iter().filter_map(|message| message["tool_calls"].as_array()).flatten();
        let mut arguments = calls.filter_map(|call| call["function"]["arguments"].as_str());
        arguments.any(|arguments| serde_json::from_str::<Value>(arguments).is_err())
    };
    let words = if script.takes_no_images && has_image() {
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
    } else if script.style.strict_template && has_bad_arguments() {
        "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse error at line 1, column 10: syntax error while parsing value - invalid string: missing closing quote; last read: '\"ca'"
    } else if script.style.strict_template
        && messages.iter().skip(1).any(|message| message["role"] == "system")
    {
        TEMPLATE_RAISES
    } else {
        return None;
    };
    Some(json!({"error": {"code": STATUS, "message": words, "type": "server_error"}}).to_string())
}
