//! The front of the public routes: the steps common to every request, and a straight way for model calls.
//!
//! A router clones its routes and layers for every request, and each layer polls the next. For model calls, nearly all
//! requests there are, this took a fifth of the gateway's instructions.

use std::{future::ready, panic::AssertUnwindSafe, sync::Arc};

use axum::{
    Router,
    extract::Request,
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use metrics::Counter;
use shared::{
    error::{ApiError, Code},
    ids::RequestId,
    process::{
        http::{X_REQUEST_ID, ambiguity, drain_unread_body},
        serve::Handler,
    },
};
use tower::ServiceExt;

use super::{
    App, call, cors, describe,
    dialect::{Dialect, ErrorForm},
    observe::{Head, Observed, answers},
};

/// Dependencies of the front.
struct Behind {
    app: Arc<App>,
    routes: Router,
    /// Counters of the dialects' answers 200, in the order of the dialects.
    served: [Counter; Dialect::ALL.len()],
}

/// The front of these routes.
pub(super) fn front(app: Arc<App>, routes: Router) -> Handler {
    let served = Dialect::ALL.map(|dialect| answers(dialect.route(), &Method::POST, StatusCode::OK));
    let behind = Arc::new(Behind { app, routes, served });
    Handler::new(move |request| answer(behind.clone(), request))
}

/// Answers a request under an id of ours, and drains the unread rest of the body.
async fn answer(behind: Arc<Behind>, request: Request) -> Response {
    let id = RequestId::generate(&*behind.app.clock);
    let mut request = request.map(drain_unread_body);
    let form = ErrorForm::of(&request);
    let called = Dialect::of_route(request.uri().path()).filter(|_| request.method() == Method::POST);
    let mut response = if behind.app.draining.is_cancelled() {
        refuse_while_draining(&request)
    } else if let Some(refusal) = ambiguity(&request) {
        Observed { route: "none", served: None }.answer(Head::of(&request, id), ready(refusal)).await
    } else if let Some(dialect) = called {
        let observed = Observed { route: dialect.route(), served: Some(&behind.served[dialect as usize]) };
        let head = Head::of(&request, id);
        let call = call_model(behind.app.clone(), dialect, id, request);
        observed.answer(head, async { form.apply(call.await, id) }).await
    } else {
        request.extensions_mut().insert(id);
        let Ok(response) = behind.routes.clone().oneshot(request).await;
        response
    };
    response = form.apply(response, id);
    if let Ok(value) = HeaderValue::try_from(id.to_string()) {
        response.headers_mut().insert(X_REQUEST_ID, value);
    }
    response
}

/// A model call, with the layers of a route: CORS, and panics as answers.
async fn call_model(app: Arc<App>, dialect: Dialect, id: RequestId, request: Request) -> Response {
    let created = AssertUnwindSafe(call::answer(app, dialect, id, request)).catch_unwind().await;
    let created = created.unwrap_or_else(|_| Err(ApiError::internal()));
    let mut response = created.unwrap_or_else(IntoResponse::into_response);
    cors::allow(response.headers_mut());
    response
}

/// The answer while the gateway drains.
fn refuse_while_draining(request: &Request) -> Response {
    let mut response = match request.uri().path() {
        "/health" => describe::draining(),
        _ => ApiError::new(Code::Overloaded, "This gateway is shutting down; try again.").into_response(),
    };
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
