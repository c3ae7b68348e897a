//! The OpenAI chat API over the engine.

mod error;
mod prepare;
mod reply;
mod request;
mod stream;

use self::{
    error::ApiError,
    prepare::prepare,
    reply::{Head, json},
};
use crate::engine::Engine;
use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State, rejection::BytesRejection},
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::{get, post},
};

/// The largest body that is read: what the gateway lets through, plus what it may add.
const MAX_BODY_BYTES: usize = 65 << 20;

/// A body, if it came whole and is not too large.
type Received = Result<Bytes, BytesRejection>;

/// The routes `POST /v1/chat/completions`, `POST /tokenize`, `GET /v1/models` and `GET /health`.
pub fn router(engine: Engine) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/tokenize", post(tokenize))
        .route("/v1/models", get(models))
        .route("/health", get(health))
        .fallback(unknown_url)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(engine)
}

async fn chat(State(engine): State<Engine>, body: Received) -> Result<Response, ApiError> {
    let body = body.map_err(|rejected| ApiError::unreceived(&rejected))?;
    let slot = engine.admit()?;
    let work = move |engine: &Engine| request::chat(engine, &body).map(|(job, form)| (slot, job, form));
    let (slot, job, form) = prepare(&engine, work).await?;
    let generation = engine.submit(slot, job)?;
    let head = Head::new(&engine);
    // From here on the answer lives as long as its client: the reply must not keep the engine running.
    drop(engine);
    if form.streams {
        stream::reply(generation, head, form).await
    } else {
        reply::whole(generation, head, form.logprobs).await
    }
}

async fn tokenize(State(engine): State<Engine>, body: Received) -> Result<Response, ApiError> {
    let body = body.map_err(|rejected| ApiError::unreceived(&rejected))?;
    let slot = engine.admit()?;
    let work = move |engine: &Engine| request::tokenize(engine, &body).map(|tokens| (slot, tokens));
    let (_, tokens) = prepare(&engine, work).await?;
    Ok(reply::tokens(&tokens, engine.context()))
}

async fn models(State(engine): State<Engine>) -> Response {
    reply::models(&engine)
}

async fn health(State(engine): State<Engine>) -> Response {
    if engine.is_alive() {
        json(StatusCode::OK, &serde_json::json!({"status": "ok"}))
    } else {
        json(StatusCode::SERVICE_UNAVAILABLE, &serde_json::json!({"status": "stopped"}))
    }
}

async fn unknown_url(method: Method, uri: Uri) -> Response {
    ApiError::unknown_url(&method, &uri).into_response()
}

async fn method_not_allowed(method: Method) -> Response {
    ApiError::method_not_allowed(&method).into_response()
}
