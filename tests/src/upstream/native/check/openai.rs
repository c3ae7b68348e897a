//! OpenAI's refusals of single parameters.

use serde_json::Value;

use super::refusal::Checked;
use crate::upstream::native::error::ApiError;

/// Refuses the parameter with this code and message.
pub(super) fn refused(code: &'static str, param: &str, message: &str) -> Checked {
    Err(ApiError { code: Some(code), ..ApiError::invalid(message, Some(param)) })
}

/// Refuses an object that lacks one of these members. `path` is the object's location; empty for the body.
pub(super) fn need(path: &str, object: &Value, names: &[&str]) -> Checked {
    match names.iter().find(|name| object.get(**name).is_none()) {
        None => Ok(()),
        Some(name) => {
            let param = below(path, name);
            refused("missing_required_parameter", &param, &format!("Missing required parameter: '{param}'."))
        }
    }
}

/// Refuses an object with members other than these.
pub(super) fn only(path: &str, object: &Value, known: &[&str]) -> Checked {
    let mut names = object.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    match names.find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => {
            let param = below(path, name);
            refused("unknown_parameter", &param, &format!("Unknown parameter: '{param}'."))
        }
    }
}

/// Refuses a value that is not one of these words. A missing value and null pass.
pub(super) fn one_of(param: &str, value: &Value, words: &[&str]) -> Checked {
    if value.is_null() || words.iter().any(|word| value == word) {
        return Ok(());
    }
    let found = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    refused(
        "invalid_value",
        param,
        &format!("Invalid value: '{found}'. Supported values are: {}.", listed(words)),
    )
}

/// Refuses a value that is not of this type. A missing value and null pass.
pub(super) fn of_type(param: &str, value: &Value, wanted: &str) -> Checked {
    let found = match value {
        Value::Null => return Ok(()),
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a decimal",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    if found == wanted || (wanted == "a decimal" && found == "an integer") {
        return Ok(());
    }
    let message = format!("Invalid type for '{param}': expected {wanted}, but got {found} instead.");
    refused("invalid_type", param, &message)
}

/// Refuses a text that is longer than this many characters.
pub(super) fn at_most(param: &str, value: &Value, characters: usize) -> Checked {
    let length = value.as_str().map_or(0, |text| text.chars().count());
    if length <= characters {
        return Ok(());
    }
    let message = format!(
        "Invalid '{param}': string too long. Expected a string with maximum length {characters}, but got a string with length {length} instead."
    );
    refused("string_above_max_length", param, &message)
}

/// Refuses a number outside these bounds.
pub(super) fn within(param: &str, value: &Value, least: f64, most: f64) -> Checked {
    of_type(param, value, "a decimal")?;
    let Some(number) = value.as_f64() else { return Ok(()) };
    let (code, wanted) = if number > most {
        ("decimal_above_max_value", format!("decimal above maximum value. Expected a value <= {most}"))
    } else if number < least {
        ("decimal_below_min_value", format!("decimal below minimum value. Expected a value >= {least}"))
    } else {
        return Ok(());
    };
    refused(code, param, &format!("Invalid '{param}': {wanted}, but got {number} instead."))
}

/// Refuses a schema that a strict tool or format may not have.
pub(super) fn strict_schema(what: &str, param: &str, code: &'static str, schema: &Value) -> Checked {
    let refused =
        |words: &str| refused(code, param, &format!("Invalid schema for {what}: In context=(), {words}"));
    if schema["type"] == "object" {
        if schema["additionalProperties"] != false {
            return refused("'additionalProperties' is required to be supplied and to be false.");
        }
        let required = schema["required"].as_array();
        let is_required =
            |name: &String| required.is_some_and(|required| required.iter().any(|one| one == name));
        let mut names = schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name);
        if let Some(name) = names.find(|name| !is_required(name)) {
            return refused(&format!(
                "'required' is required to be supplied and to be an array including every key in properties. Missing '{name}'."
            ));
        }
    }
    let inner = schema["properties"].as_object().into_iter().flatten().map(|(_, schema)| schema);
    inner.chain(schema.get("items")).try_for_each(|schema| strict_schema(what, param, code, schema))
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Lists words as in `'a', 'b', and 'c'`.
fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    match quoted.as_slice() {
        [one, other] => format!("{one} and {other}"),
        [first @ .., last] if !first.is_empty() => format!("{}, and {last}", first.join(", ")),
        other => other.concat(),
    }
}
