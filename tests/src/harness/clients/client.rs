//! A plain HTTP client, and responses whose assertions explain themselves when a test fails.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use serde_json::Value;
use shared::money::NanoUsd;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::harness::patience::PATIENCE;

/// HTTP client with pooled connections, HTTP/1.1 by default.
#[derive(Clone)]
pub struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    http2: bool,
    /// Authorities to trust for TLS, in PEM. Without them, no server is trusted.
    authority: Option<String>,
}

impl Default for Http {
    fn default() -> Self {
        Self::new()
    }
}

impl Http {
    /// Returns a client with its own connection pool.
    pub fn new() -> Self {
        Self::with(false, None)
    }

    /// Returns a client that uses HTTP/2 without TLS and sends all requests on one connection.
    pub fn http2() -> Self {
        Self::with(true, None)
    }

    /// Returns a client that trusts these authorities, over HTTP/2 or HTTP/1.1.
    pub fn trusting(authority: &str, http2: bool) -> Self {
        Self::with(http2, Some(authority.to_owned()))
    }

    /// Returns a client like this one, with its own connection pool.
    #[must_use]
    pub fn fresh(&self) -> Self {
        Self::with(self.http2, self.authority.clone())
    }

    fn with(http2: bool, authority: Option<String>) -> Self {
        let mut roots = RootCertStore::empty();
        if let Some(authority) = &authority {
            for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
                roots.add(certificate.unwrap()).unwrap();
            }
        }
        let tls = ClientConfig::builder_with_provider(ring::default_provider().into());
        let tls = tls.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls.with_no_client_auth()).https_or_http();
        let connector = if http2 {
            builder.enable_http2().wrap_connector(connector())
        } else {
            builder.enable_http1().wrap_connector(connector())
        };
        let client = Client::builder(TokioExecutor::new()).http2_only(http2).build(connector);
        Self { client, http2, authority }
    }

    /// Sends a request and returns the response's head, with the body still unread; an error if no head arrives.
    pub async fn open(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, String> {
        let sent = timeout(PATIENCE, self.client.request(request)).await;
        sent.map_err(|_| "no response in time".to_owned())?.map_err(|e| format!("{e:?}"))
    }

    /// Sends a request and reads the whole response.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let shown = format!("{} {}", request.method(), request.uri());
        let response = self.open(request).await.unwrap_or_else(|e| panic!("{shown}: {e}"));
        Answer::read(response).await.unwrap_or_else(|e| panic!("{shown}: {e}"))
    }

    /// Sends a request with this key and, if given, this body, and reads the whole response.
    pub async fn send_as(&self, secret: &str, method: Method, url: &str, body: Option<Value>) -> Answer {
        let mut request = Request::builder().method(method).uri(url);
        request = request.header(header::AUTHORIZATION, format!("Bearer {secret}"));
        let body = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        self.send(request.body(Full::new(body)).unwrap()).await
    }

    /// Sends a `GET` request without a credential and reads the whole response.
    pub async fn get(&self, url: &str) -> Answer {
        self.send(Request::get(url).body(Full::default()).unwrap()).await
    }

    /// Sends a `GET` request without a credential to a server that may not listen yet.
    pub async fn try_get(&self, url: &str) -> Option<Answer> {
        let response = self.open(Request::get(url).body(Full::default()).unwrap()).await.ok()?;
        Answer::read(response).await.ok()
    }
}

fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(Duration::from_secs(5)));
    connector
}

/// A response that was read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// Reads a response to its end.
    pub async fn read(response: Response<Incoming>) -> Result<Self, String> {
        let (head, body) = response.into_parts();
        let read = timeout(PATIENCE, body.collect()).await.map_err(|_| "no end in time".to_owned())?;
        let body = read.map_err(|e| format!("{e:?}"))?.to_bytes();
        Ok(Self { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// Returns the body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }

    /// Returns the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("no JSON, {e}: {self}"))
    }

    /// Returns the value of a header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Returns the member `code` of an error; empty for anything else.
    pub fn code(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        body["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the cost reported in the answer's usage.
    pub fn cost(&self) -> NanoUsd {
        nanos(&self.json()["usage"]["cost"])
    }

    /// Asserts a documented error with all its members and headers.
    #[track_caller]
    pub fn assert_error(&self, status: u16, code: &str) -> &Self {
        assert_eq!((self.status, self.code().as_str()), (status, code), "{self}");
        self.assert_request_id();
        assert!(self.header("content-type").starts_with("application/json"), "{self}");
        let body = self.json();
        assert_error_object(&body["error"], status);
        let challenge = self.header("www-authenticate");
        assert_eq!(challenge.starts_with("Bearer realm=\"api\""), matches!(status, 401 | 403), "{self}");
        let wait = match code {
            "spend_reserved" | "overloaded" => "1",
            "service_unavailable" => "2",
            "upstream_unavailable" => "5",
            _ => "",
        };
        assert_eq!(self.header("retry-after"), wait, "{self}");
        self
    }

    /// Asserts the error's `param`, which locates the fault in the request.
    #[track_caller]
    pub fn assert_param(&self, param: Option<&str>) {
        assert_eq!(self.json()["error"]["param"].as_str(), param, "{self}");
    }

    /// Asserts that the request id has our format.
    #[track_caller]
    pub fn assert_request_id(&self) {
        let id = self.header("x-request-id");
        let hex = id.strip_prefix("req_").unwrap_or_default();
        assert!(hex.len() == 32 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{self}");
    }
}

/// Asserts the four members of an error, and that its type fits its status.
#[track_caller]
pub(crate) fn assert_error_object(error: &Value, status: u16) {
    let members = error.as_object().unwrap_or_else(|| panic!("no error: {error}"));
    for name in ["message", "type", "param", "code"] {
        assert!(members.contains_key(name), "{name} is missing: {error}");
    }
    assert!(error["message"].as_str().is_some_and(|m| !m.is_empty()) && error["code"].is_string(), "{error}");
    let kind = match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    assert_eq!(error["type"], kind, "{error}");
    let text = error.to_string();
    for secret in ["127.0.0.1", "internal:9999", "scripted/"] {
        assert!(!text.contains(secret), "an error contains {secret}: {error}");
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.status)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {}", String::from_utf8_lossy(value.as_bytes()))?;
        }
        let shown: String = String::from_utf8_lossy(&self.body).chars().take(2_000).collect();
        write!(f, "\n{shown}")
    }
}

/// Returns the amount in a JSON value.
#[track_caller]
pub fn nanos(value: &Value) -> NanoUsd {
    NanoUsd::parse(&value.to_string()).unwrap_or_else(|e| panic!("{value} {e}"))
}

/// Parses an amount in USD.
#[track_caller]
pub fn usd(text: &str) -> NanoUsd {
    NanoUsd::parse(text).unwrap_or_else(|e| panic!("{text} {e}"))
}

/// Sends bytes that no client library would send, and returns everything received until the connection ends.
pub async fn raw(base: &str, request: &str) -> String {
    let address = base.strip_prefix("http://").expect("a base address");
    let mut stream = TcpStream::connect(address).await.expect("the server accepts connections");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "no end in time: {}", String::from_utf8_lossy(&answer));
    String::from_utf8_lossy(&answer).into_owned()
}
