//! The shapes of a request and of its response for readers of descriptions.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use shared::{catalog::Effort, money::NanoUsd};

use super::SUMMARIES;
use crate::request::{MAX_TOKENS, MAX_TOOLS, TEMPERATURE, TOP_LOGPROBS, TOP_P};

/// A request of the Responses API in the spelling of clients. Undescribed members are accepted and dropped.
pub struct ResponsesRequest;

/// A whole response.
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
        let (text, null_type) = (json!({"type": ["string", "null"]}), json!({"type": "null"}));
        let object = |names: &[&str], member: &Value| {
            let members: serde_json::Map<_, _> =
                names.iter().map(|name| ((*name).to_owned(), member.clone())).collect();
            json!({"type": ["object", "null"], "required": names, "properties": members})
        };
        let tokens = json!({"type": "integer", "minimum": 0});
        let mut usage = object(&["input_tokens", "output_tokens", "total_tokens"], &tokens);
        usage["properties"]["input_tokens_details"] =
            object(&["cached_tokens", "cache_write_tokens"], &tokens);
        usage["properties"]["output_tokens_details"] = object(&["reasoning_tokens"], &tokens);
        usage["properties"]["cost"] = schemas.subschema_for::<NanoUsd>().to_value();
        let mut properties = json!({
            "id": {"type": "string", "pattern": "^resp_[0-9a-f]{32}$"},
            "object": {"const": "response"},
            "created_at": {"type": "integer"},
            "completed_at": {"type": ["integer", "null"]},
            "status": {"enum": ["completed", "incomplete", "failed", "in_progress"]},
            "error": object(&["code", "message"], &text),
            "incomplete_details": object(&["reason"], &text),
            "output": {"type": "array", "items": {"type": "object", "required": ["id", "type", "status"], "properties": {
                "type": {"enum": ["message", "function_call", "custom_tool_call", "reasoning"]},
            }}},
            "usage": usage,
            "background": {"const": false},
            "frequency_penalty": {"const": 0},
            "presence_penalty": {"const": 0},
            "max_tool_calls": null_type,
            "previous_response_id": null_type,
            "service_tier": {"const": "default"},
            "store": {"const": false},
            "truncation": {"const": "disabled"},
            "max_output_tokens": {"type": ["integer", "null"]},
            "metadata": {"type": "object"},
            "model": {"type": "string"},
            "parallel_tool_calls": {"type": "boolean"},
            "reasoning": object(&["effort", "summary"], &text),
            "temperature": {"type": "number"},
            "text": {"type": "object", "required": ["format", "verbosity"]},
            "tool_choice": {"type": ["string", "object"]},
            "tools": {"type": "array"},
            "top_logprobs": {"type": "integer"},
            "top_p": {"type": "number"},
        });
        for name in ["instructions", "prompt_cache_key", "safety_identifier", "user"] {
            properties[name] = text.clone();
        }
        let required: Vec<_> =
            properties.as_object().into_iter().flat_map(|all| all.keys().cloned()).collect();
        json_schema!({"type": "object", "required": required, "properties": properties})
    }
}
