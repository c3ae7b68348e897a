//! Schema of a chat request, with the same bounds as the checks.

use reply::MAX_CHOICES;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use shared_catalog::Effort;

use super::params::{BIAS, PENALTY};
use crate::draft::{
    FORMATS, MAX_NAME, MAX_STOP_CHARS, MAX_STOPS, MAX_TOKENS, MAX_TOOLS, TEMPERATURE, TOP_LOGPROBS, TOP_P,
};

/// A chat request as clients write it. Members that the schema does not describe are accepted and dropped.
pub struct ChatRequest;

shared::schema!(ChatRequest, "ChatRequest", chat_request_schema);

fn chat_request_schema(_: &mut SchemaGenerator) -> Schema {
    let tokens = json!({"type": ["integer", "null"], "minimum": 1, "maximum": MAX_TOKENS});
    let penalty = json!({"type": ["number", "null"], "minimum": PENALTY.start(), "maximum": PENALTY.end()});
    let flag = json!({"type": ["boolean", "null"]});
    json_schema!({
        "type": "object",
        "required": ["model", "messages"],
        "properties": {
            "model": {"type": "string"},
            "messages": {"type": "array", "minItems": 1, "items": message()},
            "stream": flag,
            "stream_options": {
                "type": ["object", "null"],
                "properties": {"include_usage": flag},
                "description": "Only with `stream` set to true.",
            },
            "max_tokens": tokens,
            "max_completion_tokens": tokens,
            "temperature": {"type": ["number", "null"], "minimum": TEMPERATURE.start(), "maximum": TEMPERATURE.end()},
            "top_p": {"type": ["number", "null"], "minimum": TOP_P.start(), "maximum": TOP_P.end()},
            "frequency_penalty": penalty,
            "presence_penalty": penalty,
            "seed": {"type": ["integer", "null"], "minimum": i64::MIN, "maximum": i64::MAX},
            "n": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_CHOICES},
            "logprobs": flag,
            "top_logprobs": {
                "type": ["integer", "null"],
                "minimum": TOP_LOGPROBS.start(),
                "maximum": TOP_LOGPROBS.end(),
                "description": "Only with `logprobs` set to true.",
            },
            "reasoning_effort": {
                "enum": Effort::WORDS.map(Some).into_iter().chain([None]).collect::<Vec<_>>(),
                "description": "A value that the model accepts. The refusal of any other value lists the accepted \
                    values.",
            },
            "stop": {"anyOf": [
                {"type": "null"},
                {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARS},
                {
                    "type": "array", "minItems": 1, "maxItems": MAX_STOPS,
                    "items": {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARS},
                },
            ]},
            "logit_bias": {
                "type": ["object", "null"],
                "propertyNames": {"pattern": "^[0-9]{1,10}$"},
                "additionalProperties": {"type": "number", "minimum": BIAS.start(), "maximum": BIAS.end()},
            },
            "tools": {"type": ["array", "null"], "minItems": 1, "maxItems": MAX_TOOLS, "items": tool()},
            "tool_choice": {"anyOf": [
                {"enum": ["none", "auto", "required", null]},
                named(),
                allowed_tools(),
            ]},
            "parallel_tool_calls": flag,
            "response_format": response_format(),
        },
    })
}

fn message() -> Value {
    let text = content(&[text_part()]);
    let shown = content(&[text_part(), image_part()]);
    let of = |roles: &[&str], required: &[&str], more: Value| {
        let mut properties = json!({"role": {"enum": roles}, "name": {"type": ["string", "null"]}});
        if let (Some(all), Value::Object(more)) = (properties.as_object_mut(), more) {
            all.extend(more);
        }
        json!({"type": "object", "required": required, "properties": properties})
    };
    json!({"anyOf": [
        of(&["system", "developer"], &["role", "content"], json!({"content": text})),
        of(&["user"], &["role", "content"], json!({"content": shown})),
        assistant(of(&["assistant"], &["role"], json!({}))),
        of(&["tool"], &["role", "content", "tool_call_id"], json!({
            "content": text,
            "tool_call_id": {"type": "string", "minLength": 1},
        })),
    ]})
}

/// Returns the schema of content: a text, or a list of parts of these kinds.
fn content(parts: &[Value]) -> Value {
    json!({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"anyOf": parts}}]})
}

/// Returns the schema of an earlier message of the model. Such a message has at least one of these members.
fn assistant(mut message: Value) -> Value {
    let members = [
        ("content", content(&[text_part(), refusal_part()])),
        ("refusal", json!({"type": "string"})),
        ("reasoning_content", json!({"type": "string"})),
        ("tool_calls", json!({"type": "array", "minItems": 1, "items": tool_call()})),
    ];
    let mut present = Vec::new();
    for (name, schema) in members {
        present.push(json!({"required": [name], "properties": {name: {"not": {"type": "null"}}}}));
        message["properties"][name] = json!({"anyOf": [schema, {"type": "null"}]});
    }
    message["anyOf"] = present.into();
    message
}

fn text_part() -> Value {
    json!({
        "type": "object",
        "required": ["type", "text"],
        "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    })
}

fn refusal_part() -> Value {
    json!({
        "type": "object",
        "required": ["type", "refusal"],
        "properties": {"type": {"const": "refusal"}, "refusal": {"type": "string"}},
    })
}

fn image_part() -> Value {
    let (http, data, base64) = (any_case("http"), any_case("data:image/"), any_case(";base64,"));
    let formats = FORMATS.map(any_case).join("|");
    let digit = "[A-Za-z0-9+/]";
    let web = format!(r"^{http}[sS]?://[^\x00-\x20\x7f/?#:][^\x00-\x20\x7f]*$");
    let inside =
        format!("^{data}({formats}){base64}({digit}{{4}})*({digit}{{4}}|{digit}{{3}}=|{digit}{{2}}==)$");
    let url = json!({"type": "string", "anyOf": [{"pattern": web}, {"pattern": inside}]});
    json!({
        "type": "object",
        "required": ["type", "image_url"],
        "properties": {
            "type": {"const": "image_url"},
            "image_url": {
                "type": "object",
                "required": ["url"],
                "properties": {"url": url, "detail": {"enum": ["auto", "low", "high", null]}},
            },
        },
    })
}

/// Returns a pattern for an ASCII text in any case, since patterns of JSON Schema have no flags.
fn any_case(text: &str) -> String {
    let one = |c: char| match c {
        'a'..='z' => format!("[{c}{}]", c.to_ascii_uppercase()),
        other => other.to_string(),
    };
    text.chars().map(one).collect()
}

/// Returns the schema of a choice that names a function.
fn named() -> Value {
    function(&json!({"name": name()}), &["name"])
}

fn allowed_tools() -> Value {
    json!({
        "type": "object",
        "required": ["type", "allowed_tools"],
        "properties": {
            "type": {"const": "allowed_tools"},
            "allowed_tools": {
                "type": "object",
                "required": ["mode", "tools"],
                "properties": {
                    "mode": {"enum": ["auto", "required"]},
                    "tools": {"type": "array", "minItems": 1, "maxItems": MAX_TOOLS, "items": named()},
                },
            },
        },
        "description": "Only the allowed tools are passed to the model.",
    })
}

fn tool_call() -> Value {
    let filled = json!({"type": "string", "minLength": 1});
    let mut call =
        function(&json!({"name": filled, "arguments": {"type": "string"}}), &["name", "arguments"]);
    call["required"] = json!(["id", "type", "function"]);
    call["properties"]["id"] = filled;
    call
}

fn tool() -> Value {
    let described = json!({
        "name": name(),
        "description": {"type": ["string", "null"]},
        "parameters": {"type": ["object", "null"]},
        "strict": {"type": ["boolean", "null"]},
    });
    function(&described, &["name"])
}

fn function(properties: &Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "required": ["type", "function"],
        "properties": {
            "type": {"const": "function"},
            "function": {"type": "object", "required": required, "properties": properties},
        },
    })
}

fn name() -> Value {
    json!({"type": "string", "pattern": format!("^[a-zA-Z0-9_-]{{1,{MAX_NAME}}}$")})
}

fn response_format() -> Value {
    let schema = json!({
        "type": "object",
        "required": ["name", "schema"],
        "properties": {
            "name": name(),
            "description": {"type": ["string", "null"]},
            "schema": {"type": "object"},
            "strict": {"type": ["boolean", "null"]},
        },
    });
    json!({"anyOf": [
        {"type": "null"},
        {"type": "object", "required": ["type"], "properties": {"type": {"enum": ["text", "json_object"]}}},
        {
            "type": "object",
            "required": ["type", "json_schema"],
            "properties": {"type": {"const": "json_schema"}, "json_schema": schema},
        },
    ]})
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema as _;

    use super::*;
    use crate::chat::{READ_HERE, params::PASSED_ON};

    #[test]
    fn every_parameter_that_is_read_is_described_and_no_other() {
        let schema = ChatRequest::json_schema(&mut SchemaGenerator::default()).to_value();
        let described = schema["properties"].as_object().unwrap();
        // These members are refused, whatever their value is.
        let refused = ["functions", "function_call", "audio", "modalities"];
        let read = READ_HERE.iter().copied().filter(|name| !refused.contains(name));
        let read: std::collections::BTreeSet<&str> = read.chain(PASSED_ON.map(|(name, _)| name)).collect();
        assert_eq!(described.keys().map(String::as_str).collect::<std::collections::BTreeSet<_>>(), read);
    }
}
