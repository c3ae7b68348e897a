//! Schemas of a message and of its error.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use shared::money::NanoUsd;

pub struct MessageObject;

pub struct MessageErrorSchema;

shared::schema!(MessageErrorSchema, "MessageError", message_error_schema);

fn message_error_schema(_: &mut SchemaGenerator) -> Schema {
    let text = json!({"type": "string"});
    json_schema!({
        "type": "object",
        "required": ["type", "error"],
        "properties": {
            "type": {"const": "error"},
            "error": {"type": "object", "required": ["type", "message"], "properties": {"type": text, "message": text}},
            "request_id": text,
        },
    })
}

shared::schema!(MessageObject, "Message", message_object_schema);

fn message_object_schema(schemas: &mut SchemaGenerator) -> Schema {
    let tokens = json!({"type": "integer", "minimum": 0});
    let counts = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"];
    let mut members: Value = counts.iter().map(|name| ((*name).to_owned(), tokens.clone())).collect();
    members["cost"] = schemas.subschema_for::<NanoUsd>().to_value();
    json_schema!({
        "type": "object",
        "required": ["id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"],
        "properties": {
            "id": {"type": "string", "pattern": "^msg_"},
            "type": {"const": "message"},
            "role": {"const": "assistant"},
            "model": {"type": "string"},
            "content": {"type": "array", "items": {"type": "object", "required": ["type"],
                "properties": {"type": {"type": "string", "description": "`text`, `thinking`, `tool_use`, or another \
                    type that the model's vendor defines."}}}},
            "stop_reason": {"type": ["string", "null"]},
            "stop_sequence": {"type": ["string", "null"]},
            "usage": {"type": "object", "required": counts, "properties": members},
        },
    })
}
