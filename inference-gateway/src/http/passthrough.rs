//! Requests to the management API and the dashboard, carried to a key-service and back as they are.

mod forwarded;
mod places;
mod replayable;

use std::{
    error::Error,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Extension, body::Body, extract::State};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, header, uri::PathAndQuery};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore};
use shared::{
    error::ApiError,
    ids::{AccountId, RequestId},
    key::Class,
    process::{
        http::{X_GATEWAY_REQUEST_ID, bearer, incomplete_body, read_body_within},
        serve::ConnectionTrust,
        tls::Tls,
    },
};
use tokio::time::{Instant, timeout};
use tracing::{Instrument, Span};

use super::App;
use places::{Place, Places};
use replayable::{ReplayableRequest, RetrySafety};

/// The time that the answer to a request may take to begin, all attempts together.
const DEADLINE: Duration = Duration::from_secs(10);
/// The time that one key-service may take to begin it where another can be asked: a list or a write takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time that a key-service may take to show that it is awake.
const PROBE: Duration = Duration::from_millis(500);
/// The time that a connection may take to come about.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// The time that a key-service that failed is asked only if no other is left.
const SHUNNED: Duration = Duration::from_secs(5);

/// The time that an idle connection is kept: shorter than a key-service keeps it, so that no request meets its end.
const IDLE: Duration = Duration::from_secs(20);

/// The largest form of a page, in bytes.
const MAX_FORM: usize = 32 << 10;

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

/// Path that is asked, without a credential, to see whether a key-service answers at all.
const PROBED: PathAndQuery = PathAndQuery::from_static("/v1/management/keys");

/// The management API and the dashboard of the key-services, over HTTP.
pub(crate) struct Management {
    client: legacy::Client<HttpsConnector<HttpConnector>, Body>,
    services: Vec<Service>,
    places: Places,
    /// Requests so far: they begin with one key-service after the other.
    turns: AtomicUsize,
}

/// One key-service.
struct Service {
    base: Uri,
    /// Until then, others are asked first.
    shunned: Mutex<Option<Instant>>,
}

/// Why a key-service did not answer.
enum Failure {
    /// It cannot be reached: nothing was sent.
    Unsent(String),
    /// The connection broke: what was sent may have been carried out, and nothing more comes of it.
    Broken(String),
    /// It is silent: what was sent may still be carried out.
    Silent,
    /// The key-service did not get all of it: the client's body broke off.
    CutShort,
}

/// Any method on `/v1/management/…`.
pub(super) async fn forward(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    mut request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let span = identified(&mut request, id);
    let place = match account(&app, request.headers(), ConnectionTrust::of(request.extensions())).await? {
        Some(account) => app.management.places.of_account(account)?,
        None => return refused(&app, request).instrument(span).await,
    };
    let request = ReplayableRequest::read(request).await?;
    let response = app.management.carry(request).instrument(span).await?;
    Ok(passed_back(response, place))
}

/// The account of the management key that came with a request, if it is one. It is found before anything of the body is read.
async fn account(
    app: &App,
    headers: &HeaderMap,
    trust: ConnectionTrust,
) -> Result<Option<AccountId>, ApiError> {
    let Ok(presented) = bearer(headers) else { return Ok(None) };
    let authenticated = app.generator.keys.authenticate(presented, Class::Management).await?;
    if authenticated.is_ok() {
        trust.grant();
    }
    Ok(authenticated.ok())
}

/// The key-service's own refusal, which needs the head of the request alone.
async fn refused(app: &App, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let place = app.management.places.unauthenticated().await?;
    let unread = !request.body().is_end_stream();
    let mut head = request.map(|_unread| Body::empty());
    for of_body in [header::CONTENT_LENGTH, header::EXPECT] {
        head.headers_mut().remove(of_body);
    }
    let response = app.management.carry(ReplayableRequest::read(head).await?).await?;
    let mut response = passed_back(response, place);
    if unread {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// A response on its way to the client; its request keeps its place until it was taken.
fn passed_back(mut response: Response<Incoming>, place: Place) -> Response<Body> {
    strip(response.headers_mut());
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _kept = &place;
            frame
        }))
    })
}

/// Any method on `/dashboard…`. The key-service learns which address the client used and where it is.
pub(super) async fn forward_page(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    mut request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    forwarded::rewrite(&mut request, app.proxy_trusted);
    let span = identified(&mut request, id);
    // The key-service alone knows sessions, so that forms are read within the budget of callers without authentication.
    let mut permit = app.unauthenticated.permit();
    let (head, body) = request.into_parts();
    let form = read_body_within(&head.headers, body, MAX_FORM, |bytes| permit.grow(bytes)).await?;
    let place = app.management.places.page().await?;
    let request = ReplayableRequest::read(Request::from_parts(head, Body::from(form))).await?;
    let response = app.management.carry(request).instrument(span).await?;
    Ok(passed_back(response, place))
}

/// Strips what belongs to the connection, and gives the request's id to the key-service and to the log.
fn identified(request: &mut Request<Body>, id: RequestId) -> Span {
    strip(request.headers_mut());
    if let Ok(id) = HeaderValue::try_from(id.to_string()) {
        request.headers_mut().insert(X_GATEWAY_REQUEST_ID, id);
    }
    tracing::info_span!("management", request = %id)
}

impl Management {
    /// The key-services at these addresses.
    pub(crate) fn new(addresses: Vec<Uri>, tls: Option<&Tls>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_DEADLINE));
        tcp.enforce_http(false);
        // Without TLS settings there are no https addresses, and no certificate is trusted.
        let nobody =
            || ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls.map_or_else(nobody, Tls::client))
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        let services = addresses.into_iter().map(|base| Service { base, shunned: Mutex::default() });
        Self { client, services: services.collect(), places: Places::new(), turns: AtomicUsize::new(0) }
    }

    /// Brings it to a key-service, and to another one if it may be sent again.
    async fn carry(&self, mut request: ReplayableRequest) -> Result<Response<Incoming>, ApiError> {
        let deadline = Instant::now() + DEADLINE;
        let in_turn = self.in_turn();
        for (attempt, service) in in_turn.iter().enumerate() {
            let others = attempt + 1 < in_turn.len();
            // A request that cannot be sent again is not risked on a key-service that hangs.
            if others && request.repeat() != RetrySafety::Always && !self.is_awake(service).await {
                continue;
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            let patience =
                if others && request.repeat() == RetrySafety::Always { PATIENCE.min(rest) } else { rest };
            let Some(copy) = request.copy(&service.base) else { break };
            let failure = match self.send(service, copy, patience).await {
                Ok(response) => return Ok(response),
                Err(Failure::CutShort) => return Err(incomplete_body()),
                Err(failure) => failure,
            };
            service.shun(&failure);
            let again = match failure {
                Failure::Unsent(_) => true,
                Failure::Broken(_) => request.repeat() >= RetrySafety::OnceEnded,
                Failure::Silent => request.repeat() == RetrySafety::Always,
                Failure::CutShort => false,
            };
            if !again {
                break;
            }
        }
        Err(ApiError::service_unavailable())
    }

    /// One key-service after the other, those that failed lately last.
    fn in_turn(&self) -> Vec<&Service> {
        let first = self.turns.fetch_add(1, Ordering::Relaxed) % self.services.len().max(1);
        let (late, early) = self.services.split_at(first);
        let now = Instant::now();
        let mut in_turn: Vec<&Service> = early.iter().chain(late).collect();
        in_turn.sort_by_key(|service| service.is_shunned(now));
        in_turn
    }

    async fn send(
        &self,
        service: &Service,
        request: Request<Body>,
        patience: Duration,
    ) -> Result<Response<Incoming>, Failure> {
        let told =
            |e: &legacy::Error| e.source().map_or_else(|| e.to_string(), |source| format!("{e}: {source}"));
        match timeout(patience, self.client.request(request)).await {
            Ok(Ok(response)) => {
                service.trust();
                Ok(response)
            }
            Ok(Err(e)) if is_of_sender(&e) => Err(Failure::CutShort),
            Ok(Err(e)) if e.is_connect() => Err(Failure::Unsent(told(&e))),
            Ok(Err(e)) => Err(Failure::Broken(told(&e))),
            Err(_) => Err(Failure::Silent),
        }
    }

    /// Returns whether it answers anything.
    async fn is_awake(&self, service: &Service) -> bool {
        let Some(uri) = service.at(&PROBED) else { return false };
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = uri;
        match self.send(service, request, PROBE).await {
            Ok(_refusal) => true,
            Err(failure) => {
                service.shun(&failure);
                false
            }
        }
    }
}

impl Service {
    /// This path and query there.
    fn at(&self, path: &PathAndQuery) -> Option<Uri> {
        replayable::at(&self.base, path)
    }

    fn is_shunned(&self, now: Instant) -> bool {
        self.shunned.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| now < until)
    }

    fn shun(&self, failure: &Failure) {
        let error = match failure {
            Failure::Unsent(error) | Failure::Broken(error) => error,
            Failure::Silent => "no answer in time",
            // No fault of the key-service.
            Failure::CutShort => return,
        };
        tracing::warn!(address = %self.base, error, "a key-service's HTTP does not answer");
        *self.shunned.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + SHUNNED);
    }

    fn trust(&self) {
        *self.shunned.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Returns whether a request failed for what the client sent of its body.
fn is_of_sender(error: &legacy::Error) -> bool {
    error.source().and_then(|source| source.downcast_ref::<hyper::Error>()).is_some_and(hyper::Error::is_user)
}

fn strip(headers: &mut HeaderMap) {
    // Headers that `Connection` names belong to the connection too.
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
