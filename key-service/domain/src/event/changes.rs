//! Changes of settings: each field with its values before and after.

use serde::{Deserializer, Serializer, de, ser::SerializeMap as _};
use serde_json::value::RawValue;
use shared::wire::Value;

/// A changed setting. Values are JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Name of the field.
    pub field: String,
    /// Value before.
    pub before: String,
    /// Value after.
    pub after: String,
}

impl Change {
    /// A change from one value to another.
    pub fn new(field: &str, before: &Value, after: &Value) -> Self {
        Self { field: field.to_owned(), before: super::json(before), after: super::json(after) }
    }
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

/// Reads what [`serialize`] wrote.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Change>, D::Error> {
    deserializer.deserialize_map(Changes)
}

struct Changes;

impl<'de> de::Visitor<'de> for Changes {
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
