//! The OpenAI chat API over the engine.

mod reply;
mod request;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::State,
    middleware,
    response::Response,
    routing::{get, post},
};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::json;
use shared::error::ApiError;
use shared_door::http::{catch_panics, drain_unread, incomplete_body, method_not_allowed, ok, unknown_url};
use tokio::{sync::OwnedSemaphorePermit, task::spawn_blocking, time::timeout};

use crate::{
    demo::{DESCRIPTION, NAME},
    engine::Engine,
};
use local_model_transformer::CONTEXT_TOKENS;
use request::too_long;

/// Maximum number of bytes read from a request. A context of 2,048 tokens holds at most 64 KiB of text, which JSON may
/// spell with six times as many bytes, so the prompt of a longer body does not fit.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Timeout for a body, even one that is too long.
const BODY_DEADLINE: Duration = Duration::from_secs(30);

/// Routes `POST /v1/chat/completions`, `POST /tokenize`, `GET /v1/models` and `GET /health`.
pub fn router(engine: Arc<Engine>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/tokenize", post(tokenize))
        .route("/v1/models", get(models))
        .route("/health", get(async || ok(&json!({"status": "ok"}))))
        .fallback(unknown_url)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn(drain_unread))
        .layer(catch_panics())
        .with_state(engine)
}

async fn chat(State(engine): State<Arc<Engine>>, body: Body) -> Result<Response, ApiError> {
    let (permits, (request, stream)) = prepare(&engine, body, request::chat).await?;
    let events = engine.submit(permits, request);
    match stream {
        Some(options) => reply::stream(&engine, events, options).await,
        None => reply::whole(&engine, events).await,
    }
}

/// Returns the tokens of a prompt in vLLM's format.
async fn tokenize(State(engine): State<Arc<Engine>>, body: Body) -> Result<Response, ApiError> {
    let (_, tokens) = prepare(&engine, body, request::tokenize).await?;
    Ok(ok(&json!({"count": tokens.len(), "max_model_len": CONTEXT_TOKENS, "tokens": tokens})))
}

async fn models(State(engine): State<Arc<Engine>>) -> Response {
    let model = json!({
        "id": NAME, "object": "model", "created": engine.now(), "owned_by": "faregate",
        "max_model_len": CONTEXT_TOKENS, "description": DESCRIPTION,
    });
    ok(&json!({"object": "list", "data": [model]}))
}

/// Reads a request and does `work` with it on a thread that may block.
async fn prepare<T: Send + 'static>(
    engine: &Arc<Engine>,
    body: Body,
    work: impl FnOnce(&Engine, &[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<([OwnedSemaphorePermit; 2], T), ApiError> {
    let admitted = engine.admit()?;
    let body = timeout(BODY_DEADLINE, read(body)).await.unwrap_or_else(|_| Err(incomplete_body()))?;
    let (permits, engine) = ([admitted, engine.wait().await?], Arc::clone(engine));
    let prepared = spawn_blocking(move || work(&engine, &body).map(|prepared| (permits, prepared)));
    prepared.await.unwrap_or_else(|_| Err(ApiError::internal()))
}

/// Reads a body to its end, since most clients do not read the answer earlier. A body that is too long is discarded.
async fn read(mut body: Body) -> Result<Bytes, ApiError> {
    match Limited::new(&mut body, MAX_BODY_BYTES).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            while let Some(Ok(_)) = body.frame().await {}
            Err(too_long())
        }
        Err(_) => Err(incomplete_body()),
    }
}
