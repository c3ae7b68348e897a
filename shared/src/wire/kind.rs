//! Schemas of fields, in requests and in answers.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{
    bounds::{
        MAX_LIMIT_USD, MAX_LIMITS, MAX_METADATA, MAX_METADATA_NAME_CHARS, MAX_METADATA_VALUE_CHARS,
        MAX_MODEL_CHARS, MAX_MODELS, MAX_URL_CHARS,
    },
    event::EVENT_TYPES,
    field::{DefaultField, Field, Fields, Kind},
    value::Raise,
};
use serde_json::{Map, Value};

use crate::{
    ids::GroupId,
    money::NanoUsd,
    timing::{calendar::Per, time::Timestamp},
};

/// A bound on the spend in each calendar window.
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
    /// Bound that applies instead of `amount` for a time; null for none. A raise that has ended is not shown.
    raised: Option<Raise>,
    /// Amount spent in the current window.
    used: NanoUsd,
    /// `amount - used`, or `raised.amount - used` during a raise; below zero if the amount was lowered below `used` or
    /// a raise ended.
    remaining: NanoUsd,
    /// End of the current window.
    resets_at: Timestamp,
}

impl Kind {
    /// Returns the schema of the values in answers.
    pub(super) fn answered(self, schemas: &mut SchemaGenerator) -> Schema {
        match self {
            Self::Answered(schema) => schema(schemas),
            Self::Line { max } => json_schema!({"type": "string", "maxLength": max}),
            Self::ExternalId { max } => json_schema!({"type": ["string", "null"], "maxLength": max}),
            Self::Amount => schemas.subschema_for::<Option<NanoUsd>>(),
            Self::Time => schemas.subschema_for::<Option<Timestamp>>(),
            Self::Limits => schemas.subschema_for::<Option<Vec<LimitSchema>>>(),
            Self::Raise => schemas.subschema_for::<Option<Raise>>(),
            Self::Group => schemas.subschema_for::<Option<GroupId>>(),
            Self::Metadata => json_schema!({"type": "object", "additionalProperties": {"type": "string"}}),
            Self::KeyDefaults => {
                let settings = DefaultField::settings();
                let (properties, required) = properties(schemas, settings, Self::defaulted);
                json_schema!({"type": ["object", "null"], "properties": properties, "required": required})
            }
            Self::Url => json_schema!({"type": "string", "format": "uri"}),
            Self::Count { .. } | Self::Models | Self::EventTypes | Self::Flag | Self::Choice { .. } => {
                self.requested(schemas)
            }
        }
    }

    /// Returns the schema of the values in key defaults, which have no usage.
    fn defaulted(self, schemas: &mut SchemaGenerator) -> Schema {
        if matches!(self, Self::Limits) { limits(schemas, None) } else { self.answered(schemas) }
    }

    /// Returns the schema of the values in requests.
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
            Self::Limits => limits(schemas, Some(raise())),
            Self::Raise => raise(),
            Self::Models => json_schema!({"type": ["array", "null"], "minItems": 1, "maxItems": MAX_MODELS,
                "items": {"type": "string", "minLength": 1, "maxLength": MAX_MODEL_CHARS}}),
            Self::Metadata => json_schema!({"type": ["object", "null"], "maxProperties": MAX_METADATA,
                "propertyNames": {"minLength": 1, "maxLength": MAX_METADATA_NAME_CHARS},
                "additionalProperties": {"type": ["string", "null"], "maxLength": MAX_METADATA_VALUE_CHARS}}),
            Self::Group => schemas.subschema_for::<Option<GroupId>>(),
            Self::Url => json_schema!({"type": "string", "format": "uri", "maxLength": MAX_URL_CHARS}),
            Self::EventTypes => json_schema!({"type": ["array", "null"], "minItems": 1,
                "maxItems": EVENT_TYPES.len(), "uniqueItems": true, "items": {"enum": EVENT_TYPES}}),
            Self::Flag => json_schema!({"type": "boolean"}),
            Self::Choice { of } => json_schema!({"enum": of}),
            Self::KeyDefaults => {
                let settings = DefaultField::settings().map(|field| {
                    let (row, is_limits) = (field.row(), matches!(field.row().kind, Self::Limits));
                    let of = if is_limits { limits(schemas, None) } else { row.kind.requested(schemas) };
                    (row.name.to_owned(), described(of, row.description))
                });
                let properties: Map<String, Value> = settings.collect();
                json_schema!({"type": ["object", "null"], "additionalProperties": false, "properties": properties})
            }
        }
    }
}

/// Returns the schema of limits by window in requests. `raised` is the schema of a raise, if raises are allowed.
fn limits(schemas: &mut SchemaGenerator, raised: Option<Schema>) -> Schema {
    let mut properties = Map::new();
    properties.insert("amount".into(), amount().to_value());
    properties.insert("per".into(), schemas.subschema_for::<Per>().to_value());
    if let Some(raised) = raised {
        properties.insert("raised".into(), raised.to_value());
    }
    json_schema!({"type": ["array", "null"], "maxItems": MAX_LIMITS, "items": {
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
        "required": ["amount", "per"],
    }})
}

/// Returns the schema of a raise in requests.
fn raise() -> Schema {
    json_schema!({
        "type": ["object", "null"],
        "additionalProperties": false,
        "properties": {"amount": amount(), "until": {"type": "string", "format": "date-time"}},
        "required": ["amount", "until"],
    })
}

fn amount() -> Schema {
    json_schema!({"type": "number", "minimum": 0, "maximum": MAX_LIMIT_USD})
}

/// Pattern of texts without control characters.
const NO_CONTROL: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";

/// Returns the schemas and names of the fields in answers. `of` makes the schema of a field's values.
pub(super) fn properties<F: Fields>(
    schemas: &mut SchemaGenerator,
    fields: impl Iterator<Item = F>,
    of: fn(Kind, &mut SchemaGenerator) -> Schema,
) -> (Map<String, Value>, Vec<&'static str>) {
    let rows: Vec<_> = fields.map(Fields::row).collect();
    let schema = |row: &Field| (row.name.to_owned(), described(of(row.kind, schemas), row.description));
    (rows.iter().map(schema).collect(), rows.iter().map(|row| row.name).collect())
}

/// Adds a description to a schema.
pub(super) fn described(mut schema: Schema, description: &str) -> Value {
    schema.insert("description".into(), description.into());
    schema.to_value()
}
