//! The management API over HTTP.

use std::{collections::HashSet, sync::Arc};

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use shared::{
    catalog::Catalog,
    clock::Clock,
    current::Current,
    error::ApiError,
    ids::{KeyId, RequestId},
    process::http::{
        ClientRequestId, believe_gateways, catch_panics, drain_unread, gateway_request_id,
        method_not_allowed, ok, refuse_ambiguous, shown_method, shown_path, unknown_url,
    },
    secret::SecretString,
    time::Timestamp,
    wire::{CREDITS, EVENTS, GENERATIONS, GROUPS, KEYS, OWN_KEY, USAGE, WEBHOOKS},
};
use tracing::Instrument;

use crate::management::{Issued, KeyRefused, Management};
use domain::{
    key::{ApiKey, KeyPatch},
    ledger::BoundsPatch,
};

mod body;
mod error;
mod groups;
mod listing;
mod object;
mod parts;
mod query;
mod reading;
mod webhooks;

pub(crate) use body::{settings, settings_among, value};
pub(crate) use object::Shown;

use object::with_plaintext;
use parts::{Caller, PathId};

/// Header of an answer about a key that an earlier request made or rotated.
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The dependencies of every handler.
#[derive(Clone)]
struct Api {
    management: Arc<Management>,
    catalog: Arc<Current<Catalog>>,
    clock: Arc<dyn Clock>,
}

impl Api {
    /// Replaces each alias in a list of models by the id of the model: the ledger knows ids alone. Other names stay, since
    /// a list may name a model that comes later.
    fn name_models_by_id(&self, bounds: &mut BoundsPatch) {
        let Some(Some(models)) = &mut bounds.models else { return };
        let catalog = self.catalog.get();
        for name in models.iter_mut() {
            if let Some(model) = catalog.model(name) {
                name.clone_from(&model.id);
            }
        }
        let mut listed = HashSet::new();
        models.retain(|name| listed.insert(name.clone()));
    }
}

/// The public routes of the key-service: the management API, and beside it the dashboard's.
/// What a gateway says of its clients is believed with `internal_token`.
pub(crate) fn router(
    management: Arc<Management>,
    catalog: Arc<Current<Catalog>>,
    clock: Arc<dyn Clock>,
    internal_token: SecretString,
    dashboard: Router,
) -> Router {
    let api = Api { management, catalog, clock: clock.clone() };
    Router::new()
        .route(KEYS, get(list).post(create))
        .route(&format!("{KEYS}/{{id}}"), get(fetch).patch(update).delete(revoke))
        .route(&format!("{KEYS}/{{id}}/rotate"), post(rotate))
        .route(GROUPS, get(groups::list).post(groups::create))
        .route(&format!("{GROUPS}/{{id}}"), get(groups::fetch).patch(groups::update).delete(groups::archive))
        .route(&format!("{GROUPS}/{{id}}/keys"), get(groups::keys))
        .route(&format!("{GROUPS}/{{id}}/revoke_keys"), post(groups::revoke_keys))
        .route(WEBHOOKS, get(webhooks::list).post(webhooks::create))
        .route(
            &format!("{WEBHOOKS}/{{id}}"),
            get(webhooks::fetch).patch(webhooks::update).delete(webhooks::delete),
        )
        .route(&format!("{WEBHOOKS}/{{id}}/deliveries"), get(webhooks::deliveries))
        .route(&format!("{WEBHOOKS}/{{id}}/test"), post(webhooks::test))
        .route(CREDITS, get(reading::credits))
        .route(USAGE, get(reading::usage))
        .route(GENERATIONS, get(reading::generations))
        .route(&format!("{GENERATIONS}/{{id}}"), get(reading::generation))
        .route(EVENTS, get(reading::events))
        .route(OWN_KEY, get(reading::own_key))
        .fallback(unknown_url)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(api)
        .layer(middleware::map_response(no_store))
        .merge(dashboard)
        .layer(catch_panics())
        .layer(middleware::from_fn(refuse_ambiguous))
        .layer(middleware::from_fn_with_state(clock.clone(), log_request))
        .layer(middleware::from_fn_with_state(clock, gateway_request_id))
        .layer(middleware::from_fn_with_state(internal_token, believe_gateways))
        .layer(middleware::from_fn(drain_unread))
}

async fn list(
    State(api): State<Api>,
    Caller { account, .. }: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let query = query::read::<ApiKey>(request.uri().query())?;
    listing::respond(api, account, query).await
}

async fn create(
    State(api): State<Api>,
    Caller { account, actor }: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let idempotency_key = body::idempotency_key(request.headers())?;
    let mut draft: KeyPatch = body::read_draft(request).await?;
    api.name_models_by_id(&mut draft.bounds);
    let issued = api.management.create(account, draft, idempotency_key, actor).await?;
    let (Issued::New { key, .. } | Issued::Replayed(key)) = &issued;
    let location = [(header::LOCATION, format!("{KEYS}/{}", key.id))];
    Ok((StatusCode::CREATED, location, shown_once(&issued, api.clock.now())).into_response())
}

async fn rotate(
    State(api): State<Api>,
    Caller { account, actor }: Caller,
    path: PathId<KeyId>,
    request: Request,
) -> Result<Response, ApiError> {
    let idempotency_key = body::idempotency_key(request.headers())?;
    let terms = body::read_rotation(request).await?;
    let id = path.or(KeyRefused::NotFound)?;
    let issued = api.management.rotate((account, id), terms, idempotency_key, actor).await?;
    Ok(shown_once(&issued, api.clock.now()))
}

/// The key, with a plaintext that no repetition shows again.
fn shown_once(issued: &Issued, now: Timestamp) -> Response {
    match issued {
        Issued::New { key, plaintext } => ok(&with_plaintext(key, plaintext, now)),
        Issued::Replayed(key) => ([(IDEMPOTENT_REPLAYED, "true")], ok(&key.shown(now))).into_response(),
    }
}

async fn fetch(
    State(api): State<Api>,
    Caller { account, .. }: Caller,
    path: PathId<KeyId>,
) -> Result<Response, ApiError> {
    let key = api.management.get(account, path.or(KeyRefused::NotFound)?).await?;
    Ok(ok(&key.shown(api.clock.now())))
}

async fn update(
    State(api): State<Api>,
    Caller { account, actor }: Caller,
    path: PathId<KeyId>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut change: KeyPatch = body::read_patch(request).await?;
    api.name_models_by_id(&mut change.bounds);
    let key = api.management.update(account, path.or(KeyRefused::NotFound)?, change, actor).await?;
    Ok(ok(&key.shown(api.clock.now())))
}

async fn revoke(
    State(api): State<Api>,
    Caller { account, actor }: Caller,
    path: PathId<KeyId>,
) -> Result<Response, ApiError> {
    let key = api.management.revoke(account, path.or(KeyRefused::NotFound)?, actor).await?;
    Ok(ok(&key.shown(api.clock.now())))
}

/// Middleware: forbids caches to store answers, which may contain the plaintext of a key.
async fn no_store(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Middleware: one line a request, and its ids on whatever is logged on the way. Account and key are known once the caller is
/// authenticated.
async fn log_request(State(clock): State<Arc<dyn Clock>>, request: Request, next: Next) -> Response {
    let extensions = request.extensions();
    let route = extensions.get::<MatchedPath>().map_or("none", MatchedPath::as_str);
    let span = tracing::info_span!(
        "request",
        request = extensions.get::<RequestId>().map(tracing::field::display),
        client_request = ClientRequestId::read(request.headers()).as_ref().map(ClientRequestId::as_str),
        account = tracing::field::Empty,
        management_key = tracing::field::Empty,
        method = shown_method(request.method()),
        route,
        path = shown_path(request.uri()),
    );
    let started = clock.now();
    let response = next.run(request).instrument(span.clone()).await;
    let milliseconds = clock.now().millis() - started.millis();
    span.in_scope(|| tracing::info!(status = response.status().as_u16(), milliseconds, "answered"));
    response
}

#[cfg(test)]
mod tests;
