//! Clients' JSON schemas as the grammar's library takes them.

use serde_json::{Map, Value, json};

use super::{Inexpressible, Place};

/// How the library is told to write JSON: with one blank after commas and colons, as the models have learnt it, and without
/// `\u`, which could write half a character.
const STYLE: &str = "x-guidance";

/// Properties of one object. More of them, where all may be left out, are more than the library follows.
const MAX_PROPERTIES: usize = 500;
/// Multiples of larger or smaller numbers take the library seconds.
const MULTIPLES: std::ops::RangeInclusive<f64> = 0.001..=100_000.0;
/// Characters of an address: so many may stand before the `@`, and the library counts none.
const MAX_EMAIL: u64 = 64;
/// So far behind a bound begin the numbers that are beyond it, where the library needs to be told.
const STEP: f64 = 1e-12;
/// A larger bound and one [`STEP`] more are the same to a double.
const MAX_STEPPED: f64 = 1000.0;

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
    check_bounds(schema).map_err(|reason| inexpressible(&reason))?;
    // Two closed objects cannot be joined, as each forbids the other's properties.
    if !joins(schema) {
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

/// Refuses what would take the library too long, which its own limits do not cover.
fn check_bounds(schema: &Value) -> Result<(), String> {
    let parts = match schema {
        Value::Object(parts) => parts,
        Value::Array(parts) => return parts.iter().try_for_each(check_bounds),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(()),
    };
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

/// Says of every object that has properties, but says nothing of further ones, that there are none. One that is joined
/// with others stays open, as they may add to it. What the library leaves out of a schema, or does not know, is mended.
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

fn mend(schema: &mut Map<String, Value>) {
    if schema.get("propertyNames").is_some_and(|names| *names == json!({"type": "string"})) {
        // All names are strings.
        schema.remove("propertyNames");
    }
    let is_email = schema.get("format").is_some_and(|format| format == "email");
    if is_email && !schema.contains_key("minLength") && !schema.contains_key("maxLength") {
        schema.insert("maxLength".to_owned(), MAX_EMAIL.into());
    }
    mend_bounds(schema);
}

/// The library takes 0 for a number above 0 and up to 0.5: a whole bound that is itself excluded, and another that has the
/// same digits before its point.
fn mend_bounds(schema: &mut Map<String, Value>) {
    let lower = ("exclusiveMinimum", "minimum", ["maximum", "exclusiveMaximum"], 1.0);
    let upper = ("exclusiveMaximum", "maximum", ["minimum", "exclusiveMinimum"], -1.0);
    for (excluded, included, others, sign) in [lower, upper] {
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let whole = number(excluded).filter(|bound| bound.fract() == 0.0 && bound.abs() <= MAX_STEPPED);
        let Some(bound) = whole.filter(|_| !schema.contains_key(included)) else { continue };
        let mut distances = others.into_iter().filter_map(number).map(|other| (other - bound) * sign);
        if distances.any(|distance| (STEP..1.0).contains(&distance)) {
            schema.remove(excluded);
            schema.insert(included.to_owned(), (bound + sign * STEP).into());
        }
    }
}

/// Whether several schemas have to be followed at once anywhere. `allOf` of a single one joins nothing.
fn joins(schema: &Value) -> bool {
    match schema {
        Value::Object(parts) => {
            let all = parts.get("allOf").and_then(Value::as_array);
            let joined = all.is_some_and(|all| all.len() != 1 || parts.contains_key("properties"));
            joined || parts.values().any(joins)
        }
        Value::Array(parts) => parts.iter().any(joins),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(schema: &Value) -> Value {
        let mut prepared = prepared(schema, Place::Text).unwrap();
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
            json!({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}),
            json!({"type": "object"}),
        ] {
            assert_eq!(closed(&left), left);
        }
    }

    #[test]
    fn a_reference_in_an_all_of_alone_leaves_objects_closed() {
        let open = json!({"properties": {"a": {"allOf": [{"$ref": "#/$defs/a"}], "default": 1}}});
        assert_eq!(closed(&open)["additionalProperties"], false);
        let open = json!({"allOf": [{"properties": {"a": {}}}]});
        assert_eq!(closed(&open)["allOf"][0]["additionalProperties"], false);
    }

    #[test]
    fn what_the_library_does_not_know_is_mended() {
        let names = json!({"propertyNames": {"type": "string"}, "additionalProperties": {"format": "email"}});
        let mended = json!({"additionalProperties": {"format": "email", "maxLength": 64}});
        assert_eq!(closed(&names), mended);
        let above = json!({"exclusiveMinimum": 0, "maximum": 0.5});
        assert_eq!(closed(&above), json!({"minimum": 1e-12, "maximum": 0.5}));
        let own = json!({"items": {"format": "email", "maxLength": 90, "exclusiveMinimum": 0, "maximum": 1}});
        assert_eq!(closed(&own), own);
    }

    #[test]
    fn a_schema_cannot_choose_its_own_style() {
        let own = json!({STYLE: {"whitespace_flexible": true}});
        assert_eq!(prepared(&own, Place::Text).unwrap()[STYLE]["whitespace_flexible"], false);
    }

    #[test]
    fn what_would_take_too_long_is_refused() {
        let many: Map<String, Value> = (0..501).map(|name| (name.to_string(), json!({}))).collect();
        for schema in [json!({"items": {"properties": many}}), json!({"anyOf": [{"multipleOf": 1_000_003}]})]
        {
            assert!(prepared(&schema, Place::Tool(0)).is_err());
        }
    }
}
