//! Counts every response, and logs each response that was not logged yet.

use std::time::Duration;

use axum::{
    extract::Request,
    http::{Method, StatusCode, Uri},
    response::Response,
};
use metrics::{Counter, Gauge};
use shared::{
    ids::RequestId,
    text::{shown_method, shown_path},
    time::millis,
};
use shared_door::http::ClientRequestId;
use shared_observe::traces::Span;
use tokio::time::Instant;

/// Route that load balancers probe.
pub(super) const HEALTH: &str = "/health";

/// Response extension: this response is already logged.
#[derive(Clone, Copy)]
pub(super) struct AlreadyLogged;

/// What the log line says about a request.
pub(super) struct Head {
    id: RequestId,
    client: Option<ClientRequestId>,
    method: Method,
    uri: Uri,
}

impl Head {
    pub(super) fn of(request: &Request, id: RequestId) -> Self {
        let client = ClientRequestId::read(request.headers());
        Self { id, client, method: request.method().clone(), uri: request.uri().clone() }
    }

    /// Writes a response's log line. Probes come every few seconds, so their responses are logged at debug level.
    fn log(&self, route: &'static str, status: StatusCode, took: Duration) {
        let (request, method) = (&self.id, shown_method(&self.method));
        let client_request = self.client.as_ref().map(ClientRequestId::as_str);
        let (status, milliseconds) = (status.as_u16(), millis(took));
        let path = shown_path(&self.uri);
        if route == HEALTH {
            tracing::debug!(%request, client_request, method, route, path, status, milliseconds, "answered");
        } else {
            tracing::info!(%request, client_request, method, route, path, status, milliseconds, "answered");
        }
    }
}

/// A route whose responses are counted and logged.
pub(super) struct Observed<'a> {
    /// Pattern of the route. Patterns instead of paths keep the number of label values small.
    pub(super) route: &'static str,
    /// Counter of `POST`s that were answered with 200, if it was looked up in advance. A lookup costs more than
    /// counting.
    pub(super) served: Option<&'a Counter>,
}

/// Returns the counter of responses with this route, method and status.
pub(super) fn answers(route: &'static str, method: &Method, status: StatusCode) -> Counter {
    let method = label(method);
    metrics::counter!("gateway_http_requests_total", "route" => route, "method" => method, "status" => status.as_str().to_owned())
}

impl Observed<'_> {
    /// Counts and logs the answer to a request with this head, inside its span.
    pub(super) async fn answer(
        self,
        head: Head,
        span: &Span,
        answer: impl Future<Output = Response>,
    ) -> Response {
        let began = Instant::now();
        let in_flight = InFlight::begin(self.route, &head.method);
        let response = answer.await;
        in_flight.end();
        let status = response.status();
        if response.extensions().get::<AlreadyLogged>().is_none() {
            let _entered = span.enter();
            head.log(self.route, status, began.elapsed());
        }
        match self.served.filter(|_| status == StatusCode::OK) {
            Some(served) => served.increment(1),
            None => answers(self.route, &head.method, status).increment(1),
        }
        response
    }
}

/// A request in progress. If the client leaves before the response begins, the request counts with status 499, as in
/// many proxies.
struct InFlight<'a> {
    requests: Gauge,
    route: &'static str,
    method: &'a Method,
    answered: bool,
}

impl<'a> InFlight<'a> {
    fn begin(route: &'static str, method: &'a Method) -> Self {
        let requests = metrics::gauge!("gateway_inflight_requests");
        requests.increment(1);
        Self { requests, route, method, answered: false }
    }

    fn end(mut self) {
        self.answered = true;
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.requests.decrement(1);
        if !self.answered
            && let Ok(left) = StatusCode::from_u16(499)
        {
            answers(self.route, self.method, left).increment(1);
        }
    }
}

/// Returns a method as a label value. All unknown methods have the same value.
fn label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
