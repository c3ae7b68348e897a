//! Readiness probe of a running process, for health checks in images without other programs.

use std::{io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Uri;
use http_body_util::Empty;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::time::timeout;

/// Path that reports readiness on every admin port.
pub const READY: &str = "/readyz";

/// Checks whether the process can serve right now. The error says why not; a process that serves only in part says what
/// is missing.
pub type Readiness =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Option<String>, String>> + Send>> + Send + Sync>;

/// How long an answer may take. Container engines wait slightly longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Fails unless the server at this address answers `GET path` with success.
pub async fn probe(address: SocketAddr, path: &str) -> io::Result<()> {
    let url: Uri = format!("http://{address}{path}").parse().map_err(io::Error::other)?;
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let answer = timeout(ANSWER_TIMEOUT, client.get(url.clone())).await?;
    let status = answer.map_err(|e| io::Error::other(format!("{url} does not answer: {e}")))?.status();
    if status.is_success() { Ok(()) } else { Err(io::Error::other(format!("{url} answers {status}"))) }
}

#[cfg(test)]
mod tests {
    use axum::{Router, http::StatusCode, routing::get};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn only_a_process_that_says_so_is_ready() {
        let app = Router::new()
            .route("/readyz", get(async || "ready"))
            .route("/busy", get(async || StatusCode::SERVICE_UNAVAILABLE));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move { axum::serve(listener, app).await });
        assert!(probe(address, READY).await.is_ok());
        assert!(probe(address, "/busy").await.is_err());
        serving.abort();
        assert!(serving.await.unwrap_err().is_cancelled());
        assert!(probe(address, READY).await.is_err(), "the address is not listened on any more");
    }
}
