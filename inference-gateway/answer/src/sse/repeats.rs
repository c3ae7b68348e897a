//! Removes repeated members from JSON. Servers that write a member twice mean one, but a strict reader refuses both.

use std::{borrow::Cow, collections::HashMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use shared::json::{Kind, RawValue, Text, elements};

/// Number of an answer's nesting levels whose members are compared. The deepest member that a reader knows is on the
/// tenth level.
const LEVELS: u8 = 10;
/// Maximum number of members in an object, so that short names take little memory.
const MOST_MEMBERS: usize = 4096;
/// Members for usage, whose repeated values all count, since the larger one is billed.
const REPORTS: [&str; 2] = ["usage", "timings"];

/// Returns a payload without repeated members; `None` if no member is repeated. Repeated objects are joined; of other
/// repeated values, the last non-empty one stays.
pub(super) fn without_repeats(json: &str) -> Option<String> {
    let mut written = String::with_capacity(json.len());
    put(json, LEVELS, &mut written).ok()?.then_some(written)
}

/// Writes a value. Returns whether a member was repeated.
fn put(json: &str, levels: u8, out: &mut String) -> Result<bool, serde_json::Error> {
    let value: &RawValue = serde_json::from_str(json)?;
    match Kind::of(value) {
        Kind::Object if levels > 0 => put_object(value, levels - 1, out),
        Kind::Array if levels > 0 => {
            let mut repeats = false;
            out.push('[');
            for (place, element) in elements(value)?.into_iter().enumerate() {
                out.push_str(if place == 0 { "" } else { "," });
                repeats |= put(element.get(), levels - 1, out)?;
            }
            out.push(']');
            Ok(repeats)
        }
        Kind::Null | Kind::Bool | Kind::Number | Kind::String | Kind::Array | Kind::Object => {
            out.push_str(json);
            Ok(false)
        }
    }
}

fn put_object(object: &RawValue, levels: u8, out: &mut String) -> Result<bool, serde_json::Error> {
    let NamedValues(members) = serde_json::from_str(object.get())?;
    let mut places = HashMap::new();
    let mut kept: Vec<(&str, Cow<'_, str>)> = Vec::new();
    for (name, value) in &members {
        let value = value.get();
        match places.get(name) {
            None => {
                places.insert(name, kept.len());
                kept.push((name, Cow::Borrowed(value)));
            }
            Some(place) => {
                let (_, before): &mut (&str, Cow<'_, str>) = &mut kept[*place];
                *before = one_of(before, value);
            }
        }
    }
    let mut repeats = kept.len() < members.len();
    out.push('{');
    for (place, (name, value)) in kept.into_iter().enumerate() {
        out.push_str(if place == 0 { "" } else { "," });
        out.push_str(&serde_json::Value::from(name).to_string());
        out.push(':');
        if REPORTS.contains(&name) {
            out.push_str(&value);
        } else {
            repeats |= put(&value, levels, out)?;
        }
    }
    out.push('}');
    Ok(repeats)
}

/// Returns the value of a repeated member.
fn one_of<'a>(before: &str, after: &'a str) -> Cow<'a, str> {
    match (inside(before, ['{', '}']), inside(after, ['{', '}'])) {
        (Some(before), Some("")) => Cow::Owned(format!("{{{before}}}")),
        (Some(""), Some(_)) => Cow::Borrowed(after),
        (Some(before), Some(after)) => Cow::Owned(format!("{{{before},{after}}}")),
        (None | Some(_), None | Some(_)) if is_empty(after) => Cow::Owned(before.to_owned()),
        (None | Some(_), None | Some(_)) => Cow::Borrowed(after),
    }
}

/// Returns the text between two brackets.
fn inside(json: &str, [open, close]: [char; 2]) -> Option<&str> {
    Some(json.strip_prefix(open)?.strip_suffix(close)?.trim_ascii())
}

fn is_empty(json: &str) -> bool {
    json == "null" || json == "\"\"" || inside(json, ['[', ']']) == Some("")
}

/// Members of an object in order, including repeated names.
struct NamedValues<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for NamedValues<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValuesVisitor;
        impl<'de> Visitor<'de> for ValuesVisitor {
            type Value = NamedValues<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NamedValues<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((Text(name), value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    if members.len() == MOST_MEMBERS {
                        return Err(A::Error::custom("too many members"));
                    }
                    members.push((name.into_owned(), value));
                }
                Ok(NamedValues(members))
            }
        }
        deserializer.deserialize_map(ValuesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_repeated_member_one_value_stays_and_objects_are_joined() {
        for (json, expected) in [
            (r#"{"a":1,"a":2,"b":3}"#, Some(r#"{"a":2,"b":3}"#)),
            (r#"{"a":"x","\u0061":""}"#, Some(r#"{"a":"x"}"#)),
            (r#"{"a":null,"a":[ ],"a":[1],"a":null}"#, Some(r#"{"a":[1]}"#)),
            (
                r#"[{"m":{"a":1,"c":[{"d":1,"d":{"e":2}}]},"m":{"a":"b"}}]"#,
                Some(r#"[{"m":{"a":"b","c":[{"d":{"e":2}}]}}]"#),
            ),
            (r#"{"m":{},"m":{ "a":1 },"m":{}}"#, Some(r#"{"m":{"a":1}}"#)),
            (r#"{"a":{"b":1},"c":[{"b":1}]}"#, None),
            ("1", None),
            (r#"{"a":"#, None),
        ] {
            assert_eq!(without_repeats(json).as_deref(), expected, "{json}");
        }
    }

    #[test]
    fn every_count_of_a_repeated_report_stays_since_the_larger_is_billed() {
        let json = r#"{"usage":{"completion_tokens":9},"usage":{"completion_tokens":2},"usage":null}"#;
        let expected = r#"{"usage":{"completion_tokens":9,"completion_tokens":2}}"#;
        assert_eq!(without_repeats(json).as_deref(), Some(expected));
        assert_eq!(without_repeats(expected), None);
    }
}
