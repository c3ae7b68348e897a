//! The steps common to all requests.

use std::{future::ready, panic::AssertUnwindSafe, sync::Arc};

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use metrics::Counter;
use shared::{
    error::{ApiError, Code},
    ids::RequestId,
};
use shared_door::{
    http::{X_REQUEST_ID, ambiguity, drain_unread_body, method_not_allowed, unknown_url},
    serve::{Handler, OverTls, note_arrival},
};
use shared_observe::{standard_metrics::HttpRequestTimer, traces::Span};

use super::{
    app::{App, Call},
    cors, describe,
    dialect::{Dialect, ErrorForm},
    observe::{HEALTH, Head, Observed, answers},
    routes::{PublicRoute, find},
};

/// Makes the handler of all public routes.
pub(crate) fn routes(app: Arc<App>) -> Handler {
    let served = Dialect::ALL.map(|dialect| answers(dialect.route(), &Method::POST, StatusCode::OK));
    let router = Arc::new(Router { app, served });
    Handler::new(move |request| router.clone().answer(request))
}

struct Router {
    app: Arc<App>,
    /// Counters of successful model calls, in the order of the dialects, looked up once.
    served: [Counter; Dialect::ALL.len()],
}

impl Router {
    /// Answers a request under a new id, and reads and discards the rest of its body.
    async fn answer(self: Arc<Self>, request: Request) -> Response {
        let id = RequestId::generate(&*self.app.generator.clock);
        let mut request = request.map(drain_unread_body);
        let form = ErrorForm::of(&request);
        // The order matters: a stopping gateway waits for arriving requests, then refuses new requests, then waits for
        // running requests.
        let _running = self.app.generator.running.token();
        let draining = self.app.draining.is_cancelled();
        note_arrival(request.extensions_mut());
        let mut response = if draining {
            form.apply(refuse_while_draining(&request), id)
        } else if let Some(refusal) = ambiguity(&request) {
            Observed { route: "none", served: None }
                .answer(Head::of(&request, id), &Span::default(), ready(form.apply(refusal, id)))
                .await
        } else {
            let route = find(request.uri().path()).filter(|route| route.is_served(self.app.public_operator));
            let known = route.map(|route| route.pattern);
            let pattern = known.unwrap_or("none");
            let called = Dialect::of_route(pattern).filter(|_| request.method() == Method::POST);
            let served = called.map(|dialect| &self.served[dialect as usize]);
            let observed = Observed { route: pattern, served };
            let head = Head::of(&request, id);
            let over_tls = request.extensions().get::<OverTls>().is_some();
            let timer = HttpRequestTimer::start(request.method(), over_tls, known);
            let span = Span::of_request(&request, known);
            let served = serve(self.app.clone(), route, Call { id, span: span.clone(), request });
            let answer = observed.answer(head, &span, async { form.apply(served.await, id) }).await;
            span.answered(timer.answered(answer))
        };
        if let Ok(value) = HeaderValue::try_from(id.to_string()) {
            response.headers_mut().insert(X_REQUEST_ID, value);
        }
        response
    }
}

/// Answers a request to this route. Preflights, other methods, panics and headers are handled the same way on all
/// routes.
async fn serve(app: Arc<App>, route: Option<&'static PublicRoute>, call: Call) -> Response {
    let method = call.request.method().clone();
    let Some(&PublicRoute { pattern, methods, handler, .. }) = route else {
        return without_body_of_head(&method, unknown_url(call.request).await.into_response());
    };
    if methods.any_origin() && method == Method::OPTIONS {
        return cors::preflight(call.request.headers());
    }
    let mut response = if pattern == Dialect::RESPONSES && asks_for_websocket(&call.request) {
        upgrade_required()
    } else if let Some(allowed) = methods.refuse(&method) {
        let mut response = method_not_allowed(call.request).await.into_response();
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        response
    } else {
        let span = call.span.clone();
        let handled = AssertUnwindSafe(span.around(handler(app, call))).catch_unwind().await;
        let handled = handled.unwrap_or_else(|_| Err(ApiError::internal()));
        handled.unwrap_or_else(IntoResponse::into_response)
    };
    if methods.any_origin() {
        cors::allow(response.headers_mut());
    }
    without_body_of_head(&method, response)
}

/// Returns whether a request opens a WebSocket.
fn asks_for_websocket(request: &Request) -> bool {
    let protocols = request.headers().get_all(header::UPGRADE).iter();
    request.method() == Method::GET
        && protocols
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|protocol| protocol.trim().eq_ignore_ascii_case("websocket"))
}

/// Answers agents that try a WebSocket first. Only this status makes them continue over HTTP at once.
fn upgrade_required() -> Response {
    let message = "This route does not speak WebSocket; send POST over HTTP, and set `stream` to true.";
    let mut response = ApiError::new(Code::UpgradeRequired, message).into_response();
    // The protocols to use instead (RFC 9110, section 15.5.22).
    response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("HTTP/2.0, HTTP/1.1"));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    response
}

/// Removes the body of the response to a `HEAD`, but keeps its length.
fn without_body_of_head(method: &Method, mut response: Response) -> Response {
    if method == Method::HEAD {
        let length = response.body().size_hint().exact();
        if let Some(length) = length.filter(|_| !response.headers().contains_key(header::CONTENT_LENGTH)) {
            response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        }
        *response.body_mut() = Body::empty();
    }
    response
}

/// Refuses a request that arrives while the gateway drains.
fn refuse_while_draining(request: &Request) -> Response {
    let mut response = match request.uri().path() {
        HEALTH => describe::stopping(),
        _ => ApiError::new(Code::Overloaded, "This gateway is shutting down; try again.").into_response(),
    };
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
