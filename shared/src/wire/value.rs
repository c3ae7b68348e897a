//! Values of fields, as the management API reads and writes them.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::{money::NanoUsd, time::Timestamp};

/// Value of a field, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// No value.
    Null,
    /// A text.
    Text(String),
    /// An amount.
    Amount(NanoUsd),
    /// An instant.
    Time(Timestamp),
}

/// The value as written in forms; nothing for null.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => Ok(()),
            Self::Text(text) => text.fmt(f),
            Self::Amount(amount) => amount.fmt(f),
            Self::Time(at) => at.fmt(f),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Text(text) => text.serialize(serializer),
            Self::Amount(amount) => amount.serialize(serializer),
            Self::Time(at) => at.serialize(serializer),
        }
    }
}

/// A Rust type that keeps a field's values.
pub trait Kept: Sized {
    /// The value; `None` if the value is of another type.
    fn from_value(value: Value) -> Option<Self>;

    /// The kept value.
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

kept!(String = Text, NanoUsd = Amount, Timestamp = Time);

/// `None` is null.
impl<T: Kept> Kept for Option<T> {
    fn from_value(value: Value) -> Option<Self> {
        if value == Value::Null { Some(None) } else { T::from_value(value).map(Some) }
    }

    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::to_value)
    }
}
