//! The table of fields. It has a row for each field of the objects in the management API. Request bodies are checked
//! with it, and answers, forms and the API's description are made from it.

use schemars::{Schema, SchemaGenerator, json_schema};

use super::bounds::{
    ALERT_CHANNELS, ALERT_RULES, MAX_ALERT_ADDRESS_CHARS, MAX_ALERT_INTERVAL_HOURS, MAX_ALERT_THRESHOLD,
    MAX_EXTERNAL_ID_CHARS, MAX_ID_CHARS, MAX_LABEL_CHARS, MAX_LIFETIME_SECONDS, MAX_MEMBER_NAME_CHARS,
    MAX_RATE, MAX_REASON_CHARS, ROLES, SCOPES, STATUSES,
};
use crate::{money::NanoUsd, timing::time::Timestamp};

/// Type of a field's values. It decides how a client's value is checked.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A value that only answers contain. Its schema comes from this function.
    Answered(fn(&mut SchemaGenerator) -> Schema),
    /// A text of at most `max` Unicode code points, without control characters. It is never null.
    Line {
        /// Maximum number of code points.
        max: usize,
    },
    /// A text as in [`Kind::Line`] but not empty, or null.
    ExternalId {
        /// Maximum number of code points.
        max: usize,
    },
    /// An amount in USD from 0 to [`super::bounds::MAX_LIMIT`], or null.
    Amount,
    /// An RFC 3339 time, or null.
    Time,
    /// An integer from 1 to `max`, or null.
    Count { max: u64 },
    /// Amounts for calendar windows, at most one for each length of window, or null.
    Limits,
    /// A larger amount that applies in place of the limit until a given time, or null.
    Raise,
    /// Ids of models, or null.
    Models,
    /// Texts, each with a name. A change is merged into the old texts (RFC 7396), and null removes them all.
    Metadata,
    /// Id of a group, or null.
    Group,
    /// URL to which events are sent. It is never null.
    Url,
    /// Types of events, or null.
    EventTypes,
    /// True or false. It is never null.
    Flag,
    /// USD above 0 and at most [`NanoUsd::MAX`]. Never null.
    Paid,
    /// Id of a payment.
    PaymentId {
        /// Whether null stands for none.
        or_null: bool,
    },
    /// One of these words. Never null.
    Word(&'static [&'static str]),
    /// Default settings of keys that are created in a group. A change is merged into the old settings (RFC 7396), and
    /// null removes them all.
    KeyDefaults,
}

/// A row of the table: one field of an object in the management API.
#[derive(Clone, Copy)]
pub struct Field {
    /// Name of the field in JSON, and in forms.
    pub name: &'static str,
    /// Type of the values. It decides how they are checked.
    pub kind: Kind,
    /// Description of the field for developers, in the API's reference.
    pub description: &'static str,
    /// How forms ask for the field, if they do.
    pub input: Option<Input>,
    /// Whether the field can only be set when the object is created.
    pub is_fixed: bool,
    /// Whether the field is required when the object is created.
    pub is_required: bool,
}

#[derive(Clone, Copy)]
pub struct Input {
    /// Name that the page shows for the input.
    pub title: &'static str,
    /// Explanation below the input; empty if there is none.
    pub hint: &'static str,
}

/// The fields of an object in the management API.
pub trait Fields: Copy + PartialEq + std::fmt::Debug + 'static {
    /// Returns all fields, in the order in which answers contain them.
    fn all() -> impl Iterator<Item = Self>;

    fn row(self) -> Field;

    /// Returns the fields that owners can set.
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
            /// A limit on the use of the object, or an amount that was used or is left.
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
        /// A limit on the use of a key or a group, or an amount that was used or is left.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bound { $(#[doc = concat!("`", stringify!($bound), "`")] $bound),+ }

        impl Bound {
            /// Returns all these fields, in the order in which answers contain them.
            pub fn all() -> impl Iterator<Item = Self> {
                [$(Self::$bound),+].into_iter()
            }

            /// Returns the limits that do not end by themselves. Only these may be defaults for keys.
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
        "Maximum number of requests per minute. All may come at once; the allowance then refills evenly. Null for no limit.")
        .with_input("Requests a minute", "");
    TokensPerMinute = setting("tokens_per_minute", Kind::Count { max: MAX_RATE },
        "Maximum number of tokens per minute, in prompts and answers; running answers may exceed it. Null for no limit.")
        .with_input("Tokens a minute", "");
    MaxInFlight = setting("max_in_flight", Kind::Count { max: MAX_RATE }, "Maximum number of requests in flight. Null for no limit.")
        .with_input("Requests at the same time", "");
}

/// Texts that the caller attaches to keys and groups.
const METADATA: Field = setting(
    "metadata",
    Kind::Metadata,
    "Your own strings, by name. Filter lists with `metadata[name]=value`.",
);

/// Time at which a key, a group, a webhook or an alert was created.
const CREATED_AT: Field =
    answered("created_at", SchemaGenerator::subschema_for::<Timestamp>, "Time of creation.");

fields! {
    /// A field of an API key. In answers, `id` and `object` come before the fields.
    KeyField {
        Label = setting("label", Kind::Line { max: MAX_LABEL_CHARS }, "Name chosen by the owner.")
            .with_input("Label", "");
        KeyHint = answered("key_hint", |_| json_schema!({"type": "string"}), "First and last characters of the plaintext.");
        Status = answered("status", |_| json_schema!({"type": "string", "enum": STATUSES}),
            "The first of `revoked`, `disabled`, `expired` and `active` that applies.");
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
            "Time until which the previous plaintext also works; null if only the current plaintext works.");
        GroupId = setting("group_id", Kind::Group, "The group, whose limits also apply; null for no group.")
            .with_input("Group", "The group's limits apply to all its keys together.");
        Metadata = METADATA;
    }
}

fields! {
    /// A field of a group. In answers, `id` and `object` come before the fields.
    GroupField {
        Name = setting("name", Kind::Line { max: MAX_LABEL_CHARS }, "Name chosen by the owner.")
            .with_input("Name", "");
        ExternalId = setting("external_id", Kind::ExternalId { max: MAX_EXTERNAL_ID_CHARS },
            "Your own id for the group, unique in the account; null for none.")
            .with_input("External id", "Your own id for the group. It cannot be changed later. Leave empty for none.").fixed();
        ParentId = setting("parent_id", Kind::Group, "The parent group, whose limits also apply. A parent cannot have a parent. Null for no parent.")
            .with_input("In the group", "The parent's limits apply to all its groups together.");
        ..Bound(Bound::all())
        Paid = answered("paid", SchemaGenerator::subschema_for::<Option<NanoUsd>>,
            "What payments, less refunds, have added to `limit`, which then changes in no other way. Null before the first payment.");
        KeyDefaults = setting("key_defaults", Kind::KeyDefaults,
            "Default settings for keys created in the group; null for none.");
        Metadata = METADATA;
        Keys = answered("keys", SchemaGenerator::subschema_for::<u64>, "Number of keys in the group, including revoked ones.");
        CreatedAt = CREATED_AT;
        ArchivedAt = answered("archived_at", SchemaGenerator::subschema_for::<Option<Timestamp>>,
            "Time at which the group was archived. From then on, the keys of the group and of its child groups are \
             refused.");
    }
}

fields! {
    /// A field of a webhook. In answers, `id` and `object` come before the fields.
    WebhookField {
        Url = setting("url", Kind::Url,
            "Address that events are sent to: https, or http to a loopback address such as 127.0.0.1.")
            .with_input("URL", "Begins with https://. An event is a POST, signed with the webhook's secret.").required();
        Types = setting("types", Kind::EventTypes, "Types of events to send; null for all.");
        Enabled = setting("enabled", Kind::Flag,
            "Whether events are sent. A webhook that is enabled again also gets the events from the time when it was \
             disabled.");
        CreatedAt = CREATED_AT;
        DisabledAt = answered("disabled_at", SchemaGenerator::subschema_for::<Option<Timestamp>>,
            "Time at which the webhook was disabled; null while it is enabled.");
        DisabledReason = answered("disabled_reason",
            |_| json_schema!({"enum": ["owner", "failing", "gone", "account_closed", null]}),
            "Why the webhook is disabled: `owner` if somebody set `enabled` to false; `failing` if an event could not \
             be delivered for 24 hours; `gone` if the address answered 410; `account_closed` a day after the account \
             was closed.");
    }
}

fields! {
    /// A field of an alert. Answers have `id` and `object` before the fields.
    AlertField {
        Label = setting("label", Kind::Line { max: MAX_LABEL_CHARS }, "Name of the alert, which begins its messages.");
        Rule = setting("rule", Kind::Word(&ALERT_RULES),
            "What is reported. `spend_jump`: in the last one or two hours, a key has spent `threshold` times its average hour with spend in the past week, more than twice its busiest hour, and at least a quarter of the account's usual day; a key with hardly any earlier spend counts whatever the threshold. Only the four keys that spend most are compared. `limit_share`: a key or group has used `threshold` percent of a limit. `refused`: requests are refused because a limit or the credit is used up. `credit_days`: the credit lasts for less than `threshold` days. `weekly_report`: each Monday, the spend of the last week by group.")
            .required().fixed();
        Threshold = setting("threshold", Kind::Count { max: MAX_ALERT_THRESHOLD },
            "`spend_jump`: 5 to 1,000 times; null for 5. `limit_share`: 50, 80 or 95 percent; null for 80. `credit_days`: 1 to 365 days; null for 7. Null for the other rules.");
        About = setting("about", Kind::ExternalId { max: MAX_ID_CHARS },
            "Id of a key, or of a group with its keys; null for the whole account. Null for `credit_days` and `weekly_report`.");
        Channel = setting("channel", Kind::Word(&ALERT_CHANNELS),
            "How messages are sent. `webhook`: as an event `alert.raised` to the account's webhooks, which get it from other alerts too. `email`: by mail. `slack`, `teams`: to an incoming webhook of Slack or Microsoft Teams.")
            .required().fixed();
        To = setting("to", Kind::Line { max: MAX_ALERT_ADDRESS_CHARS },
            "An email address, or the URL of the incoming webhook; empty for `webhook`. The URL is a secret: answers only show its host.");
        IntervalHours = setting("interval_hours", Kind::Count { max: MAX_ALERT_INTERVAL_HOURS },
            "There is at most one message about the same key, group or account in this many hours; null for 24. A weekly report is sent on Mondays, whatever this says.");
        Enabled = setting("enabled", Kind::Flag, "Whether messages are sent. Events while it is off are not reported later.");
        CreatedAt = CREATED_AT;
    }
}

fields! {
    /// A setting of an account.
    AccountField {
        Name = setting("name", Kind::Line { max: MAX_LABEL_CHARS }, "Name of the account, unique in the installation. Its members sign in with it.")
            .fixed().required();
        ExternalId = setting("external_id", Kind::ExternalId { max: MAX_EXTERNAL_ID_CHARS },
            "Your own id for the account, unique in the installation. It cannot be changed once it is set. Null for none.");
        Metadata = METADATA;
    }
}

fields! {
    /// A setting of a suspension.
    SuspensionField {
        Reason = setting("reason", Kind::Line { max: MAX_REASON_CHARS }, "Why the account is suspended. Its members see it.").required();
    }
}

fields! {
    /// A setting of a new management key.
    ManagementKeyField {
        Name = setting("name", Kind::Line { max: MAX_LABEL_CHARS }, "Name of the key.").required();
        Scope = setting("scope", Kind::Word(&SCOPES), "`full`, or `read` for a key that changes nothing.");
        GroupId = setting("group_id", Kind::Group, "Limits the key to the API keys of this group and its child groups; null for the whole account.");
        ExpiresAt = setting("expires_at", Kind::Time, "Time of expiry; null for never.");
    }
}

fields! {
    /// A setting of a new member.
    MemberField {
        Name = setting("name", Kind::Line { max: MAX_MEMBER_NAME_CHARS }, "An e-mail address or any handle, unique in the account.").required();
        Role = setting("role", Kind::Word(&ROLES), "`owner`, `viewer` (reads everything, changes nothing) or `lead` (manages the API keys of one group).");
        GroupId = setting("group_id", Kind::Group, "The group of a lead; null for the other roles.");
    }
}

fields! {
    /// A setting of the keys that are created in a group.
    DefaultField {
        ..Bound(Bound::lasting())
        ExpiresInSeconds = setting("expires_in_seconds", Kind::Count { max: MAX_LIFETIME_SECONDS },
            "Seconds from the creation of a key to its expiry; null for no expiry.");
        Metadata = METADATA;
    }
}

pub(super) const fn setting(name: &'static str, kind: Kind, description: &'static str) -> Field {
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

    pub(super) const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }
}
