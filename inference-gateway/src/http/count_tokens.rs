//! `POST /v1/messages/count_tokens`: counts the tokens of a prompt for a valid key, without a hold or a charge.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use request::messages;
use schemars::JsonSchema;
use serde::Serialize;
use shared::error::ApiError;
use shared_catalog::Catalog;
use shared_door::http::ok;
use upstreams::PassedHead;

use super::{
    app::{App, Call},
    caller::{authenticate, credential},
    model_call::check,
};

/// The answer: the number of tokens in a prompt.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "TokenCount")]
pub(super) struct TokenCount {
    input_tokens: u64,
}

/// `POST /v1/messages/count_tokens`
pub(super) async fn count(app: Arc<App>, call: Call) -> Result<Response, ApiError> {
    let caller = call.caller();
    let (request, (parts, body)) = (call.id, call.request.into_parts());
    let credential = credential(&app, &parts.headers, &caller).await?;
    let account = authenticate(&app, &credential, &caller).await?.account();
    let passed = PassedHead::of(&parts)?;
    let mut permit = app.generator.admission.prompt(account);
    let parse = |body: &Bytes, _: &Catalog| messages::parse_to_count(body);
    let mut checked = check(&app, &parts.headers, body, parse, false, &mut permit).await?;
    // Refuses a model that the key may not use, and a key whose rate is used up, before an upstream counts.
    let origin = checked.forward.take_origin(request);
    app.generator.admit_free(credential, &checked.model, origin, account).await?;
    let pool = checked.models.pool(&checked.model).ok_or_else(ApiError::internal)?;
    let input_tokens = app.generator.count_prompt(pool, &checked.forward, &passed, account).await?;
    Ok(ok(&TokenCount { input_tokens }))
}
