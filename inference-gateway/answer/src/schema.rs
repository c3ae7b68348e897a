//! Schemas of answers, for `/openapi.json`. Other modules write the same members by hand.

mod messages;
mod responses;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value, json};
use shared::{generation::FinishReason, ids::GenerationId, json::RawValue, money::NanoUsd};

pub use messages::{MessageErrorSchema, MessageObject};
pub use responses::ResponseObject;

pub struct CompletionSchema;

/// An event of a streamed answer.
pub struct ChunkSchema;

/// The answer to a request for embeddings.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Embeddings")]
pub struct EmbeddingsObject<'a> {
    #[schemars(extend("const" = "list"))]
    pub(super) object: &'static str,
    /// The vectors as the upstream spelled them.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub(super) data: Option<&'a RawValue>,
    pub(super) model: &'a str,
    pub(super) usage: EmbeddingsUsage,
}

#[derive(JsonSchema, Serialize)]
#[schemars(inline)]
pub(super) struct EmbeddingsUsage {
    pub(super) prompt_tokens: u64,
    pub(super) total_tokens: u64,
    // Absent while unknown, and never null.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required)]
    pub(super) cost: Option<NanoUsd>,
}

shared::schema!(CompletionSchema, "ChatCompletion", completion_schema);

fn completion_schema(schemas: &mut SchemaGenerator) -> Schema {
    let (mut members, usage) = (message_members(), usage(schemas));
    members["required"] = json!(["role", "content", "refusal"]);
    members["properties"]["tool_calls"]["items"]["required"] = json!(["id", "type", "function"]);
    members["properties"]["role"] = json!({"const": "assistant"});
    let finish = FinishReason::ALL.map(FinishReason::as_str);
    json_schema!({
        "type": "object",
        "required": ["id", "object", "created", "model", "choices", "usage"],
        "properties": {
            "id": schemas.subschema_for::<GenerationId>(),
            "object": {"const": "chat.completion"},
            "created": {"type": "integer"},
            "model": {"type": "string"},
            "choices": {"type": "array", "minItems": 1, "items": {
                "type": "object",
                "required": ["index", "message", "logprobs", "finish_reason"],
                "properties": {
                    "index": {"type": "integer"},
                    "message": members,
                    "logprobs": logprobs(),
                    "finish_reason": {"enum": finish},
                },
            }},
            "usage": usage,
        },
    })
}

shared::schema!(ChunkSchema, "ChatCompletionChunk", chunk_schema);

fn chunk_schema(schemas: &mut SchemaGenerator) -> Schema {
    let (mut members, mut usage) = (message_members(), usage(schemas));
    let call = &mut members["properties"]["tool_calls"]["items"];
    call["properties"]["index"] = json!({"type": "integer"});
    call["required"] = json!(["index"]);
    members["properties"]["role"] = json!({"const": "assistant"});
    usage["type"] = json!(["object", "null"]);
    let finish = FinishReason::ALL.map(|reason| Some(reason.as_str()));
    json_schema!({
        "type": "object",
        "required": ["id", "object", "created", "model", "choices"],
        "properties": {
            "id": schemas.subschema_for::<GenerationId>(),
            "object": {"const": "chat.completion.chunk"},
            "created": {"type": "integer"},
            "model": {"type": "string"},
            "choices": {"type": "array", "items": {
                "type": "object",
                "required": ["index", "delta", "logprobs", "finish_reason"],
                "properties": {
                    "index": {"type": "integer"},
                    "delta": members,
                    "logprobs": logprobs(),
                    "finish_reason": {"enum": finish.into_iter().chain([None]).collect::<Vec<_>>()},
                },
            }},
            "usage": usage,
        },
    })
}

/// Returns the schema of the content in a message or a delta.
fn message_members() -> Value {
    json!({
        "type": "object",
        "properties": {
            "content": {"type": ["string", "null"]},
            "refusal": {"type": ["string", "null"]},
            "reasoning_content": {"type": "string"},
            "tool_calls": {"type": "array", "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "type": {"const": "function"},
                    "function": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "arguments": {"type": "string"}},
                    },
                },
            }},
        },
    })
}

fn logprobs() -> Value {
    let token = |more: &[&str], alternatives: Option<Value>| {
        let mut properties = json!({
            "token": {"type": "string"},
            "logprob": {"type": "number"},
            "bytes": {"type": ["array", "null"], "items": {"type": "integer", "minimum": 0, "maximum": 255}},
        });
        if let Some(alternatives) = alternatives {
            properties["top_logprobs"] = json!({"type": "array", "items": alternatives});
        }
        let required = [&["token", "logprob", "bytes"], more].concat();
        json!({"type": "object", "required": required, "properties": properties})
    };
    let tokens = token(&["top_logprobs"], Some(token(&[], None)));
    let tokens = json!({"type": ["array", "null"], "items": tokens});
    json!({
        "type": ["object", "null"],
        "required": ["content", "refusal"],
        "properties": {"content": tokens, "refusal": tokens},
    })
}

fn usage(schemas: &mut SchemaGenerator) -> Value {
    let tokens = json!({"type": "integer", "minimum": 0});
    let details = |always: &str, where_any: &[&str]| {
        let names = where_any.iter().copied().chain([always]);
        let properties: Map<String, Value> = names.map(|name| (name.to_owned(), tokens.clone())).collect();
        json!({"type": "object", "required": [always], "properties": properties})
    };
    json!({
        "type": "object",
        "required": [
            "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details",
        ],
        "properties": {
            "prompt_tokens": tokens,
            "completion_tokens": tokens,
            "total_tokens": tokens,
            "prompt_tokens_details": details("cached_tokens", &["cache_write_tokens", "audio_tokens"]),
            "completion_tokens_details": details("reasoning_tokens", &["audio_tokens"]),
            "cost": schemas.subschema_for::<NanoUsd>(),
        },
    })
}
