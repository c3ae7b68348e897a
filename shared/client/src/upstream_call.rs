//! A request to an upstream that does not come from a client, but from a check at the start or an operator's command.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use shared_catalog::Access;
use shared_config::ConfigError;
use tokio::time::timeout;

use crate::{
    connection::connect,
    upstream_access::{header_values, upstream_connector},
};

/// Timeout for connecting to a server.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Maximum size of an answer in bytes. Hosted providers list hundreds of models, with descriptions.
const MAX_ANSWER_BYTES: usize = 8 << 20;

pub struct UpstreamCall<'a> {
    pub uri: &'a Uri,
    pub access: &'a Access,
    /// JSON to post; `None` sends a GET.
    pub body: Option<Bytes>,
    /// How long reading the answer may take in total.
    pub deadline: Duration,
}

#[derive(Clone, Debug)]
pub struct UpstreamAnswer {
    pub status: StatusCode,
    pub body: Bytes,
}

/// Why an upstream gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The credential, an authority or the proxy cannot be used.
    #[error("{0}")]
    Access(#[from] ConfigError),
    /// No connection was made, or it broke before the head of the answer.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    #[error("the server did not answer in time")]
    Silent,
    /// The answer's body broke off, or is too large.
    #[error("the server's answer broke off, or is too large")]
    Incomplete,
}

impl UpstreamCall<'_> {
    /// Sends the request over a new connection, and reads the answer.
    pub async fn send(self) -> Result<UpstreamAnswer, NoAnswer> {
        let deadline = self.deadline;
        timeout(deadline, self.exchange()).await.unwrap_or(Err(NoAnswer::Silent))
    }

    async fn exchange(self) -> Result<UpstreamAnswer, NoAnswer> {
        let headers = header_values(self.access)?;
        let connector = upstream_connector(self.uri, self.access, CONNECT_DEADLINE)?;
        let unreachable = |e: &dyn Error| NoAnswer::Unreachable(chain(e));
        let connected = connect::<Full<Bytes>>(&connector, self.uri.clone()).await;
        let mut connection = connected.map_err(|e| unreachable(&*e))?;
        let is_post = self.body.is_some();
        let mut request = Request::new(Full::new(self.body.unwrap_or_default()));
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse().map_err(|e| unreachable(&e))?;
        let host = self.uri.authority().map_or("", |authority| authority.as_str());
        let host = HeaderValue::from_str(host).map_err(|e| unreachable(&e))?;
        request.headers_mut().insert(header::HOST, host);
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        if is_post {
            *request.method_mut() = Method::POST;
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(header::CONTENT_TYPE, json);
        }
        request.headers_mut().extend(headers);
        let answer = connection.send_request(request).await.map_err(|e| unreachable(&e))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|_| NoAnswer::Incomplete)?.to_bytes();
        Ok(UpstreamAnswer { status, body })
    }
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    text
}
