//! Clients' JSON schemas, prepared for the library that turns schemas into grammars.

use serde_json::{Value, json};
use shared::error::{ApiError, Code};

/// Keyword of the library's style of JSON: with blanks as in training, and without `\u`, which could write half a
/// character.
const STYLE: &str = "x-guidance";

/// Error of a schema that no answer can be held to.
pub(super) fn unsupported(reason: &str) -> ApiError {
    ApiError::new(Code::UnsupportedValue, format!("This schema cannot be followed: {reason}."))
}

/// Prepares the schema of a tool's arguments, which are always an object. A function without a list of parameters takes none.
pub(super) fn of_arguments(parameters: Option<&Value>) -> Result<Value, ApiError> {
    let mut schema = parameters.map_or_else(|| Ok(json!({"additionalProperties": false})), prepared)?;
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return Err(unsupported("the arguments of a tool are an object"));
    }
    schema["type"] = "object".into();
    Ok(schema)
}

/// Prepares a schema: sets the style of JSON, and closes objects to unlisted properties unless the schema allows them.
pub(super) fn prepared(schema: &Value) -> Result<Value, ApiError> {
    if !schema.is_object() {
        return Err(unsupported("a schema is an object"));
    }
    let mut schema = schema.clone();
    prepare(&mut schema, true)?;
    schema[STYLE] = json!({
        "item_separator": ", ", "key_separator": ": ", "whitespace_flexible": false,
        "json_allowed_escapes": "nrbtf\\\"",
    });
    Ok(schema)
}

/// Refuses schemas on which the library would work for too long despite its own limits. If `closes`, it closes every
/// object that lists properties and says nothing about others. An object that is joined with others stays open, since
/// these may add properties.
fn prepare(schema: &mut Value, closes: bool) -> Result<(), ApiError> {
    let parts = match schema {
        Value::Object(parts) => parts,
        Value::Array(parts) => return parts.iter_mut().try_for_each(|part| prepare(part, closes)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(()),
    };
    let has = |words: &[&str]| words.iter().any(|&word| parts.contains_key(word));
    let lists = parts.get("properties").and_then(Value::as_object).is_some_and(|listed| !listed.is_empty());
    // Each schema that is joined with others may double the library's work.
    let joined = parts.get("allOf").and_then(Value::as_array);
    if joined.is_some_and(|all| all.len() != 1 || has(&["properties"])) {
        return Err(unsupported("allOf joins several schemas"));
    }
    // The library takes seconds for other factors.
    if parts.get("multipleOf").and_then(Value::as_f64).is_some_and(|it| !(0.001..=100_000.0).contains(&it)) {
        return Err(unsupported("multipleOf is too small or too large"));
    }
    let says = has(&["additionalProperties", "patternProperties", "unevaluatedProperties"]);
    if closes && lists && !says && !has(&["anyOf", "oneOf", "$ref", "if"]) {
        parts.insert("additionalProperties".to_owned(), false.into());
    }
    // All names are strings, so this one demands nothing, and the library does not know the keyword.
    if parts.get("propertyNames").is_some_and(|names| *names == json!({"type": "string"})) {
        parts.remove("propertyNames");
    }
    for (word, part) in parts {
        let joins = lists && ["anyOf", "oneOf", "allOf"].contains(&word.as_str());
        prepare(part, closes && !joins)?;
    }
    Ok(())
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
    fn a_keyword_that_says_nothing_is_dropped() {
        let names = json!({"propertyNames": {"type": "string"}, "additionalProperties": {"maxLength": 5}});
        assert_eq!(closed(&names), json!({"additionalProperties": {"maxLength": 5}}));
    }

    #[test]
    fn a_schema_that_would_take_too_long_is_refused() {
        let joined = json!({"items": {"allOf": [{"properties": {"a": {}}}, {"pattern": "^a"}]}});
        let multiple = json!({"anyOf": [{"multipleOf": 1_000_003}]});
        assert!(prepared(&joined).is_err() && prepared(&multiple).is_err());
    }
}
