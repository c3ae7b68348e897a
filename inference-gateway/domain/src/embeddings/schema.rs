//! The shapes of a request and of its answer for readers of descriptions.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;
use shared::money::NanoUsd;

use super::{ENCODINGS, MAX_DIMENSIONS, MAX_PROMPTS};

/// A request for embeddings. Undescribed members are accepted and dropped.
pub struct EmbeddingsRequest;

/// The vectors of the prompts.
pub struct EmbeddingsObject;

impl JsonSchema for EmbeddingsRequest {
    fn schema_name() -> Cow<'static, str> {
        "EmbeddingsRequest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let tokens = json!({"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0, "maximum": u32::MAX}});
        let text = json!({"type": "string", "minLength": 1});
        json_schema!({
            "type": "object",
            "required": ["model", "input"],
            "properties": {
                "model": {"type": "string"},
                "input": {"anyOf": [
                    text,
                    tokens,
                    {"type": "array", "minItems": 1, "maxItems": MAX_PROMPTS, "items": {"anyOf": [text, tokens]}},
                ]},
                "encoding_format": {"enum": ENCODINGS.map(Some).into_iter().chain([None]).collect::<Vec<_>>()},
                "dimensions": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_DIMENSIONS},
            },
        })
    }
}

impl JsonSchema for EmbeddingsObject {
    fn schema_name() -> Cow<'static, str> {
        "Embeddings".into()
    }

    fn json_schema(schemas: &mut SchemaGenerator) -> Schema {
        let tokens = json!({"type": "integer", "minimum": 0});
        json_schema!({
            "type": "object",
            "required": ["object", "data", "model", "usage"],
            "properties": {
                "object": {"const": "list"},
                "data": {"type": "array", "items": {"type": "object"}},
                "model": {"type": "string"},
                "usage": {
                    "type": "object",
                    "required": ["prompt_tokens", "total_tokens"],
                    "properties": {
                        "prompt_tokens": tokens,
                        "total_tokens": tokens,
                        "cost": schemas.subschema_for::<NanoUsd>(),
                    },
                },
            },
        })
    }
}
