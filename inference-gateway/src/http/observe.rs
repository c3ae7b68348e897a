//! Counts every response, and logs one line for each that has none yet.

use axum::{
    extract::{MatchedPath, Request},
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
pub(super) async fn observe(request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let id = request.extensions().get::<RequestId>().copied();
    // The route's pattern, not its path: labels are few.
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = route.unwrap_or_else(|| "none".into());
    let in_flight = metrics::gauge!("gateway_inflight_requests");
    in_flight.increment(1);
    let response = next.run(request).await;
    in_flight.decrement(1);
    let status = response.status().as_u16();
    if response.extensions().get::<AlreadyLogged>().is_none() {
        let (request, took) = (id.map(tracing::field::display), began.elapsed());
        tracing::info!(request, %method, route, status, milliseconds = took.as_millis(), "answered");
    }
    let method = label(&method);
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
