//! Values of fields, as the management API reads and writes them.

use std::{collections::BTreeMap, fmt};

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::field::{DefaultField, Fields};
use crate::{
    ids::GroupId,
    money::NanoUsd,
    timing::{calendar::Per, time::Timestamp},
};

/// A checked value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Null,
    Text(String),
    Amount(NanoUsd),
    Time(Timestamp),
    Count(u64),
    Flag(bool),
    /// Amounts for calendar windows.
    Limits(Vec<Limit>),
    Raise(Raise),
    Texts(Vec<String>),
    /// Texts by name; `None` removes a name.
    Metadata(BTreeMap<String, Option<String>>),
    Group(GroupId),
    /// Default settings of keys made in a group.
    KeyDefaults(Vec<(DefaultField, Self)>),
}

/// A bound on the spend in each calendar window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Amount that may be spent in a window.
    pub amount: NanoUsd,
    pub per: Per,
    /// Bound that applies instead of `amount` for a time.
    pub raised: Option<Raise>,
    /// State of the current window, in answers.
    pub window: Option<LimitWindow>,
}

/// A bound that applies until an instant, instead of a limit's own amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize, JsonSchema)]
pub struct Raise {
    /// Amount that may be spent until then.
    #[n(0)]
    pub amount: NanoUsd,
    /// Instant from which the limit's own amount applies again.
    #[n(1)]
    pub until: Timestamp,
}

/// The running window of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitWindow {
    /// Amount spent in the window.
    pub used: NanoUsd,
    /// Amount left; below zero if the bound was lowered below `used`.
    pub remaining: NanoUsd,
    pub resets_at: Timestamp,
}

impl Limit {
    /// Makes a limit that is not raised.
    pub const fn new(amount: NanoUsd, per: Per) -> Self {
        Self { amount, per, raised: None, window: None }
    }
}

impl Raise {
    pub fn has_ended(&self, now: Timestamp) -> bool {
        self.until <= now
    }
}

/// Writes `raised` in every answer, but in settings only if it is set, so that settings without a raise look as they
/// did before raises existed.
impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("amount", &self.amount)?;
        members.serialize_entry("per", &self.per)?;
        if self.raised.is_some() || self.window.is_some() {
            members.serialize_entry("raised", &self.raised)?;
        }
        if let Some(LimitWindow { used, remaining, resets_at }) = &self.window {
            members.serialize_entry("used", used)?;
            members.serialize_entry("remaining", remaining)?;
            members.serialize_entry("resets_at", resets_at)?;
        }
        members.end()
    }
}

impl Value {
    /// Returns the value as a request sets it, without the state of windows.
    #[must_use]
    pub fn setting(self) -> Self {
        let Self::Limits(limits) = self else { return self };
        Self::Limits(limits.into_iter().map(|limit| Limit { window: None, ..limit }).collect())
    }

    /// Returns whether a setting with this value counts as never set.
    pub fn is_unset(&self) -> bool {
        *self == Self::Null || *self == Self::Metadata(BTreeMap::new()) || *self == Self::Text(String::new())
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Text(text) => text.serialize(serializer),
            Self::Amount(amount) => amount.serialize(serializer),
            Self::Time(at) => at.serialize(serializer),
            Self::Count(count) => count.serialize(serializer),
            Self::Flag(flag) => flag.serialize(serializer),
            Self::Limits(limits) => limits.serialize(serializer),
            Self::Raise(raise) => raise.serialize(serializer),
            Self::Texts(texts) => texts.serialize(serializer),
            Self::Metadata(texts) => texts.serialize(serializer),
            Self::Group(id) => id.serialize(serializer),
            Self::KeyDefaults(settings) => {
                let mut members = serializer.serialize_map(Some(settings.len()))?;
                for (field, value) in settings {
                    members.serialize_entry(field.row().name, value)?;
                }
                members.end()
            }
        }
    }
}

/// Writes the value for forms and digests: nothing for null, plain text for a text, number or time, JSON otherwise.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => Ok(()),
            Self::Text(text) => text.fmt(f),
            Self::Amount(amount) => amount.fmt(f),
            Self::Time(at) => at.fmt(f),
            Self::Count(count) => count.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::Group(id) => id.fmt(f),
            Self::Limits(_) | Self::Raise(_) | Self::Texts(_) | Self::Metadata(_) | Self::KeyDefaults(_) => {
                f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
            }
        }
    }
}

/// A Rust type that holds a field's values.
pub trait Kept: Sized {
    /// Converts a value; `None` if it is of another type.
    fn from_value(value: Value) -> Option<Self>;

    fn to_value(&self) -> Value;
}

macro_rules! kept {
    ($($type:ty = $variant:ident),+) => {
        $(impl Kept for $type {
            fn from_value(value: Value) -> Option<Self> {
                if let Value::$variant(kept) = value { Some(kept) } else { None }
            }

            fn to_value(&self) -> Value {
                Value::$variant(self.clone())
            }
        })+
    };
}

kept!(
    String = Text,
    NanoUsd = Amount,
    Timestamp = Time,
    u64 = Count,
    bool = Flag,
    Vec<Limit> = Limits,
    Raise = Raise,
    Vec<String> = Texts,
    GroupId = Group
);

/// `None` is written as null.
impl<T: Kept> Kept for Option<T> {
    fn from_value(value: Value) -> Option<Self> {
        if value == Value::Null { Some(None) } else { T::from_value(value).map(Some) }
    }

    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::to_value)
    }
}
