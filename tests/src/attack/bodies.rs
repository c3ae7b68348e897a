//! Bodies that never end, of callers without a credential.

use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, header};
use http_body_util::StreamBody;
use hyper::{body::Frame, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use shared::{
    key::{Class, Prefix},
    secret::ExposeSecret,
};
use tokio::{net::TcpStream, task::JoinHandle};

/// The length that every body announces, and what is sent of it.
const ANNOUNCED: usize = 64 << 10;
const SENT: usize = 60 << 10;

/// Requests over HTTP/2 whose bodies stall.
pub struct StalledBodies {
    tasks: Vec<JoinHandle<()>>,
    sent: usize,
}

impl StalledBodies {
    /// Opens so many connections with so many requests on each: chat requests with invented keys, or management requests.
    pub async fn open(address: SocketAddr, connections: usize, each: usize, management: bool) -> Self {
        let mut tasks = Vec::new();
        for number in 0..connections {
            let stream = TcpStream::connect(address).await.unwrap();
            let connecting = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
            let Ok((sender, connection)) = connecting.await else { continue };
            tasks.push(tokio::spawn(async move {
                // The outcome of the connection is the server's own affair.
                let _ = connection.await;
            }));
            for stream in 0..each {
                let (mut sender, request) = (sender.clone(), request(number * each + stream, management));
                tasks.push(tokio::spawn(async move {
                    let _ = sender.send_request(request).await;
                }));
            }
        }
        Self { tasks, sent: connections * each * SENT }
    }

    /// Bytes that were sent, or would be if they were taken.
    pub const fn bytes(&self) -> usize {
        self.sent
    }
}

impl Drop for StalledBodies {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A key of the right form that no account has.
pub fn invented_key(class: Class, number: usize) -> String {
    let mut random = [7; 32];
    random[..8].copy_from_slice(&number.to_le_bytes());
    let prefix = Prefix::parse("fg").expect("it is a prefix");
    prefix.mint(class, random).expose_secret().to_owned()
}

type Stalling = StreamBody<stream::BoxStream<'static, Result<Frame<Bytes>, std::convert::Infallible>>>;

fn request(number: usize, management: bool) -> Request<Stalling> {
    let (path, class) = if management {
        ("/v1/management/keys", Class::Management)
    } else {
        ("/v1/chat/completions", Class::Api)
    };
    let begun = stream::once(async { Ok(Frame::data(Bytes::from(vec![b' '; SENT]))) });
    Request::post(format!("http://x{path}"))
        .header(header::AUTHORIZATION, format!("Bearer {}", invented_key(class, number)))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONTENT_LENGTH, ANNOUNCED)
        .body(StreamBody::new(begun.chain(stream::pending()).boxed()))
        .unwrap()
}
