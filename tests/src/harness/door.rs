//! A proxy in front of the gateway that records requests and their answers.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// A request and the part of its answer that has arrived so far.
#[derive(Clone)]
pub struct Exchange {
    /// Method, path and query.
    pub request: String,
    /// Request headers.
    pub headers: HeaderMap,
    /// Request body.
    pub body: Bytes,
    /// Status of the answer.
    pub status: StatusCode,
    /// `Content-Type` of the answer.
    pub content_type: String,
    /// Body of the answer.
    pub answer: Vec<u8>,
}

/// The recording proxy. It stops when dropped.
pub struct Door {
    address: SocketAddr,
    seen: Arc<Seen>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen(Mutex<Vec<Arc<Mutex<Exchange>>>>);

impl Door {
    /// Starts a proxy in front of the gateway at this base address.
    pub async fn before(gateway: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let task = tokio::spawn(serve(listener, gateway.to_owned(), seen.clone()));
        Self { address, seen, task }
    }

    /// Returns the proxy's base address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all exchanges so far, in the order in which their answers began.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.seen.0.lock().unwrap().iter().map(|exchange| exchange.lock().unwrap().clone()).collect()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Exchange {
    /// Returns the exchange as JSON, for programs that check it.
    pub fn to_json(&self) -> Value {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let of_request = self.headers.get(header::CONTENT_TYPE).map(|value| text(value.as_bytes()));
        json!({
            "request": self.request, "request_type": of_request, "body": text(&self.body),
            "status": self.status.as_u16(), "answer_type": self.content_type, "answer": text(&self.answer),
        })
    }
}

async fn serve(listener: TcpListener, gateway: String, seen: Arc<Seen>) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let (client, gateway, seen) = (client.clone(), gateway.clone(), seen.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let (client, gateway, seen) = (client.clone(), gateway.clone(), seen.clone());
                async move { Ok::<_, Infallible>(pass(&client, &gateway, request, &seen).await) }
            });
            // When a client leaves or an answer is cut off, the connection ends with an error.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// Forwards a request and returns its answer.
async fn pass(
    client: &Client<HttpConnector, Full<Bytes>>,
    gateway: &str,
    request: Request<Incoming>,
    seen: &Seen,
) -> Response<Body> {
    let (mut head, body) = request.into_parts();
    let nothing = || Full::default().map_err(|never| match never {}).boxed_unsync();
    let Ok(body) = body.collect().await else { return Response::new(nothing()) };
    let body = body.to_bytes();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    head.uri = format!("{gateway}{path}").parse::<Uri>().unwrap();
    let (shown, headers) = (format!("{} {path}", head.method), head.headers.clone());
    let Ok(answer) = client.request(Request::from_parts(head, Full::new(body.clone()))).await else {
        let mut answer = Response::new(nothing());
        *answer.status_mut() = StatusCode::BAD_GATEWAY;
        return answer;
    };
    let content_type = answer.headers().get(header::CONTENT_TYPE);
    let exchange = Arc::new(Mutex::new(Exchange {
        request: shown,
        headers,
        body,
        status: answer.status(),
        content_type: content_type.map_or("", |value| value.to_str().unwrap()).to_owned(),
        answer: Vec::new(),
    }));
    seen.0.lock().unwrap().push(exchange.clone());
    answer.map(|body| {
        let noted = BodyStream::new(body).inspect(move |frame| {
            if let Some(data) = frame.as_ref().ok().and_then(Frame::data_ref) {
                exchange.lock().unwrap().answer.extend_from_slice(data);
            }
        });
        BodyExt::boxed_unsync(StreamBody::new(noted))
    })
}
