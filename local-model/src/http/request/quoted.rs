//! Messages and tools as what was said: a text that spells the end of its message, and the beginning of another, ends and
//! begins nothing.

use minijinja::{Value, value::ValueKind};

use crate::vocabulary::Vocabulary;

/// The messages. An assistant's text keeps the markers of its thoughts and calls, which a client may send back in it.
pub(super) fn messages(messages: &Value, vocabulary: &Vocabulary) -> Value {
    let message = |message: Value| {
        let answered = message.get_attr("role").is_ok_and(|role| role.as_str() == Some("assistant"));
        map(&message, |name, value| match value.as_str() {
            Some(content) if answered && name.as_str() == Some("content") => {
                (name.clone(), vocabulary.quoted(content, true).into())
            }
            Some(_) | None => (name.clone(), all(&value, vocabulary)),
        })
    };
    items(messages).map(message).collect()
}

/// All texts of a value, names of fields among them.
pub(super) fn all(value: &Value, vocabulary: &Vocabulary) -> Value {
    match value.kind() {
        ValueKind::String => {
            value.as_str().map_or_else(|| value.clone(), |text| vocabulary.quoted(text, false).into())
        }
        ValueKind::Seq => items(value).map(|item| all(&item, vocabulary)).collect(),
        ValueKind::Map => map(value, |name, field| (all(name, vocabulary), all(&field, vocabulary))),
        // Nothing else comes of JSON but numbers, true, false and null.
        _ => value.clone(),
    }
}

/// A map with other fields in place of these.
fn map(fields: &Value, change: impl Fn(&Value, Value) -> (Value, Value)) -> Value {
    let field = |name: &Value| fields.get_item(name).unwrap_or(Value::UNDEFINED);
    Value::from_pairs(items(fields).map(|name| change(&name, field(&name))))
}

/// The items of a list, or the names of a map's fields, in the client's order.
fn items(value: &Value) -> impl Iterator<Item = Value> {
    value.try_iter().into_iter().flatten()
}
