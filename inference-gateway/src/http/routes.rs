//! The list of public routes, from which the router, `/openapi.json` and the labels of metrics are made.

use std::{
    future::{Future, ready},
    pin::Pin,
    sync::{Arc, LazyLock},
};

use axum::{
    http::{HeaderValue, Method, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde_json::Value;
use shared::{
    describe::JSON,
    error::ApiError,
    wire::{MANAGEMENT, OPERATOR, OWN_KEY},
};

use super::{
    app::{App, Call},
    count_tokens, describe,
    dialect::Dialect,
    model_call,
    observe::HEALTH,
    openapi::{self, Describe},
    passthrough,
};
use crate::config::PublicOperator;
use Methods::{Get, Passed, Post};

/// Description of the API, built once per process.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(document().to_string()));

pub(super) struct PublicRoute {
    /// Path, as it appears in metrics and logs. `{id}` is one segment, and `{*rest}` is all remaining segments.
    pub(super) pattern: &'static str,
    pub(super) methods: Methods,
    pub(super) handler: fn(Arc<App>, Call) -> Handled,
    /// Lowest setting with which the public address serves the route; `None` for routes that it always serves.
    served_from: Option<PublicOperator>,
    /// Description for `/openapi.json`. Management routes are described elsewhere, and pages have no description.
    description: Option<Describe>,
}

/// The future that a handler returns.
type Handled = Pin<Box<dyn Future<Output = Result<Response, ApiError>> + Send>>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Methods {
    /// `GET` and `HEAD`. Scripts of any origin may use the route.
    Get,
    /// `POST`. Scripts of any origin may use the route.
    Post,
    /// Any method, without CORS. A key-service decides.
    Passed,
}

impl Methods {
    /// Returns the value of `Allow` if the route does not accept `method`.
    pub(super) fn refuse(self, method: &Method) -> Option<&'static str> {
        match self {
            Self::Get => (method != Method::GET && method != Method::HEAD).then_some("GET,HEAD"),
            Self::Post => (method != Method::POST).then_some("POST"),
            Self::Passed => None,
        }
    }

    /// Returns whether the route allows any origin (CORS).
    pub(super) const fn any_origin(self) -> bool {
        match self {
            Self::Get | Self::Post => true,
            Self::Passed => false,
        }
    }
}

const fn open(
    methods: Methods,
    pattern: &'static str,
    describe: Describe,
    handler: fn(Arc<App>, Call) -> Handled,
) -> PublicRoute {
    PublicRoute { pattern, methods, handler, served_from: None, description: Some(describe) }
}

const fn passed(pattern: &'static str, handler: fn(Arc<App>, Call) -> Handled) -> PublicRoute {
    PublicRoute { pattern, methods: Passed, handler, served_from: None, description: None }
}

/// A route for operators, which the public address serves only from this setting on.
const fn for_operators(
    served_from: PublicOperator,
    pattern: &'static str,
    handler: fn(Arc<App>, Call) -> Handled,
) -> PublicRoute {
    PublicRoute { served_from: Some(served_from), ..passed(pattern, handler) }
}

impl PublicRoute {
    /// Returns whether the public address serves the route with this setting.
    pub(super) fn is_served(&self, setting: PublicOperator) -> bool {
        self.served_from.is_none_or(|from| from <= setting)
    }
}

static ROUTES: [PublicRoute; 18] = [
    open(Post, Dialect::CHAT, openapi::chat, |app, call| {
        Box::pin(model_call::create(app, Dialect::Chat, call))
    }),
    open(Post, Dialect::RESPONSES, openapi::response, |app, call| {
        Box::pin(model_call::create(app, Dialect::Responses, call))
    }),
    open(Post, Dialect::MESSAGES, openapi::message, |app, call| {
        Box::pin(model_call::create(app, Dialect::Messages, call))
    }),
    open(Post, Dialect::EMBEDDINGS, openapi::embeddings, |app, call| {
        Box::pin(model_call::create(app, Dialect::Embeddings, call))
    }),
    open(Post, "/v1/messages/count_tokens", openapi::count_tokens, |app, call| {
        Box::pin(count_tokens::count(app, call))
    }),
    open(Get, "/v1/models", openapi::models, |app, call| Box::pin(describe::models(app, call))),
    open(Get, "/v1/models/{id}", openapi::model, |app, call| Box::pin(describe::model(app, call))),
    open(
        Get,
        "/v1",
        |schemas| openapi::about(schemas, "describeV1"),
        |app, _| at_once(describe::service(&app)),
    ),
    open(Get, "/", |schemas| openapi::about(schemas, "describe"), |app, _| at_once(describe::service(&app))),
    open(Get, HEALTH, openapi::health, |app, _| at_once(describe::health(&app))),
    open(Get, "/openapi.json", openapi::description, |_, _| at_once(described())),
    passed(OWN_KEY, |app, call| Box::pin(passthrough::forward(app, call))),
    passed(MANAGEMENT, |app, call| Box::pin(passthrough::forward(app, call))),
    passed("/dashboard", |app, call| Box::pin(passthrough::forward_page(app, call))),
    passed("/dashboard/{*rest}", |app, call| Box::pin(passthrough::forward_page(app, call))),
    for_operators(PublicOperator::All, OPERATOR, |app, call| Box::pin(passthrough::forward(app, call))),
    for_operators(PublicOperator::Pages, "/operator", |app, call| {
        Box::pin(passthrough::forward_page(app, call))
    }),
    for_operators(PublicOperator::Pages, "/operator/{*rest}", |app, call| {
        Box::pin(passthrough::forward_page(app, call))
    }),
];

pub(super) fn find(path: &str) -> Option<&'static PublicRoute> {
    ROUTES.iter().find(|route| match route.pattern.split_once('{') {
        None => route.pattern == path,
        // A model's id may contain slashes that its client does not encode.
        Some((prefix, _)) => path.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()),
    })
}

/// Makes a response that is ready at once.
fn at_once(response: Response) -> Handled {
    Box::pin(ready(Ok(response)))
}

/// `GET /openapi.json`
fn described() -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(JSON))], DOCUMENT.clone()).into_response()
}

fn document() -> Value {
    let method = |methods| if methods == Get { "get" } else { "post" };
    let described = ROUTES.iter().filter_map(|route| Some((route, route.description?)));
    openapi::document(described.map(|(route, describe)| (route.pattern, method(route.methods), describe)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use shared::error::Code;

    use super::*;

    #[test]
    fn a_path_has_one_route_and_its_pattern_names_it() {
        let pattern = |path: &str| find(path).map(|route| route.pattern);
        for path in [
            Dialect::CHAT,
            Dialect::RESPONSES,
            Dialect::MESSAGES,
            Dialect::EMBEDDINGS,
            "/v1/messages/count_tokens",
            "/v1/models",
            "/v1/key",
            "/v1",
            "/",
            "/health",
            "/openapi.json",
            "/dashboard",
            "/operator",
        ] {
            assert_eq!(pattern(path), Some(path));
        }
        for (path, expected) in [
            ("/v1/models/Model%20Flash", Some("/v1/models/{id}")),
            ("/v1/models/a/b", Some("/v1/models/{id}")),
            ("/v1/models/", None),
            ("/v1/management/keys", Some("/v1/management/{*rest}")),
            ("/v1/management/keys/ak_0", Some("/v1/management/{*rest}")),
            ("/v1/operator/accounts", Some("/v1/operator/{*rest}")),
            ("/v1/operator", None),
            ("/v1/management", None),
            ("/v1/management/", None),
            ("/dashboard/keys", Some("/dashboard/{*rest}")),
            ("/dashboards", None),
            ("/operator/accounts/new", Some("/operator/{*rest}")),
            ("/operators", None),
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

    #[test]
    fn routes_for_operators_are_served_as_the_setting_says_and_no_other_route_depends_on_it() {
        use PublicOperator::{All, Off, Pages};
        let served = |path, setting| find(path).unwrap().is_served(setting);
        for (path, expected) in [
            ("/operator", [false, true, true]),
            ("/operator/accounts", [false, true, true]),
            ("/v1/operator/accounts", [false, false, true]),
            ("/v1/operator/openapi.json", [false, false, true]),
        ] {
            assert_eq!([Off, Pages, All].map(|setting| served(path, setting)), expected, "{path}");
        }
        for route in ROUTES.iter().filter(|route| !route.pattern.contains("operator")) {
            assert_eq!([Off, Pages, All].map(|setting| route.is_served(setting)), [true; 3]);
        }
    }

    /// Codes that no operation describes, because they are about routes and methods that do not exist, and about
    /// protocols.
    const UNDESCRIBED: [Code; 3] = [Code::MethodNotAllowed, Code::UpgradeRequired, Code::RotationInProgress];

    #[test]
    fn every_error_there_is_can_be_met_on_some_route() {
        let text = document().to_string() + &shared::describe::operator_api("1").to_string();
        for code in Code::ALL.iter().filter(|code| !UNDESCRIBED.contains(code)) {
            assert!(text.contains(&format!("\"{}\"", code.as_str())), "{}", code.as_str());
        }
    }

    #[test]
    fn no_response_names_a_code_twice() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let operations = paths.values().flat_map(|path| path.as_object().unwrap().values());
        for (status, response) in
            operations.filter_map(|operation| operation["responses"].as_object()).flatten()
        {
            let codes: Vec<&str> = response["description"].as_str().unwrap().split(", ").collect();
            assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), codes.len(), "{status}: {codes:?}");
        }
    }

    #[test]
    fn whatever_is_referred_to_is_described() {
        let document = document();
        let text = document.to_string();
        let described = document["components"]["schemas"].as_object().unwrap();
        let named: BTreeSet<&str> =
            text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(named.iter().all(|name| described.contains_key(*name)), "{named:?}");
        assert!(
            ["Error", "ApiKey", "Group", "ChatCompletion"].iter().all(|name| named.contains(name)),
            "{named:?}"
        );
    }
}
