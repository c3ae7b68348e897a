use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

/// Maximum number of prompts in one request, as in OpenAI's API.
pub(super) const MAX_PROMPTS: usize = 2048;
/// Maximum number of dimensions that a request may ask for: more than any model has.
pub(super) const MAX_DIMENSIONS: i64 = 65_536;
pub(super) const ENCODINGS: [&str; 2] = ["float", "base64"];

/// A request for embeddings. Members that the schema does not describe are accepted and dropped.
pub struct EmbeddingsRequest;

shared::schema!(EmbeddingsRequest, "EmbeddingsRequest", embeddings_request_schema);

fn embeddings_request_schema(_: &mut SchemaGenerator) -> Schema {
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
