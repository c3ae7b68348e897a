use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use shared::money::NanoUsd;

/// A whole response, written by the gateway or by the vendor. A vendor's response may have more members.
pub struct ResponseObject;

shared::schema!(ResponseObject, "Response", response_object_schema);

fn response_object_schema(schemas: &mut SchemaGenerator) -> Schema {
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
            "type": {"type": "string", "description": "`message`, `function_call`, `custom_tool_call`, `reasoning`, or \
                another type that the model's vendor defines."},
        }}},
        "usage": usage,
        "model": {"type": "string"},
        "parallel_tool_calls": {"type": "boolean"},
        "tool_choice": {"type": ["string", "object"]},
        "tools": {"type": "array"},
    });
    let required: Vec<_> = properties.as_object().into_iter().flat_map(|all| all.keys().cloned()).collect();
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
