//! Conversions of calls and answers to and from protobuf messages.

mod answers;
mod calls;
mod course;
mod usage;

use std::str::FromStr;

/// A message whose field is missing or malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {problem}")]
pub struct Malformed {
    pub field: &'static str,
    pub problem: String,
}

pub(super) fn id<T: FromStr<Err: ToString>>(field: &'static str, text: &str) -> Result<T, Malformed> {
    text.parse().map_err(|e: T::Err| Malformed { field, problem: e.to_string() })
}

pub(super) fn missing(field: &'static str) -> Malformed {
    Malformed { field, problem: "is missing or unknown".into() }
}
