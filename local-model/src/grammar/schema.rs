//! Clients' JSON schemas, prepared for the library that turns schemas into grammars.

use serde_json::{Map, Value, json};

use super::SchemaError;

/// Keyword of the library's style of JSON: one blank after commas and colons, as in training, and no `\u`, which could write
/// half a character.
const STYLE: &str = "x-guidance";

/// Properties of one object. Where all are optional, the library does not follow more.
const MAX_PROPERTIES: usize = 500;
/// Range of `multipleOf`: the library takes seconds for others.
const MULTIPLES: std::ops::RangeInclusive<f64> = 0.001..=100_000.0;
/// Characters of an e-mail address, as many as may stand before the `@`. The library sets no bound.
const MAX_EMAIL: u64 = 64;
/// Largest number that is written where the schema sets no bound. A client's double holds integers of 15 digits exactly, and
/// without a bound a small model may write digits without end.
const MAX_NUMBER: f64 = 999_999_999_999_999.0;

/// Prepares the schema of a tool's arguments, which are always an object. A function without a list of parameters takes none.
pub(super) fn of_arguments(parameters: Option<&Value>) -> Result<Value, SchemaError> {
    let mut schema = parameters.map_or_else(|| Ok(json!({"additionalProperties": false})), prepared)?;
    let names_object = |kind: &Value| {
        kind == "object" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "object"))
    };
    if !schema.get("type").is_none_or(names_object) {
        return Err(SchemaError("the arguments of a tool are an object".to_owned()));
    }
    schema["type"] = "object".into();
    Ok(schema)
}

/// Prepares a schema: sets the style of JSON, and closes objects to unlisted properties unless the schema allows them.
pub(super) fn prepared(schema: &Value) -> Result<Value, SchemaError> {
    let mut root = match schema {
        Value::Object(root) => root.clone(),
        Value::Bool(true) => Map::new(),
        Value::Bool(false) | Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(SchemaError("a schema is an object".to_owned()));
        }
    };
    check_bounds(schema).map_err(SchemaError)?;
    close(&mut root);
    let style = json!({
        "item_separator": ", ",
        "key_separator": ": ",
        "whitespace_flexible": false,
        "json_allowed_escapes": "nrbtf\\\"",
    });
    root.insert(STYLE.to_owned(), style);
    Ok(Value::Object(root))
}

/// Refuses schemas that would keep the library at work for too long, in ways that the library's own limits do not cover.
fn check_bounds(schema: &Value) -> Result<(), String> {
    let parts = match schema {
        Value::Object(parts) => parts,
        Value::Array(parts) => return parts.iter().try_for_each(check_bounds),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(()),
    };
    // Each schema that is joined with others may double the work of the library.
    let joined = parts.get("allOf").and_then(Value::as_array);
    if joined.is_some_and(|all| all.len() != 1 || parts.contains_key("properties")) {
        return Err("allOf joins several schemas".to_owned());
    }
    let listed = parts.get("properties").and_then(Value::as_object).map_or(0, Map::len);
    if listed > MAX_PROPERTIES {
        return Err(format!("an object has {listed} properties, of {MAX_PROPERTIES} at most"));
    }
    if let Some(multiple) =
        parts.get("multipleOf").and_then(Value::as_f64).filter(|it| !MULTIPLES.contains(it))
    {
        return Err(format!("multipleOf is {multiple}, beyond {} to {}", MULTIPLES.start(), MULTIPLES.end()));
    }
    parts.values().try_for_each(check_bounds)
}

/// Closes every object that lists properties and says nothing of others. An object that is joined with others stays open, as
/// these may add properties.
fn close(schema: &mut Map<String, Value>) {
    let has = |words: &[&str]| words.iter().any(|&word| schema.contains_key(word));
    let lists = schema.get("properties").and_then(Value::as_object).is_some_and(|listed| !listed.is_empty());
    let says = has(&["additionalProperties", "patternProperties", "unevaluatedProperties"]);
    let joined = has(&["anyOf", "oneOf", "$ref", "if"]);
    if lists && !says && !joined {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    mend(schema);
    for (word, part) in schema {
        match (word.as_str(), part) {
            ("properties" | "$defs" | "definitions", Value::Object(parts)) => {
                parts.values_mut().filter_map(Value::as_object_mut).for_each(close);
            }
            ("items" | "additionalProperties", Value::Object(part)) => close(part),
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(parts)) if !lists => {
                parts.iter_mut().filter_map(Value::as_object_mut).for_each(close);
            }
            _ => {}
        }
    }
}

/// Adds the bounds that the library or a small model needs, and drops a keyword that the library does not support.
fn mend(schema: &mut Map<String, Value>) {
    if schema.get("propertyNames").is_some_and(|names| *names == json!({"type": "string"})) {
        // All names are strings.
        schema.remove("propertyNames");
    }
    let is_email = schema.get("format").is_some_and(|format| format == "email");
    if is_email && !schema.contains_key("minLength") && !schema.contains_key("maxLength") {
        schema.insert("maxLength".to_owned(), MAX_EMAIL.into());
    }
    let is_number = |kind: &Value| kind == "integer" || kind == "number";
    let kinds =
        schema.get("type").map(|kind| kind.as_array().map_or(std::slice::from_ref(kind), Vec::as_slice));
    let bounds = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
    let mut bounds = bounds.iter().filter_map(|bound| schema.get(*bound).and_then(Value::as_f64));
    let is_large = bounds.any(|bound| bound.abs() >= MAX_NUMBER);
    if !is_large && kinds.is_some_and(|kinds| kinds.iter().any(is_number)) {
        for (bound, other, value) in
            [("minimum", "exclusiveMinimum", -MAX_NUMBER), ("maximum", "exclusiveMaximum", MAX_NUMBER)]
        {
            if !schema.contains_key(bound) && !schema.contains_key(other) {
                schema.insert(bound.to_owned(), value.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(schema: &Value) -> Value {
        let mut prepared = prepared(schema).unwrap();
        prepared.as_object_mut().unwrap().remove(STYLE);
        prepared
    }

    #[test]
    fn objects_are_closed_unless_the_schema_says_otherwise() {
        let open = json!({"properties": {"a": {"properties": {"b": {}}}}});
        let shut = json!({
            "properties": {"a": {"properties": {"b": {}}, "additionalProperties": false}},
            "additionalProperties": false,
        });
        assert_eq!(closed(&open), shut);
        for left in [
            json!({"properties": {"a": {}}, "additionalProperties": true}),
            json!({"properties": {"a": {}}, "anyOf": [{"required": ["b"]}]}),
            json!({"type": "object"}),
        ] {
            assert_eq!(closed(&left), left);
        }
    }

    #[test]
    fn missing_bounds_are_added_and_unknown_keywords_dropped() {
        let names = json!({"propertyNames": {"type": "string"}, "additionalProperties": {"format": "email"}});
        let mended = json!({"additionalProperties": {"format": "email", "maxLength": 64}});
        assert_eq!(closed(&names), mended);
        let number = json!({"type": ["number", "null"], "exclusiveMinimum": 0});
        assert_eq!(closed(&number)["maximum"], MAX_NUMBER);
        assert!(closed(&number).get("minimum").is_none());
        let own = json!({"items": {"format": "email", "maxLength": 90, "exclusiveMinimum": 0, "maximum": 1}});
        assert_eq!(closed(&own), own);
    }

    #[test]
    fn a_schema_that_would_take_too_long_is_refused() {
        let many: Map<String, Value> = (0..501).map(|name| (name.to_string(), json!({}))).collect();
        for schema in [
            json!({"items": {"properties": many}}),
            json!({"anyOf": [{"multipleOf": 1_000_003}]}),
            json!({"items": {"allOf": [{"properties": {"a": {}}}, {"pattern": "^a"}]}}),
        ] {
            assert!(prepared(&schema).is_err());
        }
    }
}
