//! The management API over HTTP.

use std::sync::Arc;

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use shared::{
    clock::Clock,
    error::ApiError,
    ids::{KeyId, RequestId},
    text::{shown_method, shown_path},
    time::Timestamp,
    wire::{CREDITS, EVENTS, GENERATIONS, GROUPS, KEYS, OWN_KEY, USAGE, WEBHOOKS},
};
use shared_catalog::Catalog;
use shared_config::{current::Current, internal_token::InternalToken};
use shared_door::http::{
    ClientRequestId, believe_gateways, catch_panics, drain_unread, gateway_request_id, method_not_allowed,
    ok, refuse_ambiguous, unknown_url,
};
use shared_observe::traces;
use tracing::Instrument;

use domain::{
    key::{ApiKey, KeyPatch},
    ledger::BoundsPatch,
};
use key_service_management::{Issued, KeyRefused, Management};
use key_service_objects::{Shown as _, with_plaintext};

mod body;
mod error;
mod groups;
mod listing;
mod parts;
mod query;
mod reach;
mod reading;
mod webhooks;

use error::forbidden;
use parts::{KeysCaller, PathId};

/// Header of an answer about an object that an earlier request made, or a key that it rotated.
const IDEMPOTENT_REPLAYED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("idempotent-replayed"), HeaderValue::from_static("true"));

/// The dependencies of every handler.
#[derive(Clone)]
struct Api {
    management: Arc<Management>,
    catalog: Arc<Current<Catalog>>,
    clock: Arc<dyn Clock>,
}

impl Api {
    /// Names the models of bounds by their ids.
    fn name_models_by_id(&self, bounds: &mut BoundsPatch) {
        if let Some(Some(models)) = &mut bounds.models {
            self.catalog.get().name_by_id(models);
        }
    }
}

/// The public routes of the key-service: the management API, and beside it the dashboard's.
/// What a gateway says of its clients is believed with `internal_token`.
pub fn router(
    management: Arc<Management>,
    catalog: Arc<Current<Catalog>>,
    clock: Arc<dyn Clock>,
    internal_token: InternalToken,
    dashboard: Router,
) -> Router {
    let api = Api { management, catalog, clock: clock.clone() };
    let routed = |router: Router<Api>, (path, handlers): (String, _)| router.route(&path, handlers);
    routes()
        .into_iter()
        .fold(Router::new(), routed)
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

/// The routes of the management API.
fn routes() -> Vec<(String, MethodRouter<Api>)> {
    let of = |path: &str, below: &str| format!("{path}/{{id}}{below}");
    vec![
        (KEYS.into(), get(list).post(create)),
        (of(KEYS, ""), get(fetch).patch(update).delete(revoke)),
        (of(KEYS, "/rotate"), post(rotate)),
        (GROUPS.into(), get(groups::list).post(groups::create)),
        (of(GROUPS, ""), get(groups::fetch).patch(groups::update).delete(groups::archive)),
        (of(GROUPS, "/keys"), get(groups::keys)),
        (of(GROUPS, "/revoke_keys"), post(groups::revoke_keys)),
        (WEBHOOKS.into(), get(webhooks::list).post(webhooks::create)),
        (of(WEBHOOKS, ""), get(webhooks::fetch).patch(webhooks::update).delete(webhooks::delete)),
        (of(WEBHOOKS, "/deliveries"), get(webhooks::deliveries)),
        (of(WEBHOOKS, "/test"), post(webhooks::test)),
        (CREDITS.into(), get(reading::credits)),
        (USAGE.into(), get(reading::usage)),
        (GENERATIONS.into(), get(reading::generations)),
        (of(GENERATIONS, ""), get(reading::generation)),
        (EVENTS.into(), get(reading::events)),
        (OWN_KEY.into(), get(reading::own_key)),
    ]
}

async fn list(
    State(api): State<Api>,
    KeysCaller(caller): KeysCaller,
    request: Request,
) -> Result<Response, ApiError> {
    let mut query = query::read::<ApiKey>(request.uri().query())?;
    query.filter.within = caller.access.group;
    listing::respond(api, caller.account, query).await
}

async fn create(
    State(api): State<Api>,
    KeysCaller(caller): KeysCaller,
    request: Request,
) -> Result<Response, ApiError> {
    let idempotency_key = body::idempotency_key(request.headers(), &caller)?;
    let mut draft: KeyPatch = body::read_draft(request).await?;
    api.name_models_by_id(&mut draft.bounds);
    api.place_new(&caller, &mut draft).await?;
    let issued = api.management.create(caller.account, draft, idempotency_key, caller.actor.clone()).await?;
    if let Issued::Replayed(key) = &issued {
        // The key may have been moved out of the caller's group since.
        let judged = api.management.judge_key(&caller, key.id).await;
        judged.map_err(|error| forbidden(error, KeyRefused::IdempotencyKeyReused))?;
    }
    let (Issued::New { key, .. } | Issued::Replayed(key)) = &issued;
    let location = [(header::LOCATION, format!("{KEYS}/{}", key.id))];
    Ok((StatusCode::CREATED, location, shown_once(&issued, api.clock.now())).into_response())
}

async fn rotate(
    State(api): State<Api>,
    KeysCaller(caller): KeysCaller,
    path: PathId<KeyId>,
    request: Request,
) -> Result<Response, ApiError> {
    let idempotency_key = body::idempotency_key(request.headers(), &caller)?;
    let terms = body::read_rotation(request).await?;
    let id = api.key_in_reach(&caller, &path).await?;
    let issued = api.management.rotate((caller.account, id), terms, idempotency_key, caller.actor).await?;
    Ok(shown_once(&issued, api.clock.now()))
}

/// The key, with a plaintext that no repetition shows again.
fn shown_once(issued: &Issued, now: Timestamp) -> Response {
    match issued {
        Issued::New { key, plaintext } => ok(&with_plaintext(key, plaintext, now)),
        Issued::Replayed(key) => ([IDEMPOTENT_REPLAYED], ok(&key.shown(now))).into_response(),
    }
}

async fn fetch(
    State(api): State<Api>,
    KeysCaller(caller): KeysCaller,
    path: PathId<KeyId>,
) -> Result<Response, ApiError> {
    let id = api.key_in_reach(&caller, &path).await?;
    let key = api.management.get(caller.account, id).await?;
    Ok(ok(&key.shown(api.clock.now())))
}

async fn update(
    State(api): State<Api>,
    KeysCaller(caller): KeysCaller,
    path: PathId<KeyId>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut change: KeyPatch = body::read_patch(request).await?;
    api.name_models_by_id(&mut change.bounds);
    let id = api.key_in_reach(&caller, &path).await?;
    api.judge_move(&caller, &change).await?;
    let key = api.management.update(caller.account, id, change, caller.actor).await?;
    Ok(ok(&key.shown(api.clock.now())))
}

async fn revoke(
    State(api): State<Api>,
    KeysCaller(caller): KeysCaller,
    path: PathId<KeyId>,
) -> Result<Response, ApiError> {
    let id = api.key_in_reach(&caller, &path).await?;
    let key = api.management.revoke(caller.account, id, caller.actor).await?;
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
    let matched = extensions.get::<MatchedPath>().map(MatchedPath::as_str);
    let (route, trace) = (matched.unwrap_or("none"), traces::Span::of_request(&request, matched));
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
    let response = trace.around(Box::pin(next.run(request).instrument(span.clone()))).await;
    let milliseconds = clock.now().millis() - started.millis();
    let _entered = trace.enter();
    span.in_scope(|| tracing::info!(status = response.status().as_u16(), milliseconds, "answered"));
    trace.answered(response)
}

#[cfg(test)]
mod tests;
