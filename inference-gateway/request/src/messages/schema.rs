//! Schemas of the requests of the Messages API.

use schemars::{Schema, json_schema};
use serde_json::json;
use shared_catalog::Effort;

use crate::draft::{MAX_STOP_CHARS, MAX_STOPS, MAX_TOKENS, MAX_TOOLS, TEMPERATURE, TOP_P};

/// A request of the Messages API as clients write it. Members that the schema does not describe are accepted and
/// dropped.
pub struct MessagesRequest;

/// A request to count a prompt's tokens: the members that the prompt depends on.
pub struct CountRequest;

shared::schema!(MessagesRequest, "MessagesRequest", |_| request(&["model", "max_tokens", "messages"]));

shared::schema!(CountRequest, "CountTokensRequest", |_| request(&["model", "messages"]));

fn request(required: &[&str]) -> Schema {
    let content = json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {
        "type": "object", "required": ["type"], "properties": {"type": {"type": "string"}},
    }}]});
    json_schema!({
        "type": "object",
        "required": required,
        "properties": {
            "model": {"type": "string"},
            "max_tokens": {"type": "integer", "minimum": 1, "maximum": MAX_TOKENS},
            "messages": {"type": "array", "minItems": 1, "items": {
                "type": "object",
                "required": ["role", "content"],
                "properties": {"role": {"enum": ["user", "assistant", "system"]}, "content": content},
            }},
            "system": {"anyOf": [{"type": "null"}, content]},
            "stop_sequences": {"type": ["array", "null"], "maxItems": MAX_STOPS,
                "items": {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARS}},
            "stream": {"type": ["boolean", "null"]},
            "temperature": {"type": ["number", "null"], "minimum": TEMPERATURE.start(), "maximum": TEMPERATURE.end()},
            "top_p": {"type": ["number", "null"], "minimum": TOP_P.start(), "maximum": TOP_P.end()},
            "top_k": {"type": ["integer", "null"], "minimum": 0},
            "tools": {
                "type": ["array", "null"], "maxItems": MAX_TOOLS,
                "items": {"type": "object", "properties": {"name": {"type": "string"}, "input_schema": {"type": "object"}}},
                "description": "Tools that run on a provider's servers are dropped, and named in `x-dropped-tools`.",
            },
            "tool_choice": {"type": ["object", "null"], "required": ["type"],
                "properties": {"type": {"enum": ["auto", "any", "tool", "none"]}}},
            "thinking": {"type": ["object", "null"], "required": ["type"],
                "properties": {"type": {"enum": ["enabled", "adaptive", "disabled"]}}},
            "output_config": {"type": ["object", "null"], "properties": {
                "effort": {"enum": Effort::WORDS.map(Some).into_iter().chain([None]).collect::<Vec<_>>()},
                "format": {"type": ["object", "null"], "required": ["type", "schema"],
                    "properties": {"type": {"const": "json_schema"}, "schema": {"type": "object"}}},
            }},
        },
    })
}
