//! `POST /v1/chat/completions`: whoever may not call hears that first, then what is wrong with the body.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Extension, Request, State},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use shared::{
    error::{ApiError, Code},
    http::{content_length, read_body_within, require_json},
    ids::{GenerationId, RequestId},
};
use tokio::sync::oneshot;

use super::{App, authenticate, credential, observe::Told};
use crate::{
    domain::chat::{Chat, Forward},
    generation::{self, Job},
    room::Room,
};

/// A body of at most so many bytes is read before its sender is known: no more work than finding out who it is. Larger
/// ones, and those of unknown size, are read of authenticated callers only.
const SMALL_BODY: u64 = 64 << 10;

/// `POST /v1/chat/completions`
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(request): Extension<RequestId>,
    http: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = http.into_parts();
    let credential = credential(&app, &parts.headers).await?;
    let trusted = content_length(&parts.headers).is_none_or(|length| length > SMALL_BODY);
    if trusted && let Err(refusal) = authenticate(&app, &credential).await {
        return Ok(unread(refusal));
    }
    let mut room = app.rooms.enter();
    let (model, forward) = match check(&app, &parts.headers, body, &mut room).await {
        Ok(checked) => checked,
        Err(fault) if trusted && fault.code == Code::Overloaded => return Ok(unread(fault)),
        Err(fault) if trusted => return Err(fault),
        Err(fault) => {
            authenticate(&app, &credential).await?;
            return Err(fault);
        }
    };
    let slot = app.settler.reserve().ok_or_else(overloaded)?;
    let id = GenerationId::generate(&*app.clock);
    let job = Job { id, request, created: app.clock.now().seconds(), credential, model, forward, room };
    let (reply, response) = oneshot::channel();
    let task = generation::run(app.clone(), job, slot, reply);
    app.generations.spawn(task);
    // A task that ends without a word has panicked; its meter has settled on the way.
    let answered = response.await.unwrap_or_else(|_| Err(ApiError::internal()));
    let mut response = answered.into_response();
    response.extensions_mut().insert(Told);
    Ok(response)
}

/// What the body asks for, or what is wrong with it.
async fn check(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    room: &mut Room,
) -> Result<(String, Forward), ApiError> {
    require_json(headers, None)?;
    let body = read_body_within(headers, body, app.max_body, |bytes| room.grow(bytes)).await?;
    // What upstreams are sent is written beside it.
    room.grow(body.len())?;
    let chat = Chat::parse(&body)?;
    let id = chat.model.clone();
    let model = app.catalog.model(&id).ok_or_else(|| ApiError::model_not_found(app.catalog.ids()))?;
    let forward = chat.forward(model)?;
    drop(body);
    room.shrink_to(forward.prompt_bytes());
    Ok((id, forward))
}

/// The answer to a request whose body was not read: its connection cannot carry another one.
fn unread(refusal: ApiError) -> Response {
    let mut response = refusal.into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn overloaded() -> ApiError {
    ApiError::new(Code::Overloaded, "Too many requests are in flight; try again shortly.")
}
