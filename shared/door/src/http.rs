//! What both services do with HTTP requests: error bodies, request ids, credentials and incoming bodies.

use std::any::Any;

use axum::{
    Json,
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, header};
use serde::Serialize;
use shared::{
    error::{ApiError, Code},
    text::{shown_method, shown_path},
};
use tower_http::catch_panic::CatchPanicLayer;

mod body;
mod forwarded;
mod framing;
mod trace;
mod unread;

pub use body::{
    content_length, incomplete_body, next_piece_deadline, read_body, read_body_within, require_json,
};
pub use forwarded::{
    Base, INTERNAL_TOKEN, X_ACCOUNT, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, X_INTERNAL_TOKEN,
    base, believe_gateways,
};
pub use framing::{ambiguity, refuse_ambiguous};
pub use trace::{ClientRequestId, X_GATEWAY_REQUEST_ID, X_REQUEST_ID, gateway_request_id};
pub use unread::{drain_unread, drain_unread_body};

/// Header in which some SDKs send the credential of a model call instead of `Authorization`.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Middleware: answers 500 if a handler panics.
pub fn catch_panics() -> CatchPanicLayer<fn(Box<dyn Any + Send>) -> Response> {
    CatchPanicLayer::custom((|_| ApiError::internal().into_response()) as fn(_) -> _)
}

/// Answers a request whose path this service does not have.
#[expect(clippy::unused_async, reason = "handlers are async")]
pub async fn unknown_url(request: Request) -> ApiError {
    let (method, path) = (shown_method(request.method()), shown_path(request.uri()));
    ApiError::new(Code::UnknownUrl, format!("There is no route {method} {path}."))
}

/// Answers a request with a method that its path does not accept. The router adds `Allow`.
#[expect(clippy::unused_async, reason = "handlers are async")]
pub async fn method_not_allowed(request: Request) -> ApiError {
    ApiError::new(
        Code::MethodNotAllowed,
        format!("This route does not support the method {}.", shown_method(request.method())),
    )
}

/// Returns the token of `Authorization: Bearer <token>`. The header must be sent exactly once. `Bearer` may be spelled
/// in any case.
pub fn bearer(headers: &HeaderMap) -> Result<&str, ApiError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        let message = "No API key was given. Send it as `Authorization: Bearer <key>`.";
        return Err(ApiError::new(Code::MissingApiKey, message));
    };
    let invalid = || {
        let message = "Send one Authorization header, as `Bearer <key>`.";
        ApiError::new(Code::InvalidAuthorizationHeader, message)
    };
    if values.next().is_some() {
        return Err(invalid());
    }
    let (scheme, token) = value.to_str().ok().and_then(|v| v.split_once(' ')).ok_or_else(invalid)?;
    let token = token.trim_matches(' ');
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() || token.contains([' ', ',']) {
        return Err(invalid());
    }
    Ok(token)
}

/// Returns a model call's credential, from `Authorization` or `x-api-key`. If both are sent, they must contain the same
/// credential. Next to `Authorization`, an empty `x-api-key` is ignored, because SDKs send such a header if they only
/// have a bearer token.
pub fn model_credential(headers: &HeaderMap) -> Result<&str, ApiError> {
    let has_bearer = headers.contains_key(header::AUTHORIZATION);
    let mut values = headers.get_all(X_API_KEY).iter();
    let Some(key) = values.next().filter(|key| !key.is_empty() || !has_bearer) else {
        return bearer(headers);
    };
    let invalid = || {
        let message = "If both Authorization and x-api-key are sent, send each once, with the same key.";
        ApiError::new(Code::InvalidAuthorizationHeader, message)
    };
    let key =
        key.to_str().ok().filter(|key| !key.is_empty() && values.next().is_none()).ok_or_else(invalid)?;
    if has_bearer && bearer(headers)? != key {
        return Err(invalid());
    }
    Ok(key)
}

/// Answers 200, with `value` as JSON.
pub fn ok<T: Serialize>(value: &T) -> Response {
    Json(value).into_response()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|v| (header::AUTHORIZATION, HeaderValue::from_str(v).unwrap())).collect()
    }

    #[test]
    fn the_credential_of_a_model_call_comes_in_either_header() {
        let with = |bearer: Option<&str>, keys: &[&str]| {
            let mut all = headers(bearer.as_slice());
            for key in keys {
                all.append(X_API_KEY, HeaderValue::from_str(key).unwrap());
            }
            model_credential(&all).map(str::to_owned).map_err(|error| error.code)
        };
        assert_eq!(with(None, &["x"]), Ok("x".into()));
        assert_eq!(with(Some("Bearer x"), &[]), Ok("x".into()));
        assert_eq!(with(Some("Bearer x"), &["x"]), Ok("x".into()));
        assert_eq!(with(Some("Bearer x"), &[""]), Ok("x".into()));
        for (bearer, keys) in
            [(Some("Bearer x"), &["y"][..]), (None, &["x", "x"]), (None, &[""]), (Some("Basic x"), &["x"])]
        {
            assert_eq!(with(bearer, keys), Err(Code::InvalidAuthorizationHeader), "{bearer:?} {keys:?}");
        }
        assert_eq!(with(None, &[]), Err(Code::MissingApiKey));
    }

    #[test]
    fn a_bearer_token_is_read_whatever_the_case_of_its_scheme() {
        for value in ["Bearer x", "bearer x", "BEARER   x "] {
            assert_eq!(bearer(&headers(&[value])), Ok("x"));
        }
    }

    #[test]
    fn anything_else_is_no_credential() {
        assert_eq!(bearer(&headers(&[])).unwrap_err().code, Code::MissingApiKey);
        for values in
            [&["Basic x"][..], &["Bearer"], &["Bearer "], &["x"], &["Bearer a b"], &["Bearer a", "Bearer a"]]
        {
            assert_eq!(
                bearer(&headers(values)).unwrap_err().code,
                Code::InvalidAuthorizationHeader,
                "{values:?}"
            );
        }
    }
}
