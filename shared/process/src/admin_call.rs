//! Commands to a running process through its admin port: how they are sent and read.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::{
    body::Body,
    http::{HeaderValue, Method, StatusCode, header},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use shared::secret::{self, ExposeSecret};
use tokio::time::timeout;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of an answer in bytes: room for a line for each upstream of a large catalogue.
const MAX_ANSWER: usize = 4 << 20;
/// Maximum size of a command's body in bytes. The body is an address or a log filter, so it is short.
const MAX_COMMAND: usize = 4 << 10;
/// File in the data directory with the token that changes require.
pub(crate) const TOKEN_FILE: &str = "admin-token";

/// A process's admin port, from its settings.
#[derive(Clone, Debug)]
pub struct AdminPort {
    pub listen: SocketAddr,
    /// Data directory of the process, with the token for changes. Without one, the process accepts no changes.
    pub data_dir: Option<PathBuf>,
}

pub async fn command_text(body: Body) -> Result<String, (StatusCode, String)> {
    let read = timeout(COMMAND_TIMEOUT, Limited::new(body, MAX_COMMAND).collect()).await;
    let Ok(read) = read else {
        let says = format!("The body did not arrive within {} seconds.\n", COMMAND_TIMEOUT.as_secs());
        return Err((StatusCode::REQUEST_TIMEOUT, says));
    };
    let text = read.ok().and_then(|body| String::from_utf8(body.to_bytes().into()).ok());
    let text = text.map(|text| text.trim().to_owned());
    text.ok_or_else(|| (StatusCode::BAD_REQUEST, format!("Send a text of at most {MAX_COMMAND} bytes.\n")))
}

/// Sends a command to a process and returns the answer. The command is a change if `change` has a text, otherwise a
/// question. The error is the process's answer, or says that no process answers.
pub async fn ask(admin: &AdminPort, path: &str, change: Option<&str>) -> io::Result<String> {
    let AdminPort { listen, data_dir } = admin;
    let method = if change.is_some() { Method::PUT } else { Method::GET };
    let mut request = http::Request::builder().method(method).uri(format!("http://{listen}{path}"));
    if change.is_some() {
        request = request.header(header::AUTHORIZATION, credential(data_dir.as_deref())?);
    }
    let request = request.body(Full::new(change.unwrap_or_default().to_owned().into()));
    let request: http::Request<Full<bytes::Bytes>> = request.map_err(io::Error::other)?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let asked = async {
        let answer = client.request(request).await.map_err(|e| {
            io::Error::other(format!(
                "no process answers at the admin port {listen} (FAREGATE_ADMIN_LISTEN): {e}"
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

/// Reads the credential for a change from the data directory.
fn credential(data_dir: Option<&Path>) -> io::Result<HeaderValue> {
    let unset = "set FAREGATE_DATA_DIR to the process's data directory: a change needs the admin-token there";
    let file = data_dir.ok_or_else(|| io::Error::other(unset))?.join(TOKEN_FILE);
    let token = secret::read_file(&file).map_err(|e| {
        let file = file.display();
        io::Error::new(e.kind(), format!("cannot read {file} ({e}): {unset}"))
    })?;
    let mut credential =
        HeaderValue::try_from(format!("Bearer {}", token.expose_secret())).map_err(io::Error::other)?;
    credential.set_sensitive(true);
    Ok(credential)
}
