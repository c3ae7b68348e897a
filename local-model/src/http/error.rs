//! Why a request got no answer, as the OpenAI API tells it.

use axum::{
    extract::rejection::BytesRejection,
    http::{HeaderValue, Method, StatusCode, Uri, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::reply;
use crate::{
    engine::{BrokenOff, Refused},
    grammar::{Inexpressible, Place},
};

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// The place in the request that is at fault.
    param: Option<String>,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), param: None }
    }

    pub(crate) fn about(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    /// The body is not what the API takes, at this place, or no JSON at all.
    pub(crate) fn unreadable(is_json: bool, error: &serde_json::Error, place: Option<String>) -> Self {
        let code = if is_json { "invalid_type" } else { "invalid_json" };
        let message = format!("The request body is not a chat request: {error}.");
        Self { param: place, ..Self::new(StatusCode::BAD_REQUEST, code, message) }
    }

    /// The body did not come as HTTP has it, or is too large.
    pub(crate) fn unreceived(rejected: &BytesRejection) -> Self {
        let code = if rejected.status() == StatusCode::PAYLOAD_TOO_LARGE {
            "request_too_large"
        } else {
            "invalid_body"
        };
        Self::new(rejected.status(), code, format!("{}.", rejected.body_text()))
    }

    /// A value is not one of those that are allowed.
    pub(crate) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_value", message).about(param)
    }

    /// The model cannot do what is asked.
    pub(crate) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "unsupported_value", message).about(param)
    }

    /// The prompt leaves no room for an answer. Nobody counts the tokens of a prompt that is far too long.
    pub(crate) fn too_long(tokens: Option<usize>, context: usize) -> Self {
        let tokens = tokens.map_or_else(|| "far more".to_owned(), |tokens| tokens.to_string());
        let message = format!(
            "This model's maximum context length is {context} tokens. However, your messages resulted in {tokens} \
             tokens, which leave no room for an answer. Please shorten the messages."
        );
        Self::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message).about("messages")
    }

    pub(crate) fn unknown_url(method: &Method, uri: &Uri) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown_url", format!("There is no {method} {}.", uri.path()))
    }

    pub(crate) fn method_not_allowed(method: &Method) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            format!("{method} is not allowed here."),
        )
    }

    /// A fault of this program.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    /// The JSON that tells it, in a response or as an event of a stream.
    pub(crate) fn to_json(&self) -> Value {
        let kind = if self.status.is_client_error() { "invalid_request_error" } else { "server_error" };
        json!({"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}})
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        let message = format!("The model cannot take this request: {refused}.");
        match refused {
            Refused::Full => Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message),
            Refused::Stopped => Self::internal(message),
        }
    }
}

impl From<BrokenOff> for ApiError {
    fn from(error: BrokenOff) -> Self {
        match error {
            BrokenOff::Inexpressible(inexpressible) => inexpressible.into(),
            BrokenOff::Stopped => Self::internal("The model stopped before its answer was complete."),
        }
    }
}

impl From<Inexpressible> for ApiError {
    fn from(Inexpressible { place, reason }: Inexpressible) -> Self {
        let param = match place {
            Place::Tool(index) => format!("tools[{index}].function.parameters"),
            Place::Text => "response_format.json_schema.schema".to_owned(),
            Place::All => "tools".to_owned(),
        };
        Self::unsupported(param, format!("This schema cannot be followed: {reason}."))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = reply::json(self.status, &self.to_json());
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            // At some thousand tokens a second, a slot becomes free soon.
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
