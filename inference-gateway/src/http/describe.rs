//! Descriptions of the service: models, endpoints, health.

use std::sync::Arc;

use admission::Caller;
use axum::{
    Json,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::Serialize;
use shared::error::ApiError;
use shared_catalog::{Catalog, Model, Service};
use shared_door::http::ok;
use shared_rpc::Identity;

use super::{
    app::{App, Call},
    caller::{authenticate, credential},
    dialect::speaks_messages,
    model_pages::{CodexModels, ModelObject, PagedModel, asks_for_codex, page},
};

#[derive(JsonSchema, Serialize)]
pub(super) struct Models<'a> {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<ModelObject<'a>>,
}

#[derive(JsonSchema, Serialize)]
pub(super) struct About<'a> {
    service: &'a str,
    provider: &'a str,
    version: &'static str,
    endpoints: [&'static str; 3],
    docs: &'a str,
}

#[derive(JsonSchema, Serialize)]
pub(super) struct Health {
    #[schemars(extend("enum" = ["ok", "draining"]))]
    status: &'static str,
}

/// `GET /v1/models`
pub(super) async fn models(app: Arc<App>, call: Call) -> Result<Response, ApiError> {
    let identity = authenticated(&app, call.request.headers(), &call.caller()).await?;
    let models = app.models.get();
    if asks_for_codex(call.request.uri().query()) {
        return Ok(ok(&CodexModels::new(usable(&models.catalog, &identity))));
    }
    let data = listed(&models.catalog, &identity);
    if speaks_messages(call.request.headers()) {
        return Ok(ok(&page(data, call.request.uri().query())?));
    }
    Ok(ok(&Models { object: "list", data }))
}

/// `GET /v1/models/{id}`
pub(super) async fn model(app: Arc<App>, call: Call) -> Result<Response, ApiError> {
    let identity = authenticated(&app, call.request.headers(), &call.caller()).await?;
    // A path that is not UTF-8 names no model.
    let id = model_id(call.request.uri().path()).map(percent_decode_str);
    let name = id.and_then(|id| id.decode_utf8().ok());
    let models = app.models.get();
    let not_found =
        || ApiError::model_not_found(usable(&models.catalog, &identity).map(|m| m.id.clone()).collect());
    let name = name.ok_or_else(not_found)?;
    let model =
        models.catalog.model(&name).filter(|model| identity.may_use(&model.id)).ok_or_else(not_found)?;
    let described = ModelObject::new(model, &name);
    let paged = speaks_messages(call.request.headers());
    Ok(if paged { ok(&PagedModel::new(described)) } else { ok(&described) })
}

/// Returns the id in a model's path, without decoding it.
pub(super) fn model_id(path: &str) -> Option<&str> {
    path.strip_prefix("/v1/models/").filter(|id| !id.is_empty())
}

/// Finds the owner of a request's key, if the key may currently make model calls.
pub(super) async fn authenticated(
    app: &App,
    headers: &HeaderMap,
    caller: &Caller,
) -> Result<Identity, ApiError> {
    let credential = credential(app, headers, caller).await?;
    authenticate(app, &credential, caller).await
}

/// Returns the models that a key may use.
fn usable<'a>(catalog: &'a Catalog, identity: &'a Identity) -> impl Iterator<Item = &'a Model> {
    catalog.models.iter().filter(|model| identity.may_use(&model.id))
}

/// Describes all models that a key may use, followed by their aliases.
fn listed<'a>(catalog: &'a Catalog, identity: &'a Identity) -> Vec<ModelObject<'a>> {
    let models = usable(catalog, identity).map(|model| ModelObject::new(model, &model.id));
    let aliases = usable(catalog, identity)
        .flat_map(|model| model.aliases.iter().map(move |alias| ModelObject::new(model, alias)));
    models.chain(aliases).collect()
}

/// `GET /v1`, `GET /`
pub(super) fn service(app: &App) -> Response {
    let models = app.models.get();
    let Service { name, provider, docs } = &models.catalog.service;
    ok(&About {
        service: name,
        provider,
        version: env!("CARGO_PKG_VERSION"),
        endpoints: ["GET /health", "GET /v1/models", "POST /v1/chat/completions"],
        docs,
    })
}

/// `GET /health`: this process serves. Its dependencies are not checked.
pub(super) fn health(app: &App) -> Response {
    if app.stopping.is_cancelled() { stopping() } else { ok(&Health { status: "ok" }) }
}

/// `GET /health` of a gateway that is stopping.
pub(super) fn stopping() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, Json(Health { status: "draining" })).into_response()
}
