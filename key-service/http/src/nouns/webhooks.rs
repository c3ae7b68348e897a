use axum::{body::Body, extract::State, response::Response};
use shared::{
    error::ApiError,
    ids::WebhookId,
    wire::{AttemptList, AttemptObject},
};
use shared_door::http::ok;

use crate::{
    api::Api,
    listing::json_response,
    parts::{Caller, PathId},
    query::{Filtered, Query},
    reach::HttpNoun,
};
use domain::webhook::{Attempt, ReceiverAnswer, Webhook};

impl Filtered for Webhook {
    fn filter(_: &Query<'_>) -> Result<(), ApiError> {
        Ok(())
    }
}

impl HttpNoun for Webhook {}

/// Queues a test delivery, and returns the event that will be sent.
pub(crate) async fn test(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<WebhookId>,
) -> Result<Response, ApiError> {
    let id = api.in_reach::<Webhook>(&caller, &path).await?;
    let event = api.management.test_webhook(caller.account, id).await?;
    Ok(json_response(Body::from(event)))
}

pub(crate) async fn deliveries(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<WebhookId>,
) -> Result<Response, ApiError> {
    let id = api.in_reach::<Webhook>(&caller, &path).await?;
    let attempts = api.management.attempts(caller.account, id).await?;
    Ok(ok(&AttemptList { object: "list", data: attempts.iter().map(attempt).collect(), has_more: false }))
}

fn attempt(attempt: &Attempt) -> AttemptObject<'_> {
    let (status, error) = match &attempt.answer {
        ReceiverAnswer::Status(status) => (Some(*status), None),
        ReceiverAnswer::None(reason) => (None, Some(reason.as_str())),
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
