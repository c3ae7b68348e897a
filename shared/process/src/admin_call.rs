//! Commands to a running process through its admin port: how they are sent, and how the process reads them.

use std::{io, net::SocketAddr, time::Duration};

use axum::{
    body::Body,
    http::{Method, StatusCode},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::time::timeout;

/// Time in which the process has to answer a command.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer to a command: a line for each upstream of a large catalogue.
const MAX_ANSWER: usize = 4 << 20;
/// Largest body of a command: an address, or a filter.
const MAX_COMMAND: usize = 4 << 10;

/// Reads the text of a command.
pub async fn command_text(body: Body) -> Result<String, (StatusCode, String)> {
    let read = Limited::new(body, MAX_COMMAND).collect().await;
    let text = read.ok().and_then(|body| String::from_utf8(body.to_bytes().into()).ok());
    let text = text.map(|text| text.trim().to_owned());
    text.ok_or_else(|| (StatusCode::BAD_REQUEST, format!("Send a text of at most {MAX_COMMAND} bytes.\n")))
}

/// Sends a command to the process whose admin port is at this address: a question, or a change if there is a text.
/// Returns the answer. The error is the process's own, or that no process answers.
pub async fn ask(address: SocketAddr, path: &str, change: Option<&str>) -> io::Result<String> {
    let method = if change.is_some() { Method::PUT } else { Method::GET };
    let request = http::Request::builder().method(method).uri(format!("http://{address}{path}"));
    let request = request.body(Full::new(change.unwrap_or_default().to_owned().into()));
    let request: http::Request<Full<bytes::Bytes>> = request.map_err(io::Error::other)?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let asked = async {
        let answer = client.request(request).await.map_err(|e| {
            io::Error::other(format!(
                "no process answers at the admin port {address} (FAREGATE_ADMIN_LISTEN): {e}"
            ))
        })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await.map_err(io::Error::other)?;
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        if status.is_success() {
            return Ok(text);
        }
        let told = text.trim();
        Err(io::Error::other(if told.is_empty() { status.to_string() } else { told.to_owned() }))
    };
    timeout(ANSWER_TIMEOUT, asked).await?
}
