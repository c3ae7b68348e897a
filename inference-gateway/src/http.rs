//! The public routes.

mod call;
mod cors;
mod count_tokens;
mod describe;
mod dialect;
mod front;
mod model_pages;
mod observe;
mod openapi;
mod passthrough;
mod rate_headers;

use std::sync::Arc;

use axum::{
    Router,
    http::HeaderName,
    middleware,
    routing::{any, get, post},
};
use shared::{
    catalog::Catalog,
    clock::Clock,
    error::ApiError,
    key::{Class, Prefix},
    process::{
        http::{catch_panics, method_not_allowed, model_credential, unknown_url},
        serve::Handler,
    },
    refusal::{Denial, Refusal},
    rpc::Identity,
};
use tokio_util::sync::CancellationToken;

use crate::{
    admission::{Admission, Caller},
    generation::Generator,
};

/// Dependencies of the routes, an instance per worker.
pub(crate) struct App {
    /// Source of time and randomness.
    pub(crate) clock: Arc<dyn Clock>,
    /// Runs chat requests.
    pub(crate) generator: Arc<Generator>,
    /// The models.
    pub(crate) catalog: Arc<Catalog>,
    /// Prefix of every key.
    pub(crate) prefix: Prefix,
    /// The largest body of a chat request, in bytes.
    pub(crate) max_body: usize,
    /// The gateway's quotas.
    pub(crate) admission: Admission,
    /// The management API and the dashboard of the key-services.
    pub(crate) management: Arc<Management>,
    /// True if the proxy in front of the gateway is trusted to name the client.
    pub(crate) proxy_trusted: bool,
    /// Cancelled when the gateway begins to stop: no new requests are accepted.
    pub(crate) draining: CancellationToken,
}

/// The public routes, wrapped in `front`.
pub(crate) fn routes(app: Arc<App>) -> Handler {
    let public = Router::new()
        .route(Dialect::Chat.route(), post(call::create))
        .route(Dialect::Responses.route(), post(call::create))
        .route(Dialect::Messages.route(), post(call::create))
        .route("/v1/messages/count_tokens", post(count_tokens::count))
        .route(MODELS, get(describe::models))
        .route("/v1/models/{id}", get(describe::model))
        .route("/v1", get(describe::service))
        .route("/", get(describe::service))
        .route("/health", get(describe::health))
        .route("/openapi.json", get(openapi::describe))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(cors::layer());
    let management = Router::new()
        .route("/v1/management/{*rest}", any(passthrough::forward))
        .route("/dashboard", any(passthrough::forward_page))
        .route("/dashboard/{*rest}", any(passthrough::forward_page));
    let routes = Router::new()
        .merge(public)
        .merge(management)
        .fallback(unknown_url)
        .layer(catch_panics())
        .layer(middleware::from_fn(observe::observe))
        .with_state(app.clone());
    front(app, routes)
}

/// The route of the list of models.
const MODELS: &str = "/v1/models";

/// Response header with the generation's id, which is also the billing id.
pub(crate) const X_GENERATION_ID: HeaderName = HeaderName::from_static("x-generation-id");
/// Response header with the value to which `max_tokens` was lowered, since more could not be paid.
pub(crate) const X_MAX_TOKENS: HeaderName = HeaderName::from_static("x-max-tokens");

use dialect::Dialect;
use front::front;
pub(crate) use passthrough::Management;

/// Returns the presented credential if the form is that of an API key. A management key is first checked by the
/// key-service, so that the error names the right reason.
async fn credential(
    app: &App,
    request_headers: &http::HeaderMap,
    caller: &Caller,
) -> Result<String, ApiError> {
    let presented = model_credential(request_headers)?;
    match app.prefix.classify(presented) {
        None => Err(Refusal::InvalidApiKey.into()),
        Some(Class::Api) => Ok(presented.to_owned()),
        Some(Class::Management) => {
            authenticate(app, presented, caller).await?;
            Err(Refusal::InvalidApiKey.into())
        }
    }
}

/// The owner of a key that may make model calls right now.
async fn authenticate(app: &App, credential: &str, caller: &Caller) -> Result<Identity, ApiError> {
    Ok(identify(app, credential, Class::Api, caller).await??)
}

/// The owner of a credential, or the refusal. Unauthenticated callers take turns, so that authenticated calls do
/// not wait behind any number of unauthenticated calls.
async fn identify(
    app: &App,
    credential: &str,
    required: Class,
    caller: &Caller,
) -> Result<Result<Identity, Denial>, ApiError> {
    let _turn = app.admission.check(caller).await?;
    let authenticated = app.generator.keys.authenticate(credential, required).await?;
    if let Ok(identity) = &authenticated {
        caller.accepted(identity.account());
    }
    Ok(authenticated)
}
