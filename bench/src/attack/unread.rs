//! Streams that a paying client never reads, and answers that unauthenticated clients leave unread.

use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::{net::TcpStream, task::JoinHandle};

use super::{
    silent::address,
    unauthenticated::{client_address, connect_from},
};
use tests::{harness::FLASH, upstream::Script};

/// Streams that share one HTTP/2 connection and whose client does not let the server send more.
pub struct UnreadStreams {
    responses: Vec<Response<Incoming>>,
    // The connection stays open for as long as this exists.
    _sender: http2::SendRequest<Full<Bytes>>,
    connection: JoinHandle<()>,
}

/// Opens `count` long chat streams that are never read.
pub async fn open_streams(base: &str, secret: &str, count: usize) -> UnreadStreams {
    open_scripted_streams(base, secret, count, &Script::tokens(12, 1_000).pace(50)).await
}

/// Opens `count` streams with this script that are never read.
pub async fn open_scripted_streams(base: &str, secret: &str, count: usize, script: &Script) -> UnreadStreams {
    let stream = TcpStream::connect(address(base)).await.unwrap();
    let mut client = http2::Builder::new(TokioExecutor::new());
    client.initial_stream_window_size(0);
    let (sender, connection) = client.handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(async move {
        let _ = connection.await;
    });
    let opened = (0..count).map(|_| {
        let (mut sender, request) = (sender.clone(), request(secret, script));
        async move { sender.send_request(request).await.unwrap() }
    });
    let responses = join_all(opened).await;
    UnreadStreams { responses, _sender: sender, connection }
}

/// Opens several HTTP/2 connections and asks on each, `each` times, for the longest answer that needs no credential.
/// The client accepts only one byte of each answer.
pub async fn leave_answers(base: &str, connections: usize, each: usize) -> Vec<UnreadStreams> {
    leave_answers_of("/openapi.json", address(base), connections, each).await
}

/// Does the same as [`leave_answers`], but asks for the answer at this path. All connections come from one address.
pub async fn leave_answers_of(
    path: &str,
    server: SocketAddr,
    connections: usize,
    each: usize,
) -> Vec<UnreadStreams> {
    let opened = (0..connections).map(async |_| {
        let stream = connect_from(client_address(1), server).await.unwrap();
        let mut client = http2::Builder::new(TokioExecutor::new());
        client.initial_stream_window_size(1);
        let (sender, connection) = client.handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(async move {
            let _ = connection.await;
        });
        let asked = (0..each).map(|_| {
            let mut sender = sender.clone();
            let request = Request::get(format!("http://x{path}")).body(Full::default()).unwrap();
            // The server may have closed the connection.
            async move { sender.send_request(request).await.ok() }
        });
        let responses = join_all(asked).await.into_iter().flatten().collect();
        UnreadStreams { responses, _sender: sender, connection }
    });
    join_all(opened).await
}

impl UnreadStreams {
    /// Returns the number of streams whose answers have begun.
    pub fn begun(&self) -> usize {
        self.responses.iter().filter(|response| response.status() == StatusCode::OK).count()
    }

    /// Returns the number of requests refused with 503.
    pub fn refused(&self) -> usize {
        let overloaded =
            |response: &&Response<Incoming>| response.status() == StatusCode::SERVICE_UNAVAILABLE;
        self.responses.iter().filter(overloaded).count()
    }
}

impl Drop for UnreadStreams {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

fn request(secret: &str, script: &Script) -> Request<Full<Bytes>> {
    let content = script.message();
    let body = json!({"model": FLASH, "stream": true, "messages": [{"role": "user", "content": content}]});
    Request::post("http://x/v1/chat/completions")
        .header(header::AUTHORIZATION, format!("Bearer {secret}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap()
}
