//! Values written for schemas, and refused schemas.

use super::*;
use crate::{reader::Model, sampler::Sampler};

type Fits = fn(&Value) -> bool;

/// Returns what is written for a schema after a question. At a high temperature, the model chooses unlikely tokens.
fn written(schema: &Value, temperature: f32) -> Value {
    let model = Model::shipped().unwrap();
    let prompt = model.tokenizer.encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    let sampler = Sampler::new(temperature, Vec::new(), 1);
    let mut reader = Reader::new(&model, sampler, Box::new(|| false));
    let text = fill(&mut reader, &prompt, 1000, schema, String::new()).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn a_small_schema_of_a_large_value_ends_at_a_bound() {
    let lists = |schema: Value| json!({"type": "array", "minItems": 200, "items": schema});
    let nested = (0..5).fold(json!({"type": "object", "properties": {}}), |schema, _| lists(schema));
    assert!(check(&nested).is_ok(), "only an answer would end");
}

#[test]
fn every_value_is_one_of_its_schema_however_wild_the_model() {
    let tree = json!({
        "$defs": {"node": {
            "type": "object", "properties": {"name": {"type": "string"}, "nodes": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["name", "nodes"], "additionalProperties": false,
        }},
        "allOf": [{"$ref": "#/$defs/node"}],
    });
    let cases: [(Value, Fits); 11] = [
        (json!({"const": {"a": [1]}}), |it| *it == json!({"a": [1]})),
        (json!({"enum": [3, "x", null]}), |it| [json!(3), json!("x"), json!(null)].contains(it)),
        (json!({"type": ["null", "integer"], "exclusiveMinimum": 7, "maximum": 9}), |it| {
            it.as_i64().is_some_and(|it| (8..=9).contains(&it))
        }),
        (json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}), |it| {
            it.as_f64().is_some_and(|it| 0.0 < it && it < 1.0)
        }),
        (json!({"type": "string", "minLength": 5, "maxLength": 6}), |it| {
            it.as_str().is_some_and(|it| (5..=6).contains(&it.chars().count()))
        }),
        (json!({"type": "string", "format": "date"}), |it| *it == "2026-01-31"),
        (json!({"anyOf": [{"type": "null"}, {"type": "boolean"}]}), Value::is_boolean),
        (json!({"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 3}), |it| {
            it.as_array().is_some_and(|it| (2..=3).contains(&it.len()) && it.iter().all(Value::is_null))
        }),
        (json!({"type": "object"}), Value::is_object),
        (json!({"type": "object", "additionalProperties": false}), |it| *it == json!({})),
        (tree, |it| it["name"].is_string() && it["nodes"].is_array()),
    ];
    for (schema, fits) in cases {
        check(&schema).unwrap();
        for temperature in [0.0, 2.0] {
            let value = written(&schema, temperature);
            assert!(fits(&value), "{schema}: {value}");
        }
    }
}

#[test]
fn what_cannot_be_forced_is_refused_wherever_it_is() {
    let cases = [
        json!({"pattern": "^a$"}),
        json!({"$ref": "#/$defs/none"}),
        json!({"$ref": "#"}),
        json!({"allOf": [{"type": "string"}, {"maxLength": 3}]}),
        json!({"anyOf": []}),
        json!({"enum": []}),
        json!({"type": "tuple"}),
        json!({"type": "object", "required": ["a"]}),
        json!({"type": "integer", "minimum": 0.2, "maximum": 0.8}),
        json!({"type": "array", "minItems": 1_000_000}),
        json!({"type": "string", "minLength": 4, "maxLength": 3}),
    ];
    for schema in cases {
        let inside = json!({"type": "object", "properties": {"list": {"type": "array", "items": schema}}});
        let deep =
            json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": schema}}}});
        assert!(check(&schema).is_err(), "{schema}");
        assert!(schema["$ref"] == "#" || check(&inside).is_err() && check(&deep).is_err(), "{schema}");
    }
    assert!(check(&json!(true)).is_err());
}

#[test]
fn a_schema_that_refers_to_itself_many_times_is_checked_soon() {
    let parts = (0..20).map(|name| (name.to_string(), json!({"$ref": "#"})));
    check(&json!({"type": "object", "properties": parts.collect::<serde_json::Map<_, _>>()})).unwrap();
}
