//! The JSON of an error.

use schemars::JsonSchema;
use serde::Serialize;

use super::ApiError;
use crate::{text::cut, timing::time::Timestamp};

/// Most characters of an error's message: a longer one only repeats its input.
const MAX_MESSAGE_CHARS: usize = 2_000;
/// Most characters of the place that an error names.
const MAX_PARAM_CHARS: usize = 300;

/// The body of an error: `{"error":{"message","type","param","code"}}`, all four always present.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Error")]
pub struct ErrorBody<'a> {
    error: ErrorFields<'a>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(inline)]
struct ErrorFields<'a> {
    message: &'a str,
    r#type: &'a str,
    param: Option<&'a str>,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resets_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    valid_models: &'a [String],
}

impl ApiError {
    /// Writes the error's JSON, as a body or as an event of a stream. Text repeated from the request is cut.
    pub fn to_json(&self) -> String {
        let error = ErrorFields {
            message: cut(&self.message, MAX_MESSAGE_CHARS),
            r#type: self.code.kind(),
            param: self.param.as_deref().map(|param| cut(param, MAX_PARAM_CHARS)),
            code: self.code.as_str(),
            resets_at: self.resets_at,
            valid_models: &self.valid_models,
        };
        serde_json::to_string(&ErrorBody { error }).unwrap_or_else(|_| {
            // Writing texts to a string cannot fail.
            r#"{"error":{"message":"","type":"server_error","param":null,"code":"internal_error"}}"#.into()
        })
    }
}
