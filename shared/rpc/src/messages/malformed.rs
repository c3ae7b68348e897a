//! Errors about messages that cannot be read.

use std::str::FromStr;

/// A message in which a field is missing or malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {problem}")]
pub struct Malformed {
    pub field: &'static str,
    pub problem: String,
}

pub(crate) fn id<T: FromStr<Err: ToString>>(field: &'static str, text: &str) -> Result<T, Malformed> {
    text.parse().map_err(|e: T::Err| Malformed { field, problem: e.to_string() })
}

pub(crate) fn missing(field: &'static str) -> Malformed {
    Malformed { field, problem: "is missing or unknown".into() }
}
