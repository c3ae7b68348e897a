//! Counts every response, and logs one line for each that has none yet.

use axum::{
    extract::{Extension, MatchedPath, Request},
    http::Method,
    middleware::Next,
    response::Response,
};
use shared::ids::RequestId;
use tokio::time::Instant;

/// In a response's extensions: it has a log line already.
#[derive(Clone, Copy)]
pub(super) struct AlreadyLogged;

/// Middleware: counts and logs.
pub(super) async fn observe(Extension(id): Extension<RequestId>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    // The route's pattern, not its path: labels are few.
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    observed(id, method, route, next.run(request)).await
}

/// Counts and logs the answer to a request.
pub(super) async fn observed(
    id: RequestId,
    method: Method,
    route: &str,
    answer: impl Future<Output = Response>,
) -> Response {
    let began = Instant::now();
    let in_flight = metrics::gauge!("gateway_inflight_requests");
    in_flight.increment(1);
    let response = answer.await;
    in_flight.decrement(1);
    let status = response.status().as_u16();
    if response.extensions().get::<AlreadyLogged>().is_none() {
        let took = began.elapsed();
        tracing::info!(request = %id, %method, route, status, milliseconds = took.as_millis(), "answered");
    }
    let (route, method) = (route.to_owned(), label(&method));
    metrics::counter!("gateway_http_requests_total", "route" => route, "method" => method, "status" => status.to_string())
        .increment(1);
    response
}

/// A method as a label: what clients make up counts as one.
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
