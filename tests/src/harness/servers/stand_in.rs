//! A server that stands in for a vendor's. It answers with what a function returns, and records every request.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinHandle};

/// A request that a stand-in got.
#[derive(Clone, Debug)]
pub struct AskedOf {
    pub method: Method,
    /// Path and query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl AskedOf {
    /// Returns the value of a header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Status and body of an answer.
pub type Given = (u16, String);

type Answer = dyn Fn(&AskedOf) -> Given + Send + Sync;

/// An HTTP server on the loopback interface. It stops when dropped.
pub struct StandIn {
    address: String,
    asked: Arc<Mutex<Vec<AskedOf>>>,
    task: JoinHandle<()>,
}

impl StandIn {
    /// Starts a server that answers with the status and the JSON that this function returns.
    pub async fn start(answer: impl Fn(&AskedOf) -> Given + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::default();
        let task = tokio::spawn(serve(listener, Arc::clone(&asked), Arc::new(answer)));
        Self { address, asked, task }
    }

    /// Returns the address of a path on this server, such as `/v1`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns all requests so far.
    pub fn asked(&self) -> Vec<AskedOf> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, asked: Arc<Mutex<Vec<AskedOf>>>, answer: Arc<Answer>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
                async move { Ok::<_, Infallible>(respond(request, &asked, &*answer).await) }
            });
            // A client that was killed ends its connection with an error.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    asked: &Mutex<Vec<AskedOf>>,
    answer: &Answer,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let got = AskedOf { method: head.method, path, headers: head.headers, body };
    let (status, json) = answer(&got);
    asked.lock().unwrap().push(got);
    let mut response = Response::new(Full::from(json));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}
