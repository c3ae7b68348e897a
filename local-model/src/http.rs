//! The OpenAI chat API over the engine.

mod error;
mod prepare;
mod reply;
mod request;
mod stream;

use std::future::Future;

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::{get, post},
    serve::ListenerExt,
};
use tokio::net::TcpListener;

use self::{
    error::ApiError,
    prepare::prepare,
    reply::{Head, json},
};
use crate::engine::Engine;

/// The largest body that is read: what the gateway lets through, plus what it may add.
const MAX_BODY_BYTES: usize = 65 << 20;

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

/// Serves [`router`] until `shutdown` is ready; requests in flight are then still answered.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    // Small chunks must not wait for each other.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY was refused");
        }
    });
    axum::serve(listener, router(engine)).with_graceful_shutdown(shutdown).await
}

async fn chat(State(engine): State<Engine>, body: Bytes) -> Result<Response, ApiError> {
    let (job, form) = prepare(&engine, move |engine| request::chat(engine, &body)).await?;
    let generation = engine.submit(job)?;
    let head = Head::new(&engine);
    // From here on the answer lives as long as its client: the reply must not keep the engine running.
    drop(engine);
    if form.streams {
        stream::reply(generation, head, form).await
    } else {
        reply::whole(generation, head, form.logprobs).await
    }
}

async fn tokenize(State(engine): State<Engine>, body: Bytes) -> Result<Response, ApiError> {
    let tokens = prepare(&engine, move |engine| request::tokenize(engine, &body)).await?;
    Ok(reply::tokens(&tokens, engine.context()))
}

async fn models(State(engine): State<Engine>) -> Response {
    reply::models(engine.now())
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
