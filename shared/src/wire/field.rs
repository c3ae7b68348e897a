//! The table of fields: a row for each field that the management API's objects have. Request bodies, answers, forms and the
//! API's description are read from the rows.

use schemars::{Schema, SchemaGenerator, json_schema};

use super::{MAX_LABEL_CHARS, STATUSES};
use crate::{money::NanoUsd, time::Timestamp};

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
    /// USD from 0 to [`super::MAX_LIMIT`], or null.
    Amount,
    /// An instant, or null.
    Time,
}

/// A row of the table: one field of an object in the management API.
#[derive(Clone, Copy)]
pub struct Field {
    /// Name of the field in JSON, and in forms.
    pub name: &'static str,
    /// Type and check of the values.
    pub kind: Kind,
    /// Description for developers.
    pub description: &'static str,
    /// Input of the field in forms, if forms have one.
    pub input: Option<Input>,
}

/// Input of a form.
#[derive(Clone, Copy)]
pub struct Input {
    /// Name of the input on the page.
    pub title: &'static str,
    /// Explanation below the input; empty for none.
    pub hint: &'static str,
}

macro_rules! fields {
    ($(#[$doc:meta])* $object:ident { $($variant:ident = $field:expr;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $object { $(#[doc = concat!("`", stringify!($variant), "`")] $variant),+ }

        impl $object {
            /// Every field, in the order of answers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Row of the field.
            pub const fn row(self) -> Field {
                match self { $(Self::$variant => $field),+ }
            }
        }
    };
}

fields! {
    /// A field of an API key. In answers `id` and `object` stand before the fields.
    KeyField {
        Label = setting("label", Kind::Line { max: MAX_LABEL_CHARS }, "Name chosen by the owner.")
            .with_input("Label", "");
        KeyHint = answered("key_hint", |_| json_schema!({"type": "string"}), "First and last characters of the plaintext.");
        Status = answered("status", |_| json_schema!({"type": "string", "enum": STATUSES}),
            "`revoked`, else `expired`, else `active`.");
        Limit = setting("limit", Kind::Amount, "Largest amount that may ever be spent, in US dollars; null is no limit.")
            .with_input("Limit (USD)", "The most it may ever spend. Empty: no limit but the credit.");
        Used = answered("used", SchemaGenerator::subschema_for::<NanoUsd>, "Amount spent so far.");
        LimitRemaining = answered("limit_remaining", SchemaGenerator::subschema_for::<Option<NanoUsd>>,
            "`limit - used`, below zero if the limit was lowered below `used`.");
        CreatedAt = answered("created_at", SchemaGenerator::subschema_for::<Timestamp>, "Time of creation.");
        ExpiresAt = setting("expires_at", Kind::Time, "Time of expiry; null is never.")
            .with_input("Expires", "In UTC. Empty: never.");
        LastUsedAt = answered("last_used_at", SchemaGenerator::subschema_for::<Option<Timestamp>>,
            "Time of the last billed request.");
        RevokedAt = answered("revoked_at", SchemaGenerator::subschema_for::<Option<Timestamp>>, "Time of the revocation.");
    }
}

const fn setting(name: &'static str, kind: Kind, description: &'static str) -> Field {
    Field { name, kind, description, input: None }
}

const fn answered(
    name: &'static str,
    schema: fn(&mut SchemaGenerator) -> Schema,
    description: &'static str,
) -> Field {
    setting(name, Kind::Answered(schema), description)
}

impl Field {
    const fn with_input(self, title: &'static str, hint: &'static str) -> Self {
        Self { input: Some(Input { title, hint }), ..self }
    }

    /// Returns whether owners set the field.
    pub const fn is_setting(self) -> bool {
        !matches!(self.kind, Kind::Answered(_))
    }
}

impl Kind {
    /// Schema of the values in answers.
    pub(super) fn answered(self, schemas: &mut SchemaGenerator) -> Schema {
        match self {
            Self::Answered(schema) => schema(schemas),
            Self::Line { max } => json_schema!({"type": "string", "maxLength": max}),
            Self::Amount => schemas.subschema_for::<Option<NanoUsd>>(),
            Self::Time => schemas.subschema_for::<Option<Timestamp>>(),
        }
    }

    /// Schema of the values in requests, where requests have the field.
    pub(super) fn requested(self) -> Option<Schema> {
        match self {
            Self::Answered(_) => None,
            Self::Line { max } => Some(
                json_schema!({"type": "string", "maxLength": max, "pattern": r"^[^\x00-\x1f\x7f-\x9f]*$"}),
            ),
            Self::Amount => Some(
                json_schema!({"type": ["number", "null"], "minimum": 0, "maximum": super::MAX_LIMIT_USD}),
            ),
            Self::Time => Some(json_schema!({"type": ["string", "null"], "format": "date-time"})),
        }
    }
}
