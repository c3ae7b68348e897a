//! The key-services' HTTP, which carries the management API and the dashboard.

mod accepted;
mod client;
mod permits;
mod replayable;

use std::{error::Error, sync::Arc, time::Duration};

use axum::body::Body;
use holds::{KeyServiceHealth, KeyServicePort};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, header, uri::PathAndQuery};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy;
use shared::{error::ApiError, ids::RequestId};
use shared_config::internal_token::InternalToken;
use shared_door::{
    admission::Permit,
    http::{X_ACCOUNT, X_GATEWAY_REQUEST_ID, X_INTERNAL_TOKEN},
    tls::Tls,
};
use shared_observe::traces::{self, TRACEPARENT};
use tokio::time::{Instant, timeout};
use tracing::Span;

use accepted::AcceptedCredentials;
pub(super) use accepted::CredentialMark;
use client::KeyServiceClient;
use permits::ManagementPermits;
pub(super) use replayable::ReplayableRequest;
use replayable::RetrySafety;

/// How long the answer to a request may take to begin, over all attempts.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a key-service may take to begin its answer if another can be asked. Lists and writes take milliseconds.
const REPEATABLE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a key-service may take to show that it is awake.
const PROBE: Duration = Duration::from_millis(500);

/// Largest page that is read into memory. A longer answer, or one of unknown length, is an export.
const MAX_PAGE: u64 = 1 << 20;

/// Headers about one connection instead of the message (RFC 9110, section 7.6.1), and `Host`, which the gateway sets.
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

/// Path requested without a credential, to see whether a key-service answers at all.
const PROBED: PathAndQuery = PathAndQuery::from_static("/v1/management/keys");

/// The key-services' management API and dashboard, over HTTP.
pub(crate) struct Management {
    client: KeyServiceClient,
    /// Key-services, in the order of `health`.
    addresses: Vec<Uri>,
    health: Arc<KeyServiceHealth>,
    pub(super) permits: ManagementPermits,
    pub(super) accepted: AcceptedCredentials,
    /// Internal token. It makes a key-service trust what the gateway says about a client.
    token: InternalToken,
}

enum SendFailure {
    /// No connection was made, so nothing was sent.
    Unsent,
    /// The connection broke without an answer. The request may have been executed.
    Broken,
    /// The key-service is silent. The request may still be executed.
    Silent,
}

impl Management {
    /// Makes a client of the key-services at these addresses, which are in the order of `health`.
    pub(crate) fn new(
        addresses: Vec<Uri>,
        health: Arc<KeyServiceHealth>,
        tls: Option<&Tls>,
        token: InternalToken,
    ) -> Self {
        let client = KeyServiceClient::new(tls);
        let (permits, accepted) = (ManagementPermits::new(), AcceptedCredentials::new());
        Self { client, addresses, health, permits, accepted, token }
    }

    /// Removes the connection's headers, and any internal token forged by the client. Adds the request's id and span
    /// for the key-service, and the id for the log.
    pub(super) fn identified(
        &self,
        request: &mut Request<Body>,
        id: RequestId,
        trace: &traces::Span,
    ) -> Span {
        strip(request.headers_mut());
        if let Some(traceparent) = trace.traceparent() {
            request.headers_mut().insert(TRACEPARENT, traceparent);
        }
        request.headers_mut().insert(X_INTERNAL_TOKEN, self.token.header());
        if let Ok(id) = HeaderValue::try_from(id.to_string()) {
            request.headers_mut().insert(X_GATEWAY_REQUEST_ID, id);
        }
        tracing::info_span!("management", request = %id)
    }

    /// Reads a page into memory and releases its permit, so that a slow client costs only its own connection. An export
    /// is sent at the client's pace and keeps its permits.
    pub(super) async fn taken(
        &self,
        mut response: Response<Incoming>,
        permit: Permit,
    ) -> Result<Response<Body>, ApiError> {
        strip(response.headers_mut());
        let member = response.headers_mut().remove(X_ACCOUNT);
        let Some(bytes) = response.body().size_hint().exact().filter(|bytes| *bytes <= MAX_PAGE) else {
            let account = member.and_then(|account| account.to_str().ok()?.parse().ok());
            return Ok(kept_until_taken(response, self.permits.export(&permit, account)?));
        };
        let memory = self.permits.memory(&permit, usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let (head, body) = response.into_parts();
        let page = timeout(DEADLINE, body.collect()).await.map_err(|_| ApiError::service_unavailable())?;
        let page = page.map_err(|_| ApiError::service_unavailable())?.to_bytes();
        let page = match memory {
            Some(memory) => memory.kept_by(page),
            None => page,
        };
        Ok(Response::from_parts(head, Body::from(page)))
    }

    /// Sends the request to a key-service, and to another one if that is safe. `trace` is the span of all attempts.
    pub(super) async fn carry(
        &self,
        request: ReplayableRequest,
        trace: &traces::Span,
    ) -> Result<Response<Incoming>, ApiError> {
        let deadline = Instant::now() + DEADLINE;
        let in_turn = self.health.in_turn();
        for (attempt, service) in in_turn.iter().copied().enumerate() {
            let others = attempt + 1 < in_turn.len();
            // A request that cannot be sent again is not sent to a key-service that may hang.
            if others && request.repeat != RetrySafety::Always && !self.is_awake(service).await {
                continue;
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            let limit = if others && request.repeat == RetrySafety::Always {
                REPEATABLE_TIMEOUT.min(rest)
            } else {
                rest
            };
            let Some(copy) = request.copy(&self.addresses[service]) else { break };
            let again = match self.send(service, copy, limit).await {
                Ok(response) => {
                    trace.received(response.status());
                    return Ok(response);
                }
                Err(SendFailure::Unsent) => true,
                Err(SendFailure::Broken) => request.repeat >= RetrySafety::OnceEnded,
                Err(SendFailure::Silent) => request.repeat == RetrySafety::Always,
            };
            if !again {
                break;
            }
        }
        trace.fail("unavailable");
        Err(ApiError::service_unavailable())
    }

    /// Sends a request to a key-service, and records whether it answered.
    async fn send(
        &self,
        service: usize,
        request: Request<Body>,
        limit: Duration,
    ) -> Result<Response<Incoming>, SendFailure> {
        let chain =
            |e: &legacy::Error| e.source().map_or_else(|| e.to_string(), |source| format!("{e}: {source}"));
        let (failure, error) = match timeout(limit, self.client.get().request(request)).await {
            Ok(Ok(response)) => {
                self.health.answered(service, KeyServicePort::Http, &self.addresses[service]);
                return Ok(response);
            }
            Ok(Err(e)) if e.is_connect() => (SendFailure::Unsent, chain(&e)),
            Ok(Err(e)) => (SendFailure::Broken, chain(&e)),
            Err(_) => (SendFailure::Silent, "no answer in time".to_owned()),
        };
        self.health.failed(service, KeyServicePort::Http, &self.addresses[service], &error);
        Err(failure)
    }

    /// Returns whether the key-service answers anything.
    async fn is_awake(&self, service: usize) -> bool {
        let Some(uri) = replayable::at(&self.addresses[service], &PROBED) else { return false };
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = uri;
        self.send(service, request, PROBE).await.is_ok()
    }
}

/// Keeps `held` until the client has taken the response.
pub(super) fn kept_until_taken<T: Send + 'static>(response: Response<Incoming>, held: T) -> Response<Body> {
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _kept = &held;
            frame
        }))
    })
}

pub(super) fn strip(headers: &mut HeaderMap) {
    // Headers named by `Connection` also belong to the connection.
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
