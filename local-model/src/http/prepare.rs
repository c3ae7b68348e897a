//! Work on a request's body, away from the threads that serve connections.

use tokio::task::spawn_blocking;

use super::error::ApiError;
use crate::engine::Engine;

/// Runs `work` where it may take its time: a long prompt is tokenised for seconds.
pub(crate) async fn prepare<T: Send + 'static>(
    engine: &Engine,
    work: impl FnOnce(&Engine) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let engine = engine.clone();
    let done = spawn_blocking(move || work(&engine)).await;
    done.unwrap_or_else(|_| Err(ApiError::internal("The request could not be read.")))
}
