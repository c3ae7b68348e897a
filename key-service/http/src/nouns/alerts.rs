use axum::{extract::State, response::Response};
use shared::{
    error::ApiError,
    ids::AlertId,
    wire::{MessageList, MessageObject},
};
use shared_door::http::ok;

use crate::{
    api::Api,
    parts::{Caller, PathId},
    query::{Filtered, Query},
    reach::HttpNoun,
};
use domain::{
    alert::Alert,
    webhook::{Attempt, ReceiverAnswer},
};
use key_service_objects::Shown as _;

impl Filtered for Alert {
    fn filter(_: &Query<'_>) -> Result<(), ApiError> {
        Ok(())
    }
}

impl HttpNoun for Alert {}

/// Queues a test message, and returns the alert.
pub(crate) async fn test(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<AlertId>,
) -> Result<Response, ApiError> {
    let id = api.in_reach::<Alert>(&caller, &path).await?;
    let alert = api.management.test_alert(caller.account, id).await?;
    Ok(ok(&alert.shown(api.clock.now())))
}

pub(crate) async fn messages(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<AlertId>,
) -> Result<Response, ApiError> {
    let id = api.in_reach::<Alert>(&caller, &path).await?;
    let attempts = api.management.messages(caller.account, id).await?;
    Ok(ok(&MessageList { object: "list", data: attempts.iter().map(message).collect(), has_more: false }))
}

fn message(attempt: &Attempt) -> MessageObject<'_> {
    let (status, error) = match &attempt.answer {
        ReceiverAnswer::Status(status) => (Some(*status), None),
        ReceiverAnswer::None(reason) => (None, Some(reason.as_str())),
    };
    MessageObject {
        object: "alert.message",
        event_id: attempt.event,
        rule: &attempt.kind,
        created_at: attempt.at,
        duration_ms: attempt.milliseconds,
        status,
        error,
    }
}
