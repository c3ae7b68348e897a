//! Management requests, carried to the key-service and back as they are.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, extract::State};
use http::{HeaderMap, HeaderName, Request, Response, Uri, header};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use shared::{
    error::ApiError,
    http::{content_length, read_body},
};
use tokio::time::timeout;

use super::{App, observe::Told};

/// How long the key-service may take to begin its answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a connection may take to come about.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);

/// A body of at most so many bytes is read before it is passed on; the key-service takes no larger ones.
const SMALL_BODY: usize = 64 << 10;

/// Headers that belong to one connection, not to the message (RFC 9110, section 7.6.1), and `Host`, which is ours.
const CONNECTION_HEADERS: [HeaderName; 8] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::HOST,
];

/// Carries requests to the key-service.
pub type Client = legacy::Client<HttpConnector, Body>;

/// A client for the key-service's HTTP.
pub fn client() -> Client {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_DEADLINE));
    legacy::Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(tcp)
}

/// Any method on `/v1/management/…`.
pub(super) async fn forward(
    State(app): State<Arc<App>>,
    mut request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let away = |e: String| {
        tracing::warn!(error = e, "the key-service's HTTP cannot be reached");
        ApiError::service_unavailable()
    };
    // A small body is read first, so that a client that stalls is not taken for a key-service that does.
    if content_length(request.headers()).is_some_and(|length| length <= SMALL_BODY as u64) {
        let (parts, body) = request.into_parts();
        let read = read_body(&parts.headers, body, SMALL_BODY).await?;
        request = Request::from_parts(parts, Body::from(read));
    }
    *request.uri_mut() =
        target(&app.key_service_http, request.uri()).ok_or_else(|| away("no such address".into()))?;
    *request.version_mut() = http::Version::HTTP_11;
    strip(request.headers_mut());
    let sent = timeout(DEADLINE, app.management.request(request)).await;
    let mut response = sent.map_err(|e| away(e.to_string()))?.map_err(|e| away(e.to_string()))?;
    strip(response.headers_mut());
    // The key-service has told of it, and knows more.
    response.extensions_mut().insert(Told);
    Ok(response.map(Body::new))
}

/// The same path and query at the key-service.
fn target(base: &Uri, asked: &Uri) -> Option<Uri> {
    let mut parts = base.clone().into_parts();
    parts.path_and_query = asked.path_and_query().cloned();
    Uri::from_parts(parts).ok()
}

fn strip(headers: &mut HeaderMap) {
    // What `Connection` names belongs to the connection too.
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in CONNECTION_HEADERS.iter().chain(&named) {
        headers.remove(name);
    }
}
