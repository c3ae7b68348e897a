//! Clients' JSON schemas as the grammar's library takes them.

use serde_json::{Map, Value, json};

use super::{Inexpressible, Place};

/// How the library is told to write JSON: with one blank after commas and colons, as the models have learnt it, and without
/// `\u`, which could write half a character.
const STYLE: &str = "x-guidance";

/// The schema with our style of JSON. An object without further properties, unless the schema speaks of them: what a
/// model would add under a name of its own invention helps nobody.
pub(super) fn prepared(schema: &Value, place: Place) -> Result<Value, Inexpressible> {
    let inexpressible = |reason: &str| Inexpressible { place, reason: reason.to_owned() };
    let mut root = match schema {
        Value::Object(root) => root.clone(),
        Value::Bool(true) => Map::new(),
        Value::Bool(false) | Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(inexpressible("a schema is an object"));
        }
    };
    // Two closed objects cannot be joined, as each forbids the other's properties.
    if !mentions(schema, "allOf") {
        close(&mut root);
    }
    if matches!(place, Place::Tool(_)) {
        be_object(&mut root).map_err(inexpressible)?;
    }
    let style = json!({
        "item_separator": ", ",
        "key_separator": ": ",
        "whitespace_flexible": false,
        "json_allowed_escapes": "nrbtf\\\"",
    });
    root.insert(STYLE.to_owned(), style);
    Ok(Value::Object(root))
}

/// Arguments are always an object.
fn be_object(root: &mut Map<String, Value>) -> Result<(), &'static str> {
    let is_object = match root.get("type") {
        None => true,
        Some(Value::String(name)) => name == "object",
        Some(Value::Array(names)) => names.iter().any(|name| name == "object"),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => false,
    };
    if !is_object {
        return Err("the arguments of a tool are an object");
    }
    root.insert("type".to_owned(), "object".into());
    Ok(())
}

/// Says of every object that has properties, but says nothing of further ones, that there are none. One that is joined
/// with others stays open, as they may add to it.
fn close(schema: &mut Map<String, Value>) {
    let has = |words: &[&str]| words.iter().any(|&word| schema.contains_key(word));
    let lists = schema.get("properties").and_then(Value::as_object).is_some_and(|listed| !listed.is_empty());
    let says = has(&["additionalProperties", "patternProperties", "unevaluatedProperties"]);
    let joined = has(&["anyOf", "oneOf", "$ref", "if"]);
    if lists && !says && !joined {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    for (word, part) in schema {
        match (word.as_str(), part) {
            ("properties" | "$defs" | "definitions", Value::Object(parts)) => {
                parts.values_mut().filter_map(Value::as_object_mut).for_each(close);
            }
            ("items" | "additionalProperties", Value::Object(part)) => close(part),
            ("anyOf" | "oneOf" | "prefixItems", Value::Array(parts)) if !lists => {
                parts.iter_mut().filter_map(Value::as_object_mut).for_each(close);
            }
            _ => {}
        }
    }
}

fn mentions(schema: &Value, word: &str) -> bool {
    match schema {
        Value::Object(parts) => parts.contains_key(word) || parts.values().any(|part| mentions(part, word)),
        Value::Array(parts) => parts.iter().any(|part| mentions(part, word)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
