//! The answer that carries an error.

use axum_core::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::{ApiError, Code};

/// Header that stops the official SDKs from trying again.
pub const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.code.status(), self.to_json()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(challenge) = challenge(self.code) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.code == Code::RequestTooLarge {
            // The rest of the body was not read, so the connection cannot carry another request.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        // Agents keep trying with a refused credential unless they are told not to.
        if self.final_answer || self.code.status() == StatusCode::UNAUTHORIZED {
            headers.insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        // Another dialect reads the error from here, and writes it in its own form.
        response.extensions_mut().insert(self);
        response
    }
}

/// Value of `WWW-Authenticate` on 401 and 403, with the errors of RFC 6750, section 3.1. A request without any
/// credential gets no error, as that section asks.
const fn challenge(code: Code) -> Option<&'static str> {
    match code {
        Code::MissingApiKey => Some(r#"Bearer realm="api""#),
        Code::InvalidAuthorizationHeader => Some(r#"Bearer realm="api", error="invalid_request""#),
        Code::InvalidApiKey
        | Code::InvalidManagementKey
        | Code::KeyDisabled
        | Code::KeyExpired
        | Code::GroupArchived => Some(r#"Bearer realm="api", error="invalid_token""#),
        Code::ManagementKeyNotAllowed
        | Code::ManagementKeyRequired
        | Code::ModelNotAllowed
        | Code::ReadOnlyKey => Some(r#"Bearer realm="api", error="insufficient_scope""#),
        _ => None,
    }
}
