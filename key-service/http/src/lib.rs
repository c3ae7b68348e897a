//! The management API and the operator API over HTTP.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{MatchedPath, Request, State},
    middleware::{self, Next},
    response::Response,
    routing::{MethodFilter, MethodRouter, on},
};
use http::{HeaderValue, Uri, header};
use shared::{
    clock::Clock,
    ids::RequestId,
    text::{shown_method, shown_path},
    wire::{Endpoint, Noun, OPERATOR_ROUTES, ROUTES, Route},
};
use shared_config::internal_token::InternalToken;
use shared_door::{
    http::{
        ClientRequestId, believe_gateways, catch_panics, drain_unread, gateway_request_id,
        method_not_allowed, refuse_ambiguous, unknown_url,
    },
    serve::OverTls,
};
use shared_observe::{standard_metrics::HttpRequestTimer, traces};
use tracing::Instrument;

use domain::{alert::Alert, group::Group, key::ApiKey, webhook::Webhook};
use key_service_management::Management;

use api::Api;
use nouns::{alerts, groups, keys, webhooks};
use served_route::{Door, ServedRoute};

mod api;
mod body;
mod error;
mod listing;
mod nouns;
mod operator;
mod operator_caller;
mod parts;
mod query;
mod reach;
mod reading;
mod served_route;

/// Returns the public routes of the key-service: the management API and the pages. A caller that presents
/// `internal_token` is a gateway, so its headers about the client are trusted.
pub fn router(
    management: Arc<Management>,
    clock: Arc<dyn Clock>,
    internal_token: InternalToken,
    public_url: Option<Uri>,
    pages: Router,
) -> Router {
    let api = Api { management, clock: clock.clone(), public_url };
    let of_accounts =
        ROUTES.iter().map(|route| (route.path(), ServedRoute { route, door: Door::Management }));
    let of_operators = OPERATOR_ROUTES
        .iter()
        .chain(&ROUTES)
        .filter_map(|route| Some((route.operator_path()?, ServedRoute { route, door: Door::Operator })));
    let routed =
        |router: Router<Api>, (path, served): (String, ServedRoute)| router.route(&path, handler(served));
    of_accounts
        .chain(of_operators)
        .fold(Router::new(), routed)
        .fallback(unknown_url)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(api)
        .layer(middleware::map_response(no_store))
        .merge(pages)
        .layer(catch_panics())
        .layer(middleware::from_fn(refuse_ambiguous))
        .layer(middleware::from_fn_with_state(clock.clone(), log_request))
        .layer(middleware::from_fn_with_state(clock, gateway_request_id))
        .layer(middleware::from_fn_with_state(internal_token, believe_gateways))
        .layer(middleware::from_fn(drain_unread))
}

/// Returns the handler of a route. Its extractors can see which route it is.
#[expect(clippy::expect_used, reason = "the list has four methods, which all have a filter")]
fn handler(served: ServedRoute) -> MethodRouter<Api> {
    let route: &'static Route = served.route;
    let method = MethodFilter::try_from(route.method()).expect("a method of the list");
    let handler = match route.endpoint {
        Endpoint::Of(Noun::Key, act) => nouns::handler::<ApiKey>(act, method),
        Endpoint::Of(Noun::Group, act) => nouns::handler::<Group>(act, method),
        Endpoint::Of(Noun::Webhook, act) => nouns::handler::<Webhook>(act, method),
        Endpoint::Of(Noun::Alert, act) => nouns::handler::<Alert>(act, method),
        Endpoint::RotateKey => on(method, keys::rotate),
        Endpoint::KeysOfGroup => on(method, groups::keys),
        Endpoint::RevokeKeysOfGroup => on(method, groups::revoke_keys),
        Endpoint::PayGroup => on(method, nouns::payments::pay_group),
        Endpoint::RefundGroup => on(method, nouns::payments::refund_group),
        Endpoint::Deliveries => on(method, webhooks::deliveries),
        Endpoint::TestWebhook => on(method, webhooks::test),
        Endpoint::AlertMessages => on(method, alerts::messages),
        Endpoint::TestAlert => on(method, alerts::test),
        Endpoint::Credits => on(method, reading::credits),
        Endpoint::Usage => on(method, reading::usage),
        Endpoint::Generations => on(method, reading::generations),
        Endpoint::Generation => on(method, reading::generation),
        Endpoint::Refusals => on(method, reading::refusals),
        Endpoint::Events => on(method, reading::events),
        Endpoint::OwnKey => on(method, reading::own_key),
        Endpoint::Operator(endpoint) => operator::handler(endpoint, method),
    };
    handler.route_layer(Extension(served))
}

/// Middleware that forbids caching, because answers may contain a key's plaintext.
async fn no_store(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Middleware that logs one line per request and measures the request's duration. All log lines that are written while
/// the request is handled have its ids. Account and key are added once the caller is authenticated.
async fn log_request(State(clock): State<Arc<dyn Clock>>, request: Request, next: Next) -> Response {
    let extensions = request.extensions();
    let matched = extensions.get::<MatchedPath>().map(MatchedPath::as_str);
    let (route, trace) = (matched.unwrap_or("none"), traces::Span::of_request(&request, matched));
    let over_tls = extensions.get::<OverTls>().is_some();
    let timer = HttpRequestTimer::start(request.method(), over_tls, matched);
    let span = tracing::info_span!(
        "request",
        request = extensions.get::<RequestId>().map(tracing::field::display),
        client_request = ClientRequestId::read(request.headers()).as_ref().map(ClientRequestId::as_str),
        account = tracing::field::Empty,
        management_key = tracing::field::Empty,
        operator_key = tracing::field::Empty,
        operator_key_name = tracing::field::Empty,
        method = shown_method(request.method()),
        route,
        path = shown_path(request.uri()),
    );
    let started = clock.now();
    let response = trace.around(Box::pin(next.run(request).instrument(span.clone()))).await;
    let milliseconds = clock.now().millis() - started.millis();
    let _entered = trace.enter();
    span.in_scope(|| tracing::info!(status = response.status().as_u16(), milliseconds, "answered"));
    trace.answered(timer.answered(response))
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests;
