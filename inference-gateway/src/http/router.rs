//! The public routes: one match on the path, and the steps that every request needs.

use std::{
    future::{Future, ready},
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
};

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
    wire::OWN_KEY,
};
use shared_door::{
    http::{X_REQUEST_ID, ambiguity, drain_unread_body, method_not_allowed, unknown_url},
    serve::{Handler, OverTls, note_arrival},
};
use shared_observe::{standard_metrics::HttpRequestTimer, traces::Span};

use super::{
    App, Call, cors, count_tokens, describe,
    dialect::{Dialect, ErrorForm},
    model_call,
    observe::{HEALTH, Head, Observed, answers},
    openapi, passthrough,
};

/// Path of counts of prompts.
const COUNT_TOKENS: &str = "/v1/messages/count_tokens";

/// A route: the pattern that metrics and logs know it by, its methods, and its handler.
struct Route {
    pattern: &'static str,
    methods: Methods,
    handler: fn(Arc<App>, Call) -> Handled,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Methods {
    /// `GET`, and `HEAD` with it; open to scripts of any origin.
    Get,
    /// `POST`; open to scripts of any origin.
    Post,
    /// Any method, of no other origin's scripts: a key-service judges it.
    Passed,
}

/// Answer of a handler to come.
type Handled = Pin<Box<dyn Future<Output = Result<Response, ApiError>> + Send>>;

fn find(path: &str) -> Option<Route> {
    use Methods::{Get, Passed, Post};
    Some(match path {
        Dialect::CHAT => {
            route(Post, Dialect::CHAT, |app, call| Box::pin(model_call::create(app, Dialect::Chat, call)))
        }
        Dialect::RESPONSES => route(Post, Dialect::RESPONSES, |app, call| {
            Box::pin(model_call::create(app, Dialect::Responses, call))
        }),
        Dialect::MESSAGES => route(Post, Dialect::MESSAGES, |app, call| {
            Box::pin(model_call::create(app, Dialect::Messages, call))
        }),
        Dialect::EMBEDDINGS => route(Post, Dialect::EMBEDDINGS, |app, call| {
            Box::pin(model_call::create(app, Dialect::Embeddings, call))
        }),
        COUNT_TOKENS => route(Post, COUNT_TOKENS, |app, call| Box::pin(count_tokens::count(app, call))),
        "/v1/models" => route(Get, "/v1/models", |app, call| Box::pin(describe::models(app, call))),
        "/v1" => route(Get, "/v1", |app, _| at_once(describe::service(&app))),
        "/" => route(Get, "/", |app, _| at_once(describe::service(&app))),
        HEALTH => route(Get, HEALTH, |app, _| at_once(describe::health(&app))),
        "/openapi.json" => route(Get, "/openapi.json", |_, _| at_once(openapi::describe())),
        OWN_KEY => route(Passed, OWN_KEY, |app, call| Box::pin(passthrough::forward(app, call))),
        "/dashboard" => {
            route(Passed, "/dashboard", |app, call| Box::pin(passthrough::forward_page(app, call)))
        }
        _ => return find_below(path),
    })
}

/// Finds the route of a path with a part of its own.
fn find_below(path: &str) -> Option<Route> {
    use Methods::{Get, Passed};
    let below = |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty());
    Some(if describe::model_id(path).is_some() {
        route(Get, "/v1/models/{id}", |app, call| Box::pin(describe::model(app, call)))
    } else if below("/v1/management/") {
        route(Passed, "/v1/management/{*rest}", |app, call| Box::pin(passthrough::forward(app, call)))
    } else if below("/dashboard/") {
        route(Passed, "/dashboard/{*rest}", |app, call| Box::pin(passthrough::forward_page(app, call)))
    } else {
        return None;
    })
}

const fn route(methods: Methods, pattern: &'static str, handler: fn(Arc<App>, Call) -> Handled) -> Route {
    Route { pattern, methods, handler }
}

/// An answer that needs no wait.
fn at_once(response: Response) -> Handled {
    Box::pin(ready(Ok(response)))
}

impl Methods {
    /// Value of `Allow` where `method` is not taken.
    fn refuse(self, method: &Method) -> Option<&'static str> {
        match self {
            Self::Get => (method != Method::GET && method != Method::HEAD).then_some("GET,HEAD"),
            Self::Post => (method != Method::POST).then_some("POST"),
            Self::Passed => None,
        }
    }

    const fn any_origin(self) -> bool {
        match self {
            Self::Get | Self::Post => true,
            Self::Passed => false,
        }
    }
}

/// A handler of all public routes.
pub(crate) fn routes(app: Arc<App>) -> Handler {
    let served = Dialect::ALL.map(|dialect| answers(dialect.route(), &Method::POST, StatusCode::OK));
    let router = Arc::new(Router { app, served });
    Handler::new(move |request| router.clone().answer(request))
}

struct Router {
    app: Arc<App>,
    /// Counters of the model calls served, in the order of the dialects, looked up once.
    served: [Counter; Dialect::ALL.len()],
}

impl Router {
    /// Answers a request under an id of ours, and drains the unread rest of its body.
    async fn answer(self: Arc<Self>, request: Request) -> Response {
        let id = RequestId::generate(&*self.app.generator.clock);
        let mut request = request.map(drain_unread_body);
        let form = ErrorForm::of(&request);
        // In this order: a gateway that stops awaits arrivals first, and requests that run once it refuses others.
        let _running = self.app.generator.running.token();
        let draining = self.app.draining.is_cancelled();
        note_arrival(request.extensions_mut());
        let mut response = if draining {
            form.apply(refuse_while_draining(&request), id)
        } else if let Some(refusal) = ambiguity(&request) {
            Observed { route: "none", served: None }
                .answer((Head::of(&request, id), &Span::default()), ready(form.apply(refusal, id)))
                .await
        } else {
            let route = find(request.uri().path());
            let pattern = route.as_ref().map_or("none", |route| route.pattern);
            let called = Dialect::of_route(pattern).filter(|_| request.method() == Method::POST);
            let served = called.map(|dialect| &self.served[dialect as usize]);
            let observed = Observed { route: pattern, served };
            let head = Head::of(&request, id);
            let over_tls = request.extensions().get::<OverTls>().is_some();
            let known = route.as_ref().map(|route| route.pattern);
            let timer = HttpRequestTimer::start(request.method(), over_tls, known);
            let span = Span::of_request(&request, known);
            let served = serve(self.app.clone(), route, Call { id, span: span.clone(), request });
            let answer = observed.answer((head, &span), async { form.apply(served.await, id) }).await;
            span.answered(timer.answered(answer))
        };
        if let Ok(value) = HeaderValue::try_from(id.to_string()) {
            response.headers_mut().insert(X_REQUEST_ID, value);
        }
        response
    }
}

/// Answers a request of this route: preflights, other methods, panics and headers are alike on all.
async fn serve(app: Arc<App>, route: Option<Route>, call: Call) -> Response {
    let method = call.request.method().clone();
    let Some(Route { pattern, methods, handler }) = route else {
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

/// The answer to agents that try a WebSocket first: this status, and no other, lets them go on over HTTP at once.
fn upgrade_required() -> Response {
    let message = "This route does not speak WebSocket; send POST over HTTP, and set `stream` to true.";
    let mut response = ApiError::new(Code::UpgradeRequired, message).into_response();
    // RFC 9110, 15.5.22: the protocols to use instead.
    response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("HTTP/2.0, HTTP/1.1"));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    response
}

/// The response, without its body if the request was a `HEAD`, but with the body's length.
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

/// The answer while the gateway drains.
fn refuse_while_draining(request: &Request) -> Response {
    let mut response = match request.uri().path() {
        HEALTH => describe::stopping(),
        _ => ApiError::new(Code::Overloaded, "This gateway is shutting down; try again.").into_response(),
    };
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_route_and_its_pattern_names_it() {
        let pattern = |path: &str| find(path).map(|route| route.pattern);
        for path in [
            Dialect::CHAT,
            Dialect::RESPONSES,
            Dialect::MESSAGES,
            Dialect::EMBEDDINGS,
            COUNT_TOKENS,
            "/v1/models",
            "/v1/key",
            "/v1",
            "/",
            "/health",
            "/openapi.json",
            "/dashboard",
        ] {
            assert_eq!(pattern(path), Some(path));
        }
        for (path, expected) in [
            ("/v1/models/Model%20Flash", Some("/v1/models/{id}")),
            ("/v1/models/a/b", None),
            ("/v1/management/keys", Some("/v1/management/{*rest}")),
            ("/v1/management/keys/ak_0", Some("/v1/management/{*rest}")),
            ("/v1/management", None),
            ("/v1/management/", None),
            ("/dashboard/keys", Some("/dashboard/{*rest}")),
            ("/dashboards", None),
            ("//dashboard", None),
            ("/v1/chat", None),
        ] {
            assert_eq!(pattern(path), expected, "{path}");
        }
    }

    #[test]
    fn a_method_that_a_route_does_not_take_is_refused_with_those_that_it_does() {
        assert_eq!(Methods::Get.refuse(&Method::DELETE), Some("GET,HEAD"));
        assert_eq!(Methods::Post.refuse(&Method::GET), Some("POST"));
        for (methods, method) in
            [(Methods::Get, Method::HEAD), (Methods::Post, Method::POST), (Methods::Passed, Method::PATCH)]
        {
            assert_eq!(methods.refuse(&method), None, "{method}");
        }
    }
}
