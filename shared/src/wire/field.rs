//! The table of fields, with a row for each field of the management API's objects. Checks of request bodies, answers,
//! forms and the API's description all come from it.

use schemars::{Schema, SchemaGenerator, json_schema};

use super::bounds::{MAX_EXTERNAL_ID_CHARS, MAX_LABEL_CHARS, MAX_LIFETIME_SECONDS, MAX_RATE, STATUSES};
use crate::{money::NanoUsd, timing::time::Timestamp};

/// Type of a field's values, and the check of a value that a client sends.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A value with this schema that only answers contain.
    Answered(fn(&mut SchemaGenerator) -> Schema),
    /// Text of at most `max` Unicode code points, without control characters. Never null.
    Line {
        /// Maximum number of code points.
        max: usize,
    },
    /// Text like [`Kind::Line`], not empty, or null.
    ExternalId {
        /// Maximum number of code points.
        max: usize,
    },
    /// USD from 0 to [`super::bounds::MAX_LIMIT`], or null.
    Amount,
    /// An RFC 3339 time, or null.
    Time,
    /// An integer from 1 to `max`, or null.
    Count { max: u64 },
    /// Amounts for calendar windows, at most one per length, or null.
    Limits,
    /// A larger amount in place of the limit until a time, or null.
    Raise,
    /// Ids of models, or null.
    Models,
    /// Texts by name. A change merges them (RFC 7396), and null clears them.
    Metadata,
    /// Id of a group, or null.
    Group,
    /// URL that events are sent to. Never null.
    Url,
    /// Types of events, or null.
    EventTypes,
    /// True or false. Never null.
    Flag,
    /// Default settings of keys made in a group. A change merges them (RFC 7396), and null clears them.
    KeyDefaults,
}

/// A row of the table: one field of an object in the management API.
#[derive(Clone, Copy)]
pub struct Field {
    /// Name of the field in JSON, and in forms.
    pub name: &'static str,
    /// Type of the values, and how they are checked.
    pub kind: Kind,
    /// Description in the API's reference, for developers.
    pub description: &'static str,
    /// The field's input in forms, if it has one.
    pub input: Option<Input>,
    /// Whether the field can only be set when the object is created.
    pub is_fixed: bool,
    /// Whether the field is required when the object is created.
    pub is_required: bool,
}

#[derive(Clone, Copy)]
pub struct Input {
    /// Name of the input on the page.
    pub title: &'static str,
    /// Explanation below the input; empty for none.
    pub hint: &'static str,
}

/// Fields of an object in the management API.
pub trait Fields: Copy + PartialEq + std::fmt::Debug + 'static {
    /// Returns every field, in the order of answers.
    fn all() -> impl Iterator<Item = Self>;

    fn row(self) -> Field;

    /// Returns the fields that owners set.
    fn settings() -> impl Iterator<Item = Self> {
        Self::all().filter(|field| !matches!(field.row().kind, Kind::Answered(_)))
    }
}

macro_rules! fields {
    ($(#[$doc:meta])* $object:ident { $($field:ident = $row:expr;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $object { $(#[doc = concat!("`", stringify!($field), "`")] $field,)+ }

        impl Fields for $object {
            fn all() -> impl Iterator<Item = Self> {
                [$(Self::$field),+].into_iter()
            }

            fn row(self) -> Field {
                match self { $(Self::$field => $row,)+ }
            }
        }
    };
    (
        $(#[$doc:meta])* $object:ident {
            $($before:ident = $row_before:expr;)*
            ..Bound($bounds:expr)
            $($after:ident = $row_after:expr;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $object {
            $(#[doc = concat!("`", stringify!($before), "`")] $before,)*
            /// A field of the budget.
            Bound(Bound),
            $(#[doc = concat!("`", stringify!($after), "`")] $after,)*
        }

        impl Fields for $object {
            fn all() -> impl Iterator<Item = Self> {
                let bounds = $bounds.map(Self::Bound);
                let before: &[Self] = &[$(Self::$before),*];
                before.iter().copied().chain(bounds).chain([$(Self::$after),*])
            }

            fn row(self) -> Field {
                match self {
                    $(Self::$before => $row_before,)*
                    Self::Bound(bound) => bound.row(),
                    $(Self::$after => $row_after,)*
                }
            }
        }
    };
}

macro_rules! bounds {
    ($($bound:ident = $row:expr;)+) => {
        /// A bound on the use of a key or a group, or its usage.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bound { $(#[doc = concat!("`", stringify!($bound), "`")] $bound),+ }

        impl Bound {
            /// Returns every bound, in the order of answers.
            pub fn all() -> impl Iterator<Item = Self> {
                [$(Self::$bound),+].into_iter()
            }

            /// Returns the bounds that do not expire. Only these may be key defaults.
            fn lasting() -> impl Iterator<Item = Self> {
                Self::all().filter(|bound| *bound != Self::LimitRaised)
            }

            const fn row(self) -> Field {
                match self { $(Self::$bound => $row),+ }
            }
        }
    };
}

bounds! {
    Limit = setting("limit", Kind::Amount, "Maximum amount that may ever be spent, in US dollars; null for no limit.")
        .with_input("Limit (USD)", "Maximum amount that may ever be spent. Leave empty to limit it only by the credit.");
    Used = answered("used", SchemaGenerator::subschema_for::<NanoUsd>, "Amount spent so far.");
    LimitRemaining = answered("limit_remaining", SchemaGenerator::subschema_for::<Option<NanoUsd>>,
        "`limit - used`, or `limit_raised.amount - used` during a raise; below zero if the limit was lowered below `used` or a raise ended.");
    LimitRaised = setting("limit_raised", Kind::Raise,
        "A larger amount that applies instead of `limit` until a time, at most 366 days ahead. Changing only `limit` ends the raise. Null for none; a raise that has ended is not shown.")
        .with_input("Limit raised", "");
    Limits = setting("limits", Kind::Limits,
        "Maximum amounts per calendar window, in UTC; weeks begin on Monday. `raised` applies instead of `amount` until a time. Null for no limits.")
        .with_input("Resets", "");
    Models = setting("models", Kind::Models, "Ids of the models that may be used; null for all.")
        .with_input("Models", "Prices are per million tokens.");
    RequestsPerMinute = setting("requests_per_minute", Kind::Count { max: MAX_RATE },
        "Maximum number of requests per minute, as a token bucket: all of them at once, refilled evenly. Null for no limit.")
        .with_input("Requests a minute", "");
    TokensPerMinute = setting("tokens_per_minute", Kind::Count { max: MAX_RATE },
        "Maximum number of tokens per minute, in prompts and answers; running answers may exceed it. Null for no limit.")
        .with_input("Tokens a minute", "");
    MaxInFlight = setting("max_in_flight", Kind::Count { max: MAX_RATE }, "Maximum number of requests in flight. Null for no limit.")
        .with_input("Requests at the same time", "");
}

/// The caller's own texts, on keys and groups.
const METADATA: Field = setting(
    "metadata",
    Kind::Metadata,
    "Your own strings, by name. Filter lists with `metadata[name]=value`.",
);

/// The time of creation, on keys, groups and webhooks.
const CREATED_AT: Field =
    answered("created_at", SchemaGenerator::subschema_for::<Timestamp>, "Time of creation.");

fields! {
    /// A field of an API key. Answers have `id` and `object` before the fields.
    KeyField {
        Label = setting("label", Kind::Line { max: MAX_LABEL_CHARS }, "Name chosen by the owner.")
            .with_input("Label", "");
        KeyHint = answered("key_hint", |_| json_schema!({"type": "string"}), "First and last characters of the plaintext.");
        Status = answered("status", |_| json_schema!({"type": "string", "enum": STATUSES}), "`revoked`, else `disabled`, else `expired`, else `active`.");
        ..Bound(Bound::all())
        CreatedAt = CREATED_AT;
        ExpiresAt = setting("expires_at", Kind::Time, "Time of expiry; null for never.")
            .with_input("Expires", "Leave empty to never expire.");
        Disabled = setting("disabled", Kind::Flag, "Whether requests with the key are refused. Set it to false to enable the key again.")
            .with_input("Disabled", "Requests are refused until the key is enabled again.");
        LastUsedAt = answered("last_used_at", SchemaGenerator::subschema_for::<Option<Timestamp>>,
            "Time of the last billed request.");
        RevokedAt = answered("revoked_at", SchemaGenerator::subschema_for::<Option<Timestamp>>, "Time of the revocation.");
        PreviousKeyExpiresAt = answered("previous_key_expires_at", SchemaGenerator::subschema_for::<Option<Timestamp>>,
            "Time until which the previous plaintext also works; null if only the current one works.");
        GroupId = setting("group_id", Kind::Group, "The group, whose limits also apply; null for no group.")
            .with_input("Group", "The group's limits apply to all its keys together.");
        Metadata = METADATA;
    }
}

fields! {
    /// A field of a group. Answers have `id` and `object` before the fields.
    GroupField {
        Name = setting("name", Kind::Line { max: MAX_LABEL_CHARS }, "Name chosen by the owner.")
            .with_input("Name", "");
        ExternalId = setting("external_id", Kind::ExternalId { max: MAX_EXTERNAL_ID_CHARS },
            "Your own id for the group, unique in the account; null for none.")
            .with_input("External id", "Your own id for the group. It cannot be changed later. Leave empty for none.").fixed();
        ParentId = setting("parent_id", Kind::Group, "The parent group, whose limits also apply. A parent cannot have a parent. Null for no parent.")
            .with_input("In the group", "The parent's limits apply to all its groups together.");
        ..Bound(Bound::all())
        KeyDefaults = setting("key_defaults", Kind::KeyDefaults,
            "Default settings for keys created in the group; null for none.");
        Metadata = METADATA;
        Keys = answered("keys", SchemaGenerator::subschema_for::<u64>, "Number of keys in the group, including revoked ones.");
        CreatedAt = CREATED_AT;
        ArchivedAt = answered("archived_at", SchemaGenerator::subschema_for::<Option<Timestamp>>,
            "Time from which the keys of the group and of its child groups are refused.");
    }
}

fields! {
    /// A field of a webhook. Answers have `id` and `object` before the fields.
    WebhookField {
        Url = setting("url", Kind::Url,
            "Address that events are sent to: https, or http to a loopback address such as 127.0.0.1.")
            .with_input("URL", "Begins with https://. An event is a POST, signed with the webhook's secret.").required();
        Types = setting("types", Kind::EventTypes, "Types of events to send; null for all.");
        Enabled = setting("enabled", Kind::Flag,
            "Whether events are sent. After enabling it again, a webhook also gets the events since it was disabled.");
        CreatedAt = CREATED_AT;
        DisabledAt = answered("disabled_at", SchemaGenerator::subschema_for::<Option<Timestamp>>,
            "Time since which no events are sent.");
        DisabledReason = answered("disabled_reason",
            |_| json_schema!({"enum": ["owner", "failing", "gone", null]}),
            "`owner`; `failing` if an event could not be delivered for 24 hours; `gone` if the address answered 410.");
    }
}

fields! {
    /// A setting of keys made in a group.
    DefaultField {
        ..Bound(Bound::lasting())
        ExpiresInSeconds = setting("expires_in_seconds", Kind::Count { max: MAX_LIFETIME_SECONDS },
            "Seconds from the creation of a key to its expiry; null for no expiry.");
        Metadata = METADATA;
    }
}

const fn setting(name: &'static str, kind: Kind, description: &'static str) -> Field {
    Field { name, kind, description, input: None, is_fixed: false, is_required: false }
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

    const fn fixed(self) -> Self {
        Self { is_fixed: true, ..self }
    }

    const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }
}
