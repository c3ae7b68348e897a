//! Proxies to compare with: axum as server, hyper as client. The bare one forwards every byte unchanged; the metering
//! one also hashes the key, reads the model and the usage, and adds up tokens in memory.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{Request, Response, StatusCode, Uri, header},
    serve::ListenerExt,
};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use memchr::memmem;
use serde::Deserialize;
use tokio::net::TcpListener;

/// Maximum length of a request that the metering proxy reads, in bytes.
const MOST_BYTES: usize = 1 << 20;
/// Name of the member whose number is added up, in an answer or in a stream's last chunk.
const COUNT: &[u8] = b"\"completion_tokens\":";

/// A proxy's connections and upstream address. Only the metering proxy has books.
#[derive(Clone)]
struct Proxy {
    client: Client<HttpConnector, Body>,
    upstream: SocketAddr,
    books: Option<Books>,
}

/// Token sums by the first byte of the key's hash. Keys may share a counter, which does not change the cost.
type Books = Arc<HashMap<u8, AtomicU64>>;

/// Forwards all requests to `upstream`, forever.
pub async fn serve(listener: TcpListener, upstream: SocketAddr, metering: bool) -> io::Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let books = metering.then(|| Arc::new((0..=u8::MAX).map(|hash| (hash, AtomicU64::new(0))).collect()));
    let app = Router::new().fallback(forward).with_state(Proxy { client, upstream, books });
    let listener = listener.tap_io(|stream| {
        // If this fails, the proxy answers later but uses no less CPU.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, app).await
}

async fn forward(
    State(Proxy { client, upstream, books }): State<Proxy>,
    mut request: Request<Body>,
) -> Result<Response<Body>, StatusCode> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() =
        format!("http://{upstream}{path}").parse::<Uri>().map_err(|_| StatusCode::BAD_REQUEST)?;
    let Some(books) = books else {
        let response = client.request(request).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
        return Ok(response.map(Body::new));
    };
    let key = request.headers().get(header::AUTHORIZATION).ok_or(StatusCode::UNAUTHORIZED)?;
    let hash = blake3::keyed_hash(&[7; blake3::KEY_LEN], key.as_bytes()).as_bytes()[0];
    let response = client.request(read(request).await?).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    Ok(response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            if let Some(tokens) = frame.data_ref().and_then(tokens) {
                books[&hash].fetch_add(tokens, Ordering::Relaxed);
            }
            frame
        }))
    }))
}

/// Reads the request's body and checks that it names a model.
async fn read(request: Request<Body>) -> Result<Request<Body>, StatusCode> {
    #[derive(Deserialize)]
    struct Asked<'a> {
        #[serde(borrow)]
        model: std::borrow::Cow<'a, str>,
    }
    let (head, body) = request.into_parts();
    let read = Limited::new(body, MOST_BYTES).collect().await;
    let bytes = read
        .map_err(|e| {
            if e.is::<LengthLimitError>() { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST }
        })?
        .to_bytes();
    let asked: Asked<'_> = serde_json::from_slice(&bytes).map_err(|_| StatusCode::BAD_REQUEST)?;
    if asked.model.is_empty() {
        return Err(StatusCode::NOT_FOUND);
    }
    Ok(Request::from_parts(head, Body::from(bytes)))
}

/// Returns the number of tokens reported in this piece of an answer, if any.
fn tokens(piece: &Bytes) -> Option<u64> {
    let rest = &piece[memmem::rfind(piece, COUNT)? + COUNT.len()..];
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}
