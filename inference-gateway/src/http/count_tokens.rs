//! `POST /v1/messages/count_tokens`: counts a prompt for a live key, without a hold and without a charge.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use schemars::JsonSchema;
use serde::Serialize;
use shared::{
    error::ApiError,
    process::{http::ok, serve::ConnectionTrust},
    refusal::Refusal,
};

use super::{App, authenticate, call::check, credential, describe::may_use};
use crate::admission::Caller;
use domain::messages;

/// Tokens of a prompt.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "TokenCount")]
pub(super) struct TokenCount {
    input_tokens: u64,
}

/// Handler of the route.
pub(super) async fn count(State(app): State<Arc<App>>, http: Request) -> Result<Response, ApiError> {
    let (parts, body) = http.into_parts();
    let caller = Caller(ConnectionTrust::of(&parts.extensions));
    let credential = credential(&app, &parts.headers, &caller).await?;
    let identity = authenticate(&app, &credential, &caller).await?;
    let account = identity.account();
    let mut permit = app.admission.prompt(account);
    let checked = check(&app, (&parts.headers, body), messages::parse_to_count, false, &mut permit).await?;
    let model = app.catalog.model(&checked.model);
    if !model.is_some_and(|model| may_use(&identity, model)) {
        return Err(Refusal::ModelNotAllowed.into());
    }
    let input_tokens = app.generator.count_prompt(&checked.model, &checked.forward, account).await?;
    Ok(ok(&TokenCount { input_tokens }))
}
