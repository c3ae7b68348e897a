//! Errors in the vendors' formats and words.

use http::{HeaderValue, Response, header};
use serde_json::{Value, json};

use crate::upstream::{
    faults::{fault::Shape, vendor_error::ORGANIZATION},
    record::Api,
    reply::{Body, json_response, status},
};

/// An error from a vendor's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    /// Status of the response.
    pub status: u16,
    /// Message for people, and for agents that read it.
    pub message: String,
    /// Parameter at fault, in OpenAI's format.
    pub param: Option<String>,
    /// Code in OpenAI's format; by default it depends on the status.
    pub code: Option<&'static str>,
    /// Type of the error; by default it depends on the status.
    pub kind: Option<&'static str>,
    /// Seconds after which a client may try again.
    pub retry_after: Option<u64>,
    /// Whether the body is an HTML page with the message.
    pub html: bool,
}

impl ApiError {
    /// Returns an error about the request.
    pub(super) fn invalid(message: &str, param: Option<&str>) -> Self {
        Self {
            status: 400,
            message: message.to_owned(),
            param: param.map(ToOwned::to_owned),
            code: None,
            kind: None,
            retry_after: None,
            html: false,
        }
    }

    /// Returns an error with this status in the vendor's format, or as HTML if the shape says so.
    pub(super) fn of_status(status: u16, shape: Shape) -> Self {
        let message = match shape {
            Shape::Telling => "bad key sk-SECRET123456 at http://10.0.0.5:8000/v1".to_owned(),
            Shape::Nested
            | Shape::Flat
            | Shape::TooLong
            | Shape::Template
            | Shape::Text
            | Shape::Detail
            | Shape::Html => Shape::message(status),
        };
        Self { status, html: shape == Shape::Html, ..Self::invalid(&message, None) }
    }

    pub(super) fn response(&self, api: Api) -> Response<Body> {
        let body = if self.html { Shape::Html.body(self.status) } else { self.body(api).to_string() };
        let mut response = json_response(status(self.status), &body);
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }

    fn body(&self, api: Api) -> Value {
        let Self { status, message, param, code, kind, .. } = self;
        match api {
            Api::Messages => {
                let kind = kind.unwrap_or_else(|| messages_type(*status));
                json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": REQUEST_ID})
            }
            Api::Responses | Api::Chat => {
                let kind = kind.unwrap_or_else(|| responses_type(*status));
                let code = code.or_else(|| responses_code(*status));
                json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
            }
        }
    }
}

/// Adds headers that identify the request and the operator's account.
pub(super) fn with_vendor_headers(api: Api, mut answer: Response<Body>) -> Response<Body> {
    let (request, organization) = match api {
        Api::Messages => ("request-id", "anthropic-organization-id"),
        Api::Responses | Api::Chat => ("x-request-id", "openai-organization"),
    };
    let headers = answer.headers_mut();
    headers.insert(request, HeaderValue::from_static(REQUEST_ID));
    headers.insert(organization, HeaderValue::from_static(ORGANIZATION));
    answer
}

const REQUEST_ID: &str = "req_scripted";

const fn messages_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    }
}

const fn responses_type(status: u16) -> &'static str {
    match status {
        429 => "requests",
        400..500 => "invalid_request_error",
        _ => "server_error",
    }
}

/// Returns the code of a Responses error that has no code of its own.
const fn responses_code(status: u16) -> Option<&'static str> {
    match status {
        401 => Some("invalid_api_key"),
        404 => Some("model_not_found"),
        429 => Some("rate_limit_exceeded"),
        500.. => Some("server_error"),
        _ => None,
    }
}
