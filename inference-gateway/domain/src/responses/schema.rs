//! The shapes of a request and of its response for readers of descriptions.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use shared::money::NanoUsd;
use shared_catalog::Effort;

use super::SUMMARIES;
use crate::request::{MAX_TOKENS, MAX_TOOLS, TEMPERATURE, TOP_LOGPROBS, TOP_P};

/// A request of the Responses API in the spelling of clients. Undescribed members are accepted and dropped.
pub struct ResponsesRequest;

/// A whole response: as the gateway writes it, or as the model's vendor did. It has the vendor's other members too.
pub struct ResponseObject;

impl JsonSchema for ResponsesRequest {
    fn schema_name() -> Cow<'static, str> {
        "ResponsesRequest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let flag = json!({"type": ["boolean", "null"]});
        let refused = json!({"type": "null", "description": "Nothing is stored: another value is refused."});
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
                    "description": "`function`, `custom`, or `namespace` of both; others are dropped, and named in `x-dropped-tools`.",
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
}

impl JsonSchema for ResponseObject {
    fn schema_name() -> Cow<'static, str> {
        "Response".into()
    }

    fn json_schema(schemas: &mut SchemaGenerator) -> Schema {
        let text = json!({"type": ["string", "null"]});
        let object = |names: &[&str], member: &Value| {
            let members: serde_json::Map<_, _> =
                names.iter().map(|name| ((*name).to_owned(), member.clone())).collect();
            json!({"type": ["object", "null"], "required": names, "properties": members})
        };
        let tokens = json!({"type": "integer", "minimum": 0});
        let mut usage = object(&["input_tokens", "output_tokens", "total_tokens"], &tokens);
        usage["properties"]["input_tokens_details"] = object(&["cached_tokens"], &tokens);
        usage["properties"]["output_tokens_details"] = object(&["reasoning_tokens"], &tokens);
        usage["properties"]["cost"] = schemas.subschema_for::<NanoUsd>().to_value();
        let mut properties = json!({
            "id": {"type": "string", "pattern": "^resp_"},
            "object": {"const": "response"},
            "created_at": {"type": "number"},
            "status": {"enum": ["completed", "incomplete", "failed", "in_progress"]},
            "error": object(&["code", "message"], &text),
            "incomplete_details": object(&["reason"], &text),
            "output": {"type": "array", "items": {"type": "object", "required": ["type"], "properties": {
                "type": {"type": "string", "description": "`message`, `function_call`, `custom_tool_call`, `reasoning`, or what \
                    the model's vendor has beside these."},
            }}},
            "usage": usage,
            "model": {"type": "string"},
            "parallel_tool_calls": {"type": "boolean"},
            "tool_choice": {"type": ["string", "object"]},
            "tools": {"type": "array"},
        });
        let required: Vec<_> =
            properties.as_object().into_iter().flat_map(|all| all.keys().cloned()).collect();
        for (name, member) in [
            ("completed_at", json!({"type": ["number", "null"]})),
            ("store", json!({"const": false})),
            ("max_output_tokens", json!({"type": ["integer", "null"]})),
            ("reasoning", json!({"type": ["object", "null"]})),
            ("text", json!({"type": "object"})),
            ("instructions", text),
        ] {
            properties[name] = member;
        }
        json_schema!({"type": "object", "required": required, "properties": properties})
    }
}
