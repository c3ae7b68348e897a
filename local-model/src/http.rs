//! The OpenAI chat API over the engine.

mod reply;
mod request;
mod stream;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::State,
    middleware,
    response::Response,
    routing::{get, post},
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use shared::error::{ApiError, Code};
use shared_door::http::{
    catch_panics, drain_unread, incomplete_body, method_not_allowed, next_piece_deadline, ok, unknown_url,
};
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, timeout, timeout_at},
};

use self::reply::Header;
use crate::{
    engine::{Engine, EngineError, Permit},
    grammar::SchemaError,
};

/// Bytes of a request that is read. A context of 2,048 tokens holds 64 KiB of text at most, which JSON may spell with six times
/// as many, and the schemas of a request hold 128 KiB. So the prompt of a longer body does not fit.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Time that a body may take, even one that is too long.
const BODY_DEADLINE: Duration = Duration::from_mins(1);
/// Requests that are parsed, tokenized and checked at once: each may take some MB and some 100 ms.
const PREPARED_AT_ONCE: usize = 2;

/// State of the routes.
#[derive(Clone)]
struct Server {
    engine: Engine,
    /// Permits to prepare a request. The engine's permits bound the requests that wait for these.
    preparations: Arc<Semaphore>,
}

/// Routes `POST /v1/chat/completions`, `POST /tokenize`, `GET /v1/models` and `GET /health`.
pub fn router(engine: Engine) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/tokenize", post(tokenize))
        .route("/v1/models", get(models))
        .route("/health", get(health))
        .fallback(unknown_url)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn(drain_unread))
        .layer(catch_panics())
        .with_state(Server { engine, preparations: Arc::new(Semaphore::new(PREPARED_AT_ONCE)) })
}

async fn chat(State(server): State<Server>, body: Body) -> Result<Response, ApiError> {
    let (permit, (request, form)) = server.prepare(body, request::chat).await?;
    let events = server.engine.submit(permit, request).await.map_err(failed)?;
    let header = Header::new(&server.engine);
    if form.streams {
        stream::reply(events, header, form).await
    } else {
        reply::whole(events, header, form.logprobs).await
    }
}

async fn tokenize(State(server): State<Server>, body: Body) -> Result<Response, ApiError> {
    let (_permit, tokens) = server.prepare(body, request::tokenize).await?;
    Ok(reply::tokens(&tokens, server.engine.context()))
}

async fn models(State(server): State<Server>) -> Response {
    reply::models(&server.engine)
}

async fn health() -> Response {
    ok(&serde_json::json!({"status": "ok"}))
}

impl Server {
    /// Reads a request and does `work` on it, on a thread that may block.
    async fn prepare<T: Send + 'static>(
        &self,
        body: Body,
        work: impl FnOnce(&Engine, &[u8]) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(Permit, T), ApiError> {
        let permit = self.engine.admit().map_err(failed)?;
        let body = timeout(BODY_DEADLINE, read(body)).await;
        let body = body.unwrap_or_else(|_| Err(incomplete_body()))?;
        let body = body.ok_or_else(|| too_long(&self.engine, None))?;
        let preparation = Arc::clone(&self.preparations).acquire_owned().await;
        let engine = self.engine.clone();
        let prepared = spawn_blocking(move || {
            let prepared = work(&engine, &body);
            drop((body, preparation));
            prepared
        });
        Ok((permit, prepared.await.unwrap_or_else(|_| Err(ApiError::internal()))?))
    }
}

/// Reads a body to its end, as most clients take an answer only then. None for a body that is too long, of which nothing is kept.
async fn read(mut body: Body) -> Result<Option<Bytes>, ApiError> {
    let (mut kept, mut length) = (BytesMut::new(), 0);
    let began = Instant::now();
    loop {
        // A body that stalls does not keep its permit.
        let next = timeout_at(next_piece_deadline(began, length), body.frame());
        let Some(frame) = next.await.map_err(|_| incomplete_body())? else { break };
        let Ok(data) = frame.map_err(|_| incomplete_body())?.into_data() else { continue };
        length += data.len();
        if length <= MAX_BODY_BYTES {
            kept.extend_from_slice(&data);
        } else {
            kept = BytesMut::new();
        }
    }
    Ok((length <= MAX_BODY_BYTES).then(|| kept.freeze()))
}

/// Error of a prompt that leaves no room for an answer. The tokens of a prompt that is far too long are not counted.
fn too_long(engine: &Engine, tokens: Option<usize>) -> ApiError {
    let tokens = tokens.map_or_else(|| "far more".to_owned(), |tokens| tokens.to_string());
    let message = format!(
        "This model's maximum context length is {} tokens. However, your messages resulted in {tokens} tokens, which \
         leave no room for an answer. Please shorten the messages.",
        engine.context()
    );
    ApiError::at(Code::ContextLengthExceeded, "messages", message)
}

fn failed(error: EngineError) -> ApiError {
    match error {
        EngineError::Full => ApiError::new(Code::Overloaded, "The model has too many requests in flight."),
        EngineError::Broken => ApiError::internal(),
        EngineError::Schema(error) => unsupported_schema(error),
    }
}

fn unsupported_schema(SchemaError(reason): SchemaError) -> ApiError {
    ApiError::new(Code::UnsupportedValue, format!("This schema cannot be followed: {reason}."))
}
