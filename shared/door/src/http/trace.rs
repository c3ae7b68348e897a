//! Ids by which the logs of all services identify a request.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use shared::{clock::Clock, ids::RequestId, key::without_keys, text::shown};

/// Header of the request id. On a response, it contains our own id. On a request, it contains an id that the client
/// chose, which is logged in addition to ours.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Header in which a gateway passes on the id that it gave to a request.
pub const X_GATEWAY_REQUEST_ID: HeaderName = HeaderName::from_static("x-gateway-request-id");

/// Maximum length in characters of a client's id in the logs. UUIDs and trace ids are shorter.
const MAX_CLIENT_ID_CHARS: usize = 64;

/// Headers in which agents send the id of their session.
const SESSIONS: [HeaderName; 3] = [
    HeaderName::from_static("x-claude-code-session-id"),
    HeaderName::from_static("session-id"),
    HeaderName::from_static("x-session-id"),
];

/// An id that a client gave to a request or to a session. It is made safe for logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRequestId(Arc<str>);

impl ClientRequestId {
    /// Reads the request's id from its headers, if they contain one.
    pub fn read(headers: &HeaderMap) -> Option<Self> {
        headers.get(X_REQUEST_ID).map(Self::of)
    }

    /// Reads the session's id from a request's headers, if they contain one.
    pub fn read_session(headers: &HeaderMap) -> Option<Self> {
        SESSIONS.into_iter().find_map(|name| headers.get(name)).map(Self::of)
    }

    fn of(value: &HeaderValue) -> Self {
        let value = String::from_utf8_lossy(value.as_bytes());
        Self(shown(&without_keys(&value), MAX_CLIENT_ID_CHARS).into())
    }

    /// Returns the id as text. A log line must quote it. Without quotes, it could look like further fields of the line.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Middleware: gives the request an id, and returns it in a header of the response. A request from a gateway keeps the
/// id that the gateway gave it. The id is used only in logs, so a caller who forges an id misleads
/// nobody but themselves.
pub async fn gateway_request_id(
    State(clock): State<Arc<dyn Clock>>,
    mut request: Request,
    next: Next,
) -> Response {
    let given = request.headers().get(X_GATEWAY_REQUEST_ID).and_then(|id| id.to_str().ok()?.parse().ok());
    let id = given.unwrap_or_else(|| RequestId::generate(&*clock));
    request.extensions_mut().insert(id);
    let mut response = next.run(request).await;
    if let Ok(value) = HeaderValue::try_from(id.to_string()) {
        response.headers_mut().insert(X_REQUEST_ID, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_own_id_is_shown_without_what_could_forge_a_line() {
        let read = |value: &[u8]| {
            let headers = HeaderMap::from_iter([(X_REQUEST_ID, HeaderValue::from_bytes(value).unwrap())]);
            ClientRequestId::read(&headers).unwrap().as_str().to_owned()
        };
        assert_eq!(read(b"0198f3c2-a7b8"), "0198f3c2-a7b8");
        assert_eq!(read("a\u{202e}b".as_bytes()), r"a\u{202e}b");
        assert_eq!(read("x".repeat(60_000).as_bytes()).chars().count(), MAX_CLIENT_ID_CHARS + 1);
        assert_eq!(ClientRequestId::read(&HeaderMap::new()), None);
    }
}
