//! Changes of settings: each field with its values before and after.

use serde::{Deserializer, Serialize, Serializer, de, ser::SerializeMap as _};
use serde_json::value::RawValue;
use shared::wire::Value;

/// Maximum length of a change's value as JSON, in bytes. All settings except lists of models, metadata and key defaults
/// are far shorter, and an event with all settings takes a few kilobytes.
pub const MAX_CHANGE_BYTES: usize = 1024;

/// A changed setting, with its values as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub field: String,
    pub before: String,
    pub after: String,
}

impl Change {
    pub fn new(field: &str, before: &Value, after: &Value) -> Self {
        let bounded = |value: &Value| bounded(json(value));
        Self { field: field.to_owned(), before: bounded(before), after: bounded(after) }
    }
}

/// Stands in an event for a value that is longer than [`MAX_CHANGE_BYTES`]. It cannot be mistaken for a setting:
/// metadata values are strings, so no metadata has a boolean `cut`.
#[derive(Serialize)]
struct CutValue<'a> {
    /// Always `true`.
    cut: bool,
    /// Length of the whole value as JSON.
    bytes: usize,
    /// The first characters of the value's JSON.
    begins: &'a str,
}

/// Returns the value, or its beginning if it is too long.
fn bounded(value: String) -> String {
    if value.len() <= MAX_CHANGE_BYTES {
        return value;
    }
    let cut = |begins| json(&CutValue { cut: true, bytes: value.len(), begins });
    let (mut room, mut end) = (MAX_CHANGE_BYTES - cut("").len(), 0);
    for c in value.chars() {
        // The value is JSON without control characters. When the value is put into a JSON string, only these two
        // characters are escaped.
        let written = c.len_utf8() + usize::from(matches!(c, '"' | '\\'));
        if written > room {
            break;
        }
        room -= written;
        end += c.len_utf8();
    }
    cut(value.get(..end).unwrap_or_default())
}

/// Writes changes as an object: each field with its values before and after.
pub(super) fn serialize<S: Serializer>(changes: &[Change], serializer: S) -> Result<S::Ok, S::Error> {
    let raw = |text: &String| RawValue::from_string(text.clone()).map_err(serde::ser::Error::custom);
    let mut members = serializer.serialize_map(Some(changes.len()))?;
    for Change { field, before, after } in changes {
        members.serialize_entry(field, &[raw(before)?, raw(after)?])?;
    }
    members.end()
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Change>, D::Error> {
    deserializer.deserialize_map(ChangeList)
}

struct ChangeList;

impl<'de> de::Visitor<'de> for ChangeList {
    type Value = Vec<Change>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object of changes")
    }

    fn visit_map<M: de::MapAccess<'de>>(self, mut members: M) -> Result<Vec<Change>, M::Error> {
        let mut changes = Vec::new();
        while let Some((field, [before, after])) = members.next_entry::<String, [Box<RawValue>; 2]>()? {
            let (before, after) = (before.get().to_owned(), after.get().to_owned());
            changes.push(Change { field, before, after });
        }
        Ok(changes)
    }
}

#[expect(clippy::expect_used, reason = "texts, numbers and ids always have a form in JSON")]
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("an event is JSON")
}
