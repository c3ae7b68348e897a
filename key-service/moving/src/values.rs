//! Values from a table in JSON or CSV. In CSV, numbers, lists and objects are text.

use serde_json::{Map, Value};
use shared::{
    money::{MoneyError, NanoUsd},
    time::Timestamp,
};

/// A row of a table: values by column.
pub type Row = Map<String, Value>;

pub(super) type RowFault = String;

/// Returns whether a value is null, false, zero or empty.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => matches!(number.to_string().as_str(), "0" | "0.0"),
        Value::String(text) => {
            matches!(text.trim(), "" | "{}" | "[]" | "f" | "false" | "False" | "0" | "null")
        }
        Value::Array(values) => values.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

/// Reads a text; `None` if it is empty.
pub(super) fn text(value: &Value) -> Result<Option<String>, RowFault> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err("is not text".into()),
    }
}

/// Reads a non-negative amount in US dollars. Infinity means no amount; less than half a nano-USD is zero.
pub(super) fn amount(value: &Value) -> Result<Option<NanoUsd>, RowFault> {
    let Some(number) = text(value).map_err(|_| "is not a number")? else { return Ok(None) };
    if ["inf", "infinity"].contains(&number.to_ascii_lowercase().as_str()) {
        return Ok(None);
    }
    match NanoUsd::parse(&number) {
        Ok(amount) if amount < NanoUsd::ZERO => Err("is below zero".into()),
        Ok(amount) => Ok(Some(amount)),
        Err(MoneyError::RoundsToZero) => Ok(Some(NanoUsd::ZERO)),
        Err(e @ (MoneyError::NotANumber | MoneyError::OutOfRange { .. })) => Err(e.to_string()),
    }
}

/// Reads a non-negative whole number.
pub(super) fn count(value: &Value) -> Result<Option<u64>, RowFault> {
    let Some(number) = text(value).map_err(|_| "is not a whole number")? else { return Ok(None) };
    let whole = number.strip_suffix(".0").unwrap_or(&number);
    whole.parse().map(Some).map_err(|_| "is not a whole number from 0".into())
}

/// Reads a boolean; null is false.
pub(super) fn flag(value: &Value) -> Result<bool, RowFault> {
    match value {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) => match text.as_str() {
            "" | "f" | "false" | "False" => Ok(false),
            "t" | "true" | "True" => Ok(true),
            _ => Err("is neither true nor false".into()),
        },
        Value::Number(_) | Value::Array(_) | Value::Object(_) => Err("is neither true nor false".into()),
    }
}

/// Reads a time, in UTC unless it has an offset. Postgres writes whole-hour offsets without minutes.
pub(super) fn time(value: &Value) -> Result<Option<Timestamp>, RowFault> {
    let Some(mut text) = text(value)? else { return Ok(None) };
    let has_hours_alone = |text: &str| {
        let from_end = text.len().checked_sub(3).and_then(|at| text.get(at..));
        let is_offset =
            |end: &str| end.starts_with(['+', '-']) && end[1..].bytes().all(|b| b.is_ascii_digit());
        text.contains(':') && from_end.is_some_and(is_offset)
    };
    if has_hours_alone(&text) {
        text.push_str(":00");
    }
    Timestamp::parse(&text).map(Some).ok_or_else(|| "is not a date and time".into())
}

/// Reads a list of texts: a JSON list, JSON as text, or a Postgres array.
pub(super) fn list(value: &Value) -> Result<Vec<String>, RowFault> {
    let fault = || "is not a list of texts".to_owned();
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(values) => {
            values.iter().map(|value| value.as_str().map(str::to_owned).ok_or_else(fault)).collect()
        }
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        Value::String(text) if text.starts_with('{') => postgres_array(text).ok_or_else(fault),
        Value::String(text) => serde_json::from_str(text).map_err(|_| fault()),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => Err(fault()),
    }
}

/// Reads a JSON value, which may be text.
pub(super) fn json(value: &Value) -> Result<Value, RowFault> {
    match value {
        Value::String(text) if text.is_empty() => Ok(Value::Null),
        Value::String(text) => serde_json::from_str(text).map_err(|_| "is not JSON".into()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Ok(value.clone())
        }
    }
}

/// Reads a JSON object; null is an empty object.
pub(super) fn object(value: &Value) -> Result<Row, RowFault> {
    match json(value)? {
        Value::Null => Ok(Row::new()),
        Value::Object(members) => Ok(members),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err("is not an object".into())
        }
    }
}

/// Reads the texts of an array in Postgres' notation: `{a,"b c","say \"x\""}`.
fn postgres_array(text: &str) -> Option<Vec<String>> {
    let mut rest = text.strip_prefix('{')?.strip_suffix('}')?.chars().peekable();
    let mut items = Vec::new();
    while rest.peek().is_some() {
        let mut item = String::new();
        if rest.next_if_eq(&'"').is_some() {
            loop {
                match rest.next()? {
                    '"' => break,
                    '\\' => item.push(rest.next()?),
                    c => item.push(c),
                }
            }
        } else {
            while let Some(c) = rest.next_if(|c| *c != ',') {
                item.push(c);
            }
        }
        items.push(item);
        match rest.next() {
            None => break,
            Some(',') if rest.peek().is_some() => {}
            Some(_) => return None,
        }
    }
    Some(items)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_json_and_of_csv_mean_the_same() {
        for value in [
            json!(["a", "b, c", "say \"x\""]),
            json!(r#"["a","b, c","say \"x\""]"#),
            json!(r#"{a,"b, c","say \"x\""}"#),
        ] {
            assert_eq!(list(&value).unwrap(), ["a", "b, c", "say \"x\""]);
        }
        for value in [json!(0.25), json!("0.25"), json!("2.5e-1")] {
            assert_eq!(amount(&value), Ok(Some(NanoUsd::from_nanos(250_000_000))));
        }
        for value in [json!(60), json!("60"), json!(60.0)] {
            assert_eq!(count(&value), Ok(Some(60)));
        }
        for value in
            [json!("2027-01-02T03:04:05Z"), json!("2027-01-02 03:04:05"), json!("2027-01-02 03:04:05+00")]
        {
            assert_eq!(time(&value).unwrap(), Timestamp::parse("2027-01-02T03:04:05Z"));
        }
        for value in [json!(true), json!("t"), json!("True")] {
            assert_eq!(flag(&value), Ok(true));
        }
        assert_eq!(object(&json!(r#"{"a": 1}"#)), object(&json!({"a": 1})));
    }

    #[test]
    fn what_says_nothing_is_nothing() {
        for value in [json!(null), json!("")] {
            assert_eq!((text(&value), amount(&value), count(&value)), (Ok(None), Ok(None), Ok(None)));
            assert_eq!((time(&value), flag(&value)), (Ok(None), Ok(false)));
            assert_eq!((list(&value), object(&value)), (Ok(Vec::new()), Ok(Row::new())));
            assert!(is_empty(&value));
        }
        assert_eq!(list(&json!("{}")), Ok(Vec::new()));
        assert_eq!(amount(&json!("Infinity")), Ok(None));
        assert_eq!(amount(&json!(1e-12)), Ok(Some(NanoUsd::ZERO)));
    }

    #[test]
    fn a_value_of_another_type_is_a_fault() {
        for value in [json!("x"), json!(-1), json!([1])] {
            assert!(amount(&value).is_err() && count(&value).is_err() && time(&value).is_err(), "{value}");
        }
        for value in [json!("{a"), json!("{\"a}"), json!("{a,}"), json!([1]), json!({"a": 1}), json!("a")] {
            assert!(list(&value).is_err(), "{value}");
        }
        assert!(
            object(&json!("[1]")).is_err() && object(&json!([1])).is_err() && flag(&json!("maybe")).is_err()
        );
    }
}
