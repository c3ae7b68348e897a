//! Descriptions of the service: models, endpoints, health.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
    http::{Extensions, HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Serialize;
use shared::{
    catalog,
    error::ApiError,
    process::{http::ok, serve::ConnectionTrust},
};

use super::{App, authenticate, credential};

/// A model in a listing.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Model")]
pub(super) struct ModelObject<'a> {
    id: &'a str,
    #[schemars(extend("const" = "model"))]
    object: &'static str,
    created: i64,
    owned_by: &'a str,
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
    endpoints: [&'static str; 3],
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
    extensions: Extensions,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let trust = ConnectionTrust::of(&extensions);
    let caller = authenticate(&app, &credential(&app, &headers, &trust).await?, &trust).await?;
    let models = app.catalog.models.iter().filter(|model| caller.may_use(&model.id));
    Ok(ok(&Models { object: "list", data: models.map(describe).collect() }))
}

/// `GET /v1/models/{id}`
pub(super) async fn model(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
    extensions: Extensions,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let trust = ConnectionTrust::of(&extensions);
    let caller = authenticate(&app, &credential(&app, &headers, &trust).await?, &trust).await?;
    // A path that is no UTF-8 names no model.
    let model = id.ok().and_then(|Path(id)| app.catalog.model(&id)).filter(|model| caller.may_use(&model.id));
    let not_found = || {
        let ids = app.catalog.ids();
        ApiError::model_not_found(ids.into_iter().filter(|id| caller.may_use(id)).collect())
    };
    Ok(ok(&describe(model.ok_or_else(not_found)?)))
}

fn describe(model: &catalog::Model) -> ModelObject<'_> {
    ModelObject { id: &model.id, object: "model", created: model.created, owned_by: &model.owned_by }
}

/// `GET /v1`, `GET /`
pub(super) async fn service(State(app): State<Arc<App>>) -> Response {
    let catalog::Service { name, provider, docs } = &app.catalog.service;
    ok(&About {
        service: name,
        provider,
        version: env!("CARGO_PKG_VERSION"),
        endpoints: ["GET /health", "GET /v1/models", "POST /v1/chat/completions"],
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
