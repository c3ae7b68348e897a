//! Forced JSON comes to an end within its tokens, however long the model would have gone on.

use serde_json::{Map, Value, json};

use crate::support::{ask, post, question, router};

/// So many tokens are enough for the least answer to each of the schemas here.
const ENOUGH: usize = 60;

fn schemas() -> Vec<Value> {
    let object = |properties: Value| {
        let required: Vec<String> = properties.as_object().unwrap().keys().cloned().collect();
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    };
    vec![
        object(json!({"story": {"type": "string"}})),
        object(json!({"title": {"type": "string", "minLength": 12}, "kind": {"enum": ["tale", "poem", 3]}})),
        object(json!({"lines": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}})),
        object(
            json!({"numbers": {"type": "array", "items": {"type": "number", "minimum": 1}, "minItems": 2}}),
        ),
        object(
            json!({"author": object(json!({"name": {"type": "string"}, "age": {"type": "integer", "maximum": 99}}))}),
        ),
        json!({"type": "object", "properties": {"story": {"type": "string"}, "long": {"type": "boolean"}}, "required": ["long"]}),
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
    ]
}

/// Whether a value follows a schema, as far as these schemas go.
fn fits(value: &Value, schema: &Value) -> bool {
    let bound = |name: &str| schema[name].as_f64();
    let typed = match value {
        Value::Null => false,
        Value::Bool(_) => schema["type"] == "boolean",
        Value::Number(number) => {
            let number = number.as_f64().unwrap();
            let is_typed = schema["type"] == "number" || schema["type"] == "integer" && number.fract() == 0.0;
            is_typed
                && bound("minimum").is_none_or(|least| number >= least)
                && bound("maximum").is_none_or(|most| number <= most)
        }
        Value::String(text) => {
            let length = text.chars().count();
            schema["type"] == "string"
                && schema["minLength"].as_u64().is_none_or(|least| length as u64 >= least)
        }
        Value::Array(items) => {
            let enough = schema["minItems"].as_u64().is_none_or(|least| items.len() as u64 >= least);
            schema["type"] == "array" && enough && items.iter().all(|item| fits(item, &schema["items"]))
        }
        Value::Object(fields) => schema["type"] == "object" && fits_object(fields, schema),
    };
    schema["enum"].as_array().map_or(typed, |values| values.contains(value))
}

fn fits_object(fields: &Map<String, Value>, schema: &Value) -> bool {
    let required = schema["required"].as_array().into_iter().flatten();
    let others = &schema["additionalProperties"];
    let mut follow = fields.iter().map(|(name, value)| match schema["properties"].get(name) {
        Some(property) => fits(value, property),
        None => others.is_object() && fits(value, others),
    });
    required.into_iter().all(|name| fields.contains_key(name.as_str().unwrap())) && follow.all(|it| it)
}

fn call(schema: &Value) -> Value {
    let tool = json!({"type": "function", "function": {"name": "tell", "parameters": schema}});
    json!({"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "tell"}}})
}

fn format(schema: &Value) -> Value {
    json!({"response_format": {"type": "json_schema", "json_schema": {"name": "story", "schema": schema}}})
}

fn with(mut body: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("the fields are an object") };
    body.as_object_mut().unwrap().extend(more);
    body
}

/// The JSON of an answer: the arguments of its one call, or its text.
fn written(answer: &Value) -> Option<Value> {
    let message = &answer["choices"][0]["message"];
    let text = match &message["tool_calls"] {
        Value::Null => message["content"].as_str(),
        calls => calls[0]["function"]["arguments"].as_str(),
    };
    serde_json::from_str(text.unwrap_or_default()).ok()
}

#[tokio::test]
async fn with_enough_tokens_the_json_is_whole_and_fits_and_with_fewer_it_is_cut() {
    let router = router();
    for schema in schemas() {
        for (form, whole) in [(call(&schema), "tool_calls"), (format(&schema), "stop")] {
            let mut valid = Vec::new();
            for max_tokens in 1..=ENOUGH {
                let body = with(form.clone(), json!({"max_tokens": max_tokens}));
                let answer = ask(&router, &question("Tell me a story.", body)).await;
                let value = written(&answer);
                if value.is_some() {
                    valid.push(max_tokens);
                }
                assert!(value.is_none_or(|value| fits(&value, &schema)), "{schema}: {answer}");
                let reason = answer["choices"][0]["finish_reason"].as_str().unwrap();
                assert!(valid.contains(&max_tokens) && reason == whole || reason == "length", "{answer}");
                assert!(answer["usage"]["completion_tokens"].as_u64().unwrap() <= max_tokens as u64);
            }
            assert!(valid.len() > ENOUGH / 4, "{schema}");
            assert!(valid.is_sorted_by(|one, next| next - one == 1), "{valid:?} of {schema}");
        }
    }
}

#[tokio::test]
async fn however_wild_the_text_the_json_is_whole_and_fits() {
    let router = router();
    for schema in schemas() {
        for (seed, form) in (0..10).flat_map(|seed| [(seed, call(&schema)), (seed, format(&schema))]) {
            let more = json!({"max_tokens": ENOUGH as u64 + seed, "temperature": 2, "seed": seed});
            let answer = ask(&router, &question("Tell me a story.", with(form, more))).await;
            let value = written(&answer).unwrap_or_else(|| panic!("{schema}: {answer}"));
            assert!(fits(&value, &schema), "{schema}: {answer}");
        }
    }
}

#[tokio::test]
async fn without_max_tokens_it_ends_within_the_context() {
    let router = router();
    let schema = &schemas()[0];
    let mut cut = 0;
    for (seed, form) in (0..10).flat_map(|seed| [(seed, call(schema)), (seed, format(schema))]) {
        let body = with(form, json!({"temperature": 2, "seed": seed}));
        // Digits are one token each.
        let (_, prompt) = post(&router, "/tokenize", &question("", body.clone())).await;
        let filler = 2048 - ENOUGH - usize::try_from(prompt["count"].as_u64().unwrap()).unwrap();
        let answer = ask(&router, &question(&"1".repeat(filler), body)).await;
        assert!(fits(&written(&answer).unwrap(), schema), "{answer}");
        assert!(answer["usage"]["total_tokens"].as_u64().unwrap() <= 2048);
        cut += usize::from(answer["choices"][0]["finish_reason"] == "length");
    }
    assert!(cut > 0, "the context was never reached");
}
