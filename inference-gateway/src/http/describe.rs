//! Descriptions of the service: models, endpoints, health.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, RawQuery, State, rejection::PathRejection},
    http::{Extensions, HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Serialize;
use shared::{
    catalog::{Catalog, Model, Service},
    error::ApiError,
    process::{http::ok, serve::ConnectionTrust},
    rpc::Identity,
};

use super::{
    App, authenticate, credential,
    dialect::{Dialect, speaks_messages},
    model_pages::{PagedModel, page},
};
use crate::admission::Caller;

/// A model in a listing.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Model")]
pub(super) struct ModelObject<'a> {
    pub(super) id: &'a str,
    #[schemars(extend("const" = "model"))]
    pub(super) object: &'static str,
    pub(super) created: i64,
    pub(super) owned_by: &'a str,
    /// The model's id, if `id` is an alias of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) alias_of: Option<&'a str>,
}

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
    endpoints: Vec<String>,
    docs: &'a str,
}

#[derive(JsonSchema, Serialize)]
pub(super) struct Health {
    #[schemars(extend("enum" = ["ok", "draining"]))]
    status: &'static str,
}

/// `GET /v1/models`
pub(super) async fn models(
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
    extensions: Extensions,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let caller = Caller(ConnectionTrust::of(&extensions));
    let identity = authenticate(&app, &credential(&app, &headers, &caller).await?, &caller).await?;
    let data = listed(&app.catalog, &identity);
    if speaks_messages(&headers) {
        return Ok(ok(&page(data, query.as_deref())?));
    }
    Ok(ok(&Models { object: "list", data }))
}

/// `GET /v1/models/{id}`
pub(super) async fn model(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
    extensions: Extensions,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let caller = Caller(ConnectionTrust::of(&extensions));
    let identity = authenticate(&app, &credential(&app, &headers, &caller).await?, &caller).await?;
    // A path that is no UTF-8 names no model.
    let not_found =
        || ApiError::model_not_found(usable(&app.catalog, &identity).map(|m| m.id.clone()).collect());
    let Path(name) = id.map_err(|_| not_found())?;
    let model = app.catalog.model(&name).filter(|model| may_use(&identity, model)).ok_or_else(not_found)?;
    let described = describe(model, &name);
    Ok(if speaks_messages(&headers) { ok(&PagedModel::new(described)) } else { ok(&described) })
}

/// Returns whether a key may use a model. A list that names an alias means its model.
pub(super) fn may_use(identity: &Identity, model: &Model) -> bool {
    let Some(models) = &identity.models else { return true };
    models.iter().any(|name| *name == model.id || model.aliases.contains(name))
}

/// The models that a key may use.
fn usable<'a>(catalog: &'a Catalog, identity: &'a Identity) -> impl Iterator<Item = &'a Model> {
    catalog.models.iter().filter(|model| may_use(identity, model))
}

/// Describes all models that a key may use, and after them their aliases.
fn listed<'a>(catalog: &'a Catalog, identity: &'a Identity) -> Vec<ModelObject<'a>> {
    let models = usable(catalog, identity).map(|model| describe(model, &model.id));
    let aliases = usable(catalog, identity)
        .flat_map(|model| model.aliases.iter().map(move |alias| describe(model, alias)));
    models.chain(aliases).collect()
}

/// Describes a model under its id or an alias.
fn describe<'a>(model: &'a Model, name: &'a str) -> ModelObject<'a> {
    let Model { id, created, owned_by, .. } = model;
    let alias_of = (name != id).then_some(id.as_str());
    ModelObject { id: name, object: "model", created: *created, owned_by, alias_of }
}

/// `GET /v1`, `GET /`
pub(super) async fn service(State(app): State<Arc<App>>) -> Response {
    let Service { name, provider, docs } = &app.catalog.service;
    let calls = Dialect::ALL.map(|dialect| format!("POST {}", dialect.route()));
    ok(&About {
        service: name,
        provider,
        version: env!("CARGO_PKG_VERSION"),
        endpoints: ["GET /health", "GET /v1/models"].map(str::to_owned).into_iter().chain(calls).collect(),
        docs,
    })
}

/// `GET /health`: this process serves. Dependencies are not checked.
pub(super) async fn health() -> Response {
    ok(&Health { status: "ok" })
}

/// `GET /health` of a gateway that is to stop.
pub(super) fn draining() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, Json(Health { status: "draining" })).into_response()
}
