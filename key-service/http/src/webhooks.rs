//! Webhooks over HTTP.

use axum::{
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use shared::{
    error::ApiError,
    ids::WebhookId,
    wire::{AttemptList, AttemptObject, WEBHOOKS},
};
use shared_door::http::ok;

use crate::{
    Api, IDEMPOTENT_REPLAYED, body,
    listing::{self, json_response},
    parts::{Caller, PathId},
    query,
};
use domain::webhook::{Answer, Attempt, Webhook, WebhookPatch};
use key_service_management::webhooks::{MadeWebhook, WebhookRefused};
use key_service_objects::{Shown, with_secret};

pub(super) async fn list(
    State(api): State<Api>,
    Caller(caller): Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let query = query::read::<Webhook>(request.uri().query())?;
    listing::respond(api, caller.account, query).await
}

pub(super) async fn create(
    State(api): State<Api>,
    Caller(caller): Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let idempotency_key = body::idempotency_key(request.headers(), &caller)?;
    let settings: WebhookPatch = body::read_draft(request).await?;
    // A body without a URL was refused.
    let url = settings.url.clone().ok_or_else(ApiError::internal)?;
    let made = api.management.create_webhook(caller.account, (url, settings), idempotency_key).await?;
    let (MadeWebhook::New(webhook, _) | MadeWebhook::Replayed(webhook)) = &made;
    let location = [(header::LOCATION, format!("{WEBHOOKS}/{}", webhook.id))];
    let shown = match &made {
        MadeWebhook::New(webhook, secret) => ok(&with_secret(webhook, secret)),
        MadeWebhook::Replayed(webhook) => {
            ([IDEMPOTENT_REPLAYED], ok(&webhook.shown(api.clock.now()))).into_response()
        }
    };
    Ok((StatusCode::CREATED, location, shown).into_response())
}

pub(super) async fn fetch(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<WebhookId>,
) -> Result<Response, ApiError> {
    let webhook = api.management.webhook(caller.account, path.or(WebhookRefused::NotFound)?).await?;
    Ok(ok(&webhook.shown(api.clock.now())))
}

pub(super) async fn update(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<WebhookId>,
    request: Request,
) -> Result<Response, ApiError> {
    let change = body::read_patch(request).await?;
    let id = path.or(WebhookRefused::NotFound)?;
    let webhook = api.management.update_webhook(caller.account, id, change, caller.actor).await?;
    Ok(ok(&webhook.shown(api.clock.now())))
}

/// Removes a webhook, and answers with what it was.
pub(super) async fn delete(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<WebhookId>,
) -> Result<Response, ApiError> {
    let webhook = api.management.delete_webhook(caller.account, path.or(WebhookRefused::NotFound)?).await?;
    Ok(ok(&webhook.shown(api.clock.now())))
}

/// Queues a test, and answers with the event that is sent.
pub(super) async fn test(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<WebhookId>,
) -> Result<Response, ApiError> {
    let event = api.management.test_webhook(caller.account, path.or(WebhookRefused::NotFound)?).await?;
    Ok(json_response(Body::from(event)))
}

pub(super) async fn deliveries(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<WebhookId>,
) -> Result<Response, ApiError> {
    let attempts = api.management.attempts(caller.account, path.or(WebhookRefused::NotFound)?).await?;
    Ok(ok(&AttemptList { object: "list", data: attempts.iter().map(attempt).collect(), has_more: false }))
}

fn attempt(attempt: &Attempt) -> AttemptObject<'_> {
    let (status, error) = match &attempt.answer {
        Answer::Status(status) => (Some(*status), None),
        Answer::None(reason) => (None, Some(reason.as_str())),
    };
    AttemptObject {
        object: "webhook.delivery",
        event_id: attempt.event,
        r#type: &attempt.kind,
        created_at: attempt.at,
        duration_ms: attempt.milliseconds,
        status,
        error,
    }
}
