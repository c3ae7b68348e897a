//! A webhook receiver that keeps each delivery.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    net::TcpListener,
    task::JoinHandle,
    time::{Instant as Deadline, sleep, timeout_at},
};

use crate::harness::patience::{LOOK_EVERY, SERVER_PATIENCE};

/// A request that a receiver got.
#[derive(Clone, Debug)]
pub struct Received {
    /// Request headers.
    pub headers: HeaderMap,
    /// Request body.
    pub body: Bytes,
    /// Status of the answer.
    pub status: StatusCode,
    /// Time at which the body had arrived.
    pub at: Instant,
}

impl Received {
    /// Returns the event's id, which identifies repetitions.
    pub fn id(&self) -> String {
        self.headers["webhook-id"].to_str().unwrap().to_owned()
    }

    pub fn event(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// An HTTP server on the loopback interface. It stops when dropped.
pub struct Receiver {
    address: String,
    received: Arc<Mutex<Vec<Received>>>,
    task: JoinHandle<()>,
}

impl Receiver {
    /// Starts a receiver. It answers request `n`, counted from zero, with the status `status(n)` after this pause.
    pub async fn start(status: fn(usize) -> u16, pause: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let address = listener.local_addr().unwrap().to_string();
        let received = Arc::default();
        let task = tokio::spawn(serve(listener, Arc::clone(&received), status, pause));
        Self { address, received, task }
    }

    /// Returns host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the URL for a webhook.
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Returns all requests so far, in the order in which their bodies arrived.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Waits until the requests so far meet a condition, and returns them.
    pub async fn until(&self, what: &str, is_met: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        let deadline = Deadline::now() + SERVER_PATIENCE;
        let met = async {
            while !is_met(&self.received()) {
                sleep(LOOK_EVERY).await;
            }
        };
        let met = timeout_at(deadline, met).await;
        let received = self.received();
        assert!(met.is_ok(), "{what}: not so after {} requests", received.len());
        received
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    listener: TcpListener,
    received: Arc<Mutex<Vec<Received>>>,
    status: fn(usize) -> u16,
    pause: Duration,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let received = Arc::clone(&received);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let received = Arc::clone(&received);
                async move { Ok::<_, Infallible>(answer(request, &received, status, pause).await) }
            });
            // A sender that was killed ends its connection with an error.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    received: &Mutex<Vec<Received>>,
    status: fn(usize) -> u16,
    pause: Duration,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let mut answer = Response::new(Full::default());
    // If the body breaks off, the sender is gone and will not read the answer.
    let Ok(body) = body.collect().await else { return answer };
    let status = {
        let mut received = received.lock().unwrap();
        let status = StatusCode::from_u16(status(received.len())).unwrap();
        let (headers, body, at) = (head.headers, body.to_bytes(), Instant::now());
        received.push(Received { headers, body, status, at });
        status
    };
    sleep(pause).await;
    *answer.status_mut() = status;
    answer
}
