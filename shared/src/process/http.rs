//! HTTP parts that both services share: error bodies, request ids, credentials and incoming bodies.

use std::{any::Any, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use http_body_util::BodyExt;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::{Instant, timeout, timeout_at};
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    error::{ApiError, Code},
    text::{cut, shown},
};

mod framing;
mod trace;
mod unread;

pub use framing::{ambiguity, refuse_ambiguous};
pub use trace::{ClientRequestId, X_GATEWAY_REQUEST_ID, X_REQUEST_ID, gateway_request_id};
pub use unread::{drain_unread, drain_unread_body};

/// Header that stops the official SDKs from trying again.
pub const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Characters of an unsupported `Content-Encoding` that its error repeats.
const MAX_SHOWN_ENCODING: usize = 40;
/// Characters of a path that an error or a log line repeats.
const MAX_SHOWN_PATH: usize = 200;
/// Characters of a method that an error or a log line repeats; clients may make up their own.
const MAX_SHOWN_METHOD: usize = 20;
/// Characters of an error's message: a longer one repeats its input.
const MAX_MESSAGE_CHARS: usize = 2_000;
/// Characters of the place that an error names.
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
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    valid_models: &'a [String],
}

impl ApiError {
    /// The error's JSON, as a body or as an event of a stream. What it repeats of a request has an end.
    pub fn to_json(&self) -> String {
        let error = ErrorFields {
            message: cut(&self.message, MAX_MESSAGE_CHARS),
            r#type: self.code.kind(),
            param: self.param.as_deref().map(|param| cut(param, MAX_PARAM_CHARS)),
            code: self.code.as_str(),
            valid_models: &self.valid_models,
        };
        serde_json::to_string(&ErrorBody { error }).unwrap_or_else(|e| {
            tracing::error!(error = %e, "an error could not be written as JSON");
            r#"{"error":{"message":"","type":"server_error","param":null,"code":"internal_error"}}"#.into()
        })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.code.status(), self.to_json()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(challenge) = challenge(self.code) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if let Some(seconds) = self.code.retry_after() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.code == Code::RequestTooLarge {
            // The rest of the body was not read, so that the connection cannot carry another request.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if self.final_answer {
            headers.insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }
}

/// The `WWW-Authenticate` of 401 and 403, with the errors of RFC 6750, section 3.1. A request without any credential
/// gets no error, as that section asks.
const fn challenge(code: Code) -> Option<&'static str> {
    match code {
        Code::MissingApiKey => Some(r#"Bearer realm="api""#),
        Code::InvalidAuthorizationHeader => Some(r#"Bearer realm="api", error="invalid_request""#),
        Code::InvalidApiKey | Code::InvalidManagementKey | Code::KeyExpired => {
            Some(r#"Bearer realm="api", error="invalid_token""#)
        }
        Code::ManagementKeyNotAllowed | Code::ManagementKeyRequired => {
            Some(r#"Bearer realm="api", error="insufficient_scope""#)
        }
        _ => None,
    }
}

/// Middleware: a handler that panics is our bug, and answers as one.
pub fn catch_panics() -> CatchPanicLayer<fn(Box<dyn Any + Send>) -> Response> {
    CatchPanicLayer::custom((|_| ApiError::internal().into_response()) as fn(_) -> _)
}

/// The answer to a path that is none of ours.
#[expect(clippy::unused_async, reason = "handlers are async")]
pub async fn unknown_url(request: Request) -> ApiError {
    let (method, path) = (shown_method(request.method()), shown_path(request.uri()));
    ApiError::new(Code::UnknownUrl, format!("There is no route {method} {path}."))
}

/// The answer to a method that a path does not take; the router adds `Allow`.
#[expect(clippy::unused_async, reason = "handlers are async")]
pub async fn method_not_allowed(request: Request) -> ApiError {
    ApiError::new(
        Code::MethodNotAllowed,
        format!("This route does not take the method {}.", shown_method(request.method())),
    )
}

/// A request's path as errors and logs repeat it.
pub fn shown_path(uri: &Uri) -> String {
    shown(uri.path(), MAX_SHOWN_PATH)
}

/// A request's method as errors and logs repeat it.
pub fn shown_method(method: &Method) -> String {
    shown(method.as_str(), MAX_SHOWN_METHOD)
}

/// The token of `Authorization: Bearer <token>`; exactly one such header, the scheme in any case.
pub fn bearer(headers: &HeaderMap) -> Result<&str, ApiError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        let message = "No API key was given. Send it as `Authorization: Bearer <key>`.";
        return Err(ApiError::new(Code::MissingApiKey, message));
    };
    let invalid = || {
        let message = "The Authorization header must be, once, `Bearer <key>`.";
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

/// Refuses a body whose headers declare it not JSON, or not plain; one without a type is read as JSON. `also` is a further
/// type to take. Compressed bodies are not taken at all: their full size is bounded by nothing that its sender paid for.
pub fn require_json(headers: &HeaderMap, also: Option<&str>) -> Result<(), ApiError> {
    for value in headers.get_all(header::CONTENT_ENCODING) {
        let value = value.to_str().unwrap_or("?").trim();
        if !value.is_empty() && !value.eq_ignore_ascii_case("identity") {
            let shown = shown(value, MAX_SHOWN_ENCODING);
            let message =
                format!("The Content-Encoding '{shown}' is not supported; send the body without one.");
            return Err(ApiError::new(Code::UnsupportedMediaType, message));
        }
    }
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let essence = value.to_str().ok().map(|v| v.split(';').next().unwrap_or(v).trim());
    let json = |e: &str| {
        e.eq_ignore_ascii_case("application/json") || also.is_some_and(|a| e.eq_ignore_ascii_case(a))
    };
    match essence {
        Some(essence) if json(essence) => Ok(()),
        _ => Err(ApiError::new(Code::UnsupportedMediaType, "The Content-Type must be application/json.")),
    }
}

/// The whole body, at most `limit` bytes of it. A length that is announced too large is refused unread.
pub async fn read_body(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, ApiError> {
    read_body_within(headers, body, limit, |_| Ok(())).await
}

/// The same, where every piece asks `room` for as many bytes before it is kept.
pub async fn read_body_within(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    room: impl FnMut(usize) -> Result<(), ApiError>,
) -> Result<Bytes, ApiError> {
    let announced = content_length(headers);
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large(limit));
    }
    timeout(BODY_DEADLINE, read_rest(body, announced, limit, room)).await.unwrap_or_else(|_| Err(stalled()))
}

/// Length that the `Content-Length` announces.
pub fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Room that is made for a body before its first byte came, at most: what a client announces is not yet sent.
const EAGER_ROOM: u64 = 1 << 20;

/// Longest pause of a client while it sends a body.
const BODY_PAUSE: Duration = Duration::from_secs(30);
/// The progress that a body has to make: so many bytes a second after the first ten seconds, so that one that trickles does not
/// keep its memory.
const BODY_GRACE: Duration = Duration::from_secs(10);
const LEAST_BYTES_PER_SECOND: u64 = 8 << 10;
/// Time that a body may take as a whole: the largest one, over two megabits a second.
const BODY_DEADLINE: Duration = Duration::from_mins(5);

async fn read_rest(
    mut body: Body,
    announced: Option<u64>,
    limit: usize,
    mut room: impl FnMut(usize) -> Result<(), ApiError>,
) -> Result<Bytes, ApiError> {
    let mut read = BytesMut::new();
    let mut first: Option<Bytes> = None;
    let began = Instant::now();
    loop {
        let so_far = read.len() + first.as_ref().map_or(0, Bytes::len);
        let progress = Duration::from_secs(so_far as u64 / LEAST_BYTES_PER_SECOND);
        let deadline = (Instant::now() + BODY_PAUSE).min(began + BODY_GRACE + progress);
        let Some(frame) = timeout_at(deadline, body.frame()).await.map_err(|_| stalled())? else { break };
        let Ok(data) = frame.map_err(|_| incomplete_body())?.into_data() else { continue };
        if so_far + data.len() > limit {
            return Err(too_large(limit));
        }
        room(data.len())?;
        // A body that came in one piece is not copied.
        match (first.take(), read.is_empty()) {
            (None, true) => first = Some(data),
            (None, false) => read.extend_from_slice(&data),
            (Some(head), _) => {
                let first_room = announced.unwrap_or(0).min(EAGER_ROOM).max((head.len() + data.len()) as u64);
                read.reserve(usize::try_from(first_room).unwrap_or(0));
                read.extend_from_slice(&head);
                read.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| read.freeze()))
}

fn stalled() -> ApiError {
    ApiError::new(Code::InvalidJson, "The body did not arrive in time.")
}

/// The body broke off, or was not framed as HTTP asks.
pub fn incomplete_body() -> ApiError {
    ApiError::new(Code::InvalidJson, "The body ended before it was complete.")
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(Code::RequestTooLarge, format!("The body is larger than {limit} bytes."))
}

/// A 200 with this as its JSON.
pub fn ok<T: Serialize>(value: &T) -> Response {
    Json(value).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|v| (header::AUTHORIZATION, HeaderValue::from_str(v).unwrap())).collect()
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

    #[test]
    fn a_compressed_body_is_refused_by_the_name_of_its_coding() {
        let coded = |values: &[&str]| {
            let value = |v: &&str| (header::CONTENT_ENCODING, HeaderValue::from_str(v).unwrap());
            require_json(&values.iter().map(value).collect(), None)
        };
        assert_eq!(coded(&[]), Ok(()));
        assert_eq!(coded(&["identity", " Identity "]), Ok(()));
        for (values, named) in
            [(&["gzip"][..], "'gzip'"), (&["identity", "zstd"], "'zstd'"), (&["gzip, br"], "'gzip, br'")]
        {
            let error = coded(values).unwrap_err();
            assert_eq!(error.code, Code::UnsupportedMediaType, "{values:?}");
            assert!(error.message.contains(named), "{}", error.message);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_is_given_up_within_seconds() {
        let pieces = futures_util::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Some((Ok::<_, std::io::Error>("x"), ()))
        });
        let began = Instant::now();
        let error = read_body(&HeaderMap::new(), Body::from_stream(pieces), 1000).await.unwrap_err();
        assert!(error.message.contains("did not arrive in time"), "{}", error.message);
        assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_body_is_read_to_its_limit_and_not_beyond() {
        let none = HeaderMap::new();
        let read = |text: &'static str, limit| read_body(&none, Body::from(text), limit);
        assert_eq!(read("12345", 5).await.unwrap(), "12345");
        assert_eq!(read("123456", 5).await.unwrap_err().code, Code::RequestTooLarge);
    }
}
