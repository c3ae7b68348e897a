//! Schema of a request of the Responses API.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;
use shared_catalog::Effort;

use crate::draft::{MAX_TOKENS, MAX_TOOLS, TEMPERATURE, TOP_LOGPROBS, TOP_P};

pub(super) const SUMMARIES: [&str; 3] = ["auto", "concise", "detailed"];

/// A request of the Responses API as clients write it. Members that the schema does not describe are accepted and
/// dropped.
pub struct ResponsesRequest;

shared::schema!(ResponsesRequest, "ResponsesRequest", responses_request_schema);

fn responses_request_schema(_: &mut SchemaGenerator) -> Schema {
    let flag = json!({"type": ["boolean", "null"]});
    let refused = json!({"type": "null", "description": "Nothing is stored, so any other value is refused."});
    json_schema!({
        "type": "object",
        "required": ["model", "input"],
        "properties": {
            "model": {"type": "string"},
            "input": {
                "anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"type": "object"}}],
                "description": "A text, or items: `message`, `function_call`, `function_call_output`, `custom_tool_call`, \
                    `custom_tool_call_output`, `reasoning`, `additional_tools`.",
            },
            "instructions": {"type": ["string", "null"]},
            "stream": flag,
            "max_output_tokens": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_TOKENS},
            "temperature": {"type": ["number", "null"], "minimum": TEMPERATURE.start(), "maximum": TEMPERATURE.end()},
            "top_p": {"type": ["number", "null"], "minimum": TOP_P.start(), "maximum": TOP_P.end()},
            "top_logprobs": {"type": ["integer", "null"], "minimum": TOP_LOGPROBS.start(), "maximum": TOP_LOGPROBS.end()},
            "tools": {
                "type": ["array", "null"], "maxItems": MAX_TOOLS,
                "items": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}},
                "description": "`function`, `custom`, or a `namespace` of these; other tools are dropped, and named in \
                    `x-dropped-tools`.",
            },
            "tool_choice": {"anyOf": [{"enum": ["none", "auto", "required", null]}, {
                "type": "object", "required": ["type"],
                "properties": {"type": {"enum": ["function", "custom", "allowed_tools"]}},
            }]},
            "parallel_tool_calls": flag,
            "text": {"type": ["object", "null"], "properties": {
                "format": {"type": ["object", "null"], "required": ["type"],
                    "properties": {"type": {"enum": ["text", "json_object", "json_schema"]}}},
                "verbosity": {"enum": ["low", "medium", "high", null]},
            }},
            "reasoning": {"type": ["object", "null"], "properties": {
                "effort": {"enum": Effort::WORDS.map(Some).into_iter().chain([None]).collect::<Vec<_>>()},
                "summary": {"enum": SUMMARIES.map(Some).into_iter().chain([None]).collect::<Vec<_>>()},
            }},
            "background": {"enum": [false, null]},
            "previous_response_id": refused,
            "conversation": refused,
            "prompt": refused,
        },
    })
}
