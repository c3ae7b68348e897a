//! Types of fields: the schema of their values in requests and in answers.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{
    DefaultField, Fields, MAX_LIMIT_USD, MAX_LIMITS, MAX_METADATA, MAX_METADATA_NAME_CHARS,
    MAX_METADATA_VALUE_CHARS, MAX_MODEL_CHARS, MAX_MODELS, STATUSES, described, properties,
};
use crate::{calendar::Per, ids::GroupId, money::NanoUsd, time::Timestamp};

/// Type of a field's values, and the check of a value that a client sends.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A value with this schema, which answers have and no request sets.
    Answered(fn(&mut SchemaGenerator) -> Schema),
    /// Text of at most `max` Unicode code points, without control characters. Never null.
    Line {
        /// Largest number of code points.
        max: usize,
    },
    /// Text like [`Kind::Line`], not empty, or null.
    ExternalId {
        /// Largest number of code points.
        max: usize,
    },
    /// USD from 0 to [`super::MAX_LIMIT`], or null.
    Amount,
    /// An instant, or null.
    Time,
    /// An integer from 1 to `max`, or null.
    Count {
        /// Largest number.
        max: u64,
    },
    /// Amounts for windows of the calendar, each length of window once, or null.
    Limits,
    /// Ids of models, or null.
    Models,
    /// Texts by name. A change merges them (RFC 7396), and null clears them.
    Metadata,
    /// Id of a group, or null.
    Group,
    /// Settings of keys that are made in a group. A change merges them (RFC 7396), and null clears them.
    KeyDefaults,
}

/// A bound on the spend in each window of the calendar.
#[derive(JsonSchema)]
#[schemars(rename = "Limit")]
#[expect(
    dead_code,
    reason = "values are read and written by the table of fields; only the schema is made from this type"
)]
struct LimitSchema {
    /// Amount that may be spent in a window.
    amount: NanoUsd,
    /// Length of the windows.
    per: Per,
    /// Amount spent in the window that runs.
    used: NanoUsd,
    /// `amount - used`, below zero if the amount was lowered below `used`.
    remaining: NanoUsd,
    /// End of the window that runs.
    resets_at: Timestamp,
}

/// Schema of a text.
pub(super) fn text(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string"})
}

/// Schema of a key's status.
pub(super) fn word(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": STATUSES})
}

impl Kind {
    /// Schema of the values in answers.
    pub(super) fn answered(self, schemas: &mut SchemaGenerator) -> Schema {
        match self {
            Self::Answered(schema) => schema(schemas),
            Self::Line { max } => json_schema!({"type": "string", "maxLength": max}),
            Self::ExternalId { max } => json_schema!({"type": ["string", "null"], "maxLength": max}),
            Self::Amount => schemas.subschema_for::<Option<NanoUsd>>(),
            Self::Time => schemas.subschema_for::<Option<Timestamp>>(),
            Self::Limits => schemas.subschema_for::<Option<Vec<LimitSchema>>>(),
            Self::Group => schemas.subschema_for::<Option<GroupId>>(),
            Self::Metadata => json_schema!({"type": "object", "additionalProperties": {"type": "string"}}),
            Self::KeyDefaults => {
                let (properties, required) = properties::<DefaultField>(schemas, DefaultField::settings());
                json_schema!({"type": ["object", "null"], "properties": properties, "required": required})
            }
            Self::Count { .. } | Self::Models => self.requested(schemas),
        }
    }

    /// Schema of the values in requests.
    pub(super) fn requested(self, schemas: &mut SchemaGenerator) -> Schema {
        match self {
            Self::Answered(schema) => schema(schemas),
            Self::Line { max } => json_schema!({"type": "string", "maxLength": max, "pattern": NO_CONTROL}),
            Self::ExternalId { max } => {
                json_schema!({"type": ["string", "null"], "minLength": 1, "maxLength": max, "pattern": NO_CONTROL})
            }
            Self::Amount => {
                json_schema!({"type": ["number", "null"], "minimum": 0, "maximum": MAX_LIMIT_USD})
            }
            Self::Time => json_schema!({"type": ["string", "null"], "format": "date-time"}),
            Self::Count { max } => json_schema!({"type": ["integer", "null"], "minimum": 1, "maximum": max}),
            Self::Limits => json_schema!({"type": ["array", "null"], "maxItems": MAX_LIMITS, "items": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "amount": {"type": "number", "minimum": 0, "maximum": MAX_LIMIT_USD},
                    "per": schemas.subschema_for::<Per>(),
                },
                "required": ["amount", "per"],
            }}),
            Self::Models => json_schema!({"type": ["array", "null"], "minItems": 1, "maxItems": MAX_MODELS,
                "items": {"type": "string", "minLength": 1, "maxLength": MAX_MODEL_CHARS}}),
            Self::Metadata => json_schema!({"type": ["object", "null"], "maxProperties": MAX_METADATA,
                "propertyNames": {"minLength": 1, "maxLength": MAX_METADATA_NAME_CHARS},
                "additionalProperties": {"type": ["string", "null"], "maxLength": MAX_METADATA_VALUE_CHARS}}),
            Self::Group => schemas.subschema_for::<Option<GroupId>>(),
            Self::KeyDefaults => {
                let settings = DefaultField::settings().map(|field| {
                    let row = field.row();
                    (row.name.to_owned(), described(row.kind.requested(schemas), row.description))
                });
                let properties: serde_json::Map<String, serde_json::Value> = settings.collect();
                json_schema!({"type": ["object", "null"], "additionalProperties": false, "properties": properties})
            }
        }
    }
}

/// Pattern of texts without control characters.
const NO_CONTROL: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";
