//! Requests without a credential whose bodies never end, over HTTP/2.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, header};
use http_body_util::StreamBody;
use hyper::{body::Frame, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use shared::key::Class;
use tokio::{task::JoinHandle, time::sleep};

use super::{
    row::Row,
    silent::address,
    unauthenticated::{client_address, connect_from, invented_key},
};
use crate::measure::process::memory;
use tests::harness::Server;

/// Length that every body announces, and number of bytes that the attack sends.
const ANNOUNCED: usize = 64 << 10;
const SENT: usize = 60 << 10;

/// Bytes of a large head, below the bound on heads.
const HEAD: usize = 60 << 10;
/// Limits in bytes on the memory used by stalled bodies: after they end, and while they stall.
const LEFT_BEHIND: u64 = 64 << 20;
const MEANWHILE: u64 = 3 * LEFT_BEHIND;

/// A request whose body stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A chat request with an invented key, nearly all of it sent.
    Chat,
    /// A management request with an invented key, nearly all of it sent.
    Management,
    /// A form for the dashboard, half of it sent.
    Form,
    /// A chat request of a few bytes with a large head; none of its body is sent.
    LargeHead,
}

impl Body {
    pub const ALL: [Self; 4] = [Self::Chat, Self::Management, Self::Form, Self::LargeHead];

    const fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat bodies with invented keys",
            Self::Management => "management bodies",
            Self::Form => "forms of the dashboard",
            Self::LargeHead => "chat requests with large heads",
        }
    }

    /// Returns the number of bytes announced, and the number sent.
    const fn bytes(self) -> (usize, usize) {
        match self {
            Self::Chat | Self::Management => (ANNOUNCED, SENT),
            Self::Form => (SENT / 2, SENT / 4),
            Self::LargeHead => (10, 0),
        }
    }

    /// Returns the number of bytes sent of a request, without a small head.
    const fn size(self) -> usize {
        match self {
            Self::LargeHead => HEAD,
            Self::Chat | Self::Management | Self::Form => self.bytes().1,
        }
    }
}

/// Measures a server's memory while stalled requests, `each` per connection, occupy its port.
pub(super) async fn row(server: &Server, port: &str, (connections, each): (usize, usize), body: Body) -> Row {
    let (pid, address) = (server.pid(), address(server.address(port)));
    let (meanwhile, afterwards, sent) = growth(pid, address, (connections, each), body).await;
    Row {
        name: format!("{connections} × {each} stalled {}, {} MiB, port {port}", body.name(), sent >> 20),
        expected: format!("{} MiB more, then {}", MEANWHILE >> 20, LEFT_BEHIND >> 20),
        seen: format!("{} MiB more, then {}", meanwhile >> 20, afterwards >> 20),
        held: afterwards <= LEFT_BEHIND && meanwhile <= MEANWHILE,
    }
}

/// Returns how much a process's memory grows while requests stall and afterwards, and the number of bytes sent.
pub(super) async fn growth(
    pid: u32,
    address: SocketAddr,
    (connections, each): (usize, usize),
    body: Body,
) -> (u64, u64, usize) {
    let before = memory(pid);
    let stalled = StalledBodies::open(address, connections, each, body).await;
    let mut peak = 0;
    for _ in 0..20 {
        sleep(Duration::from_millis(250)).await;
        peak = peak.max(memory(pid));
    }
    drop(stalled);
    sleep(Duration::from_secs(15)).await;
    let sent = connections * each * body.size();
    (peak.saturating_sub(before), memory(pid).saturating_sub(before), sent)
}

/// HTTP/2 requests whose bodies stall.
pub struct StalledBodies {
    tasks: Vec<JoinHandle<()>>,
}

impl StalledBodies {
    /// Opens the connections, each with `each` such requests.
    pub async fn open(address: SocketAddr, connections: usize, each: usize, body: Body) -> Self {
        let mut tasks = Vec::new();
        for number in 0..connections {
            let stream = connect_from(client_address(1), address).await.unwrap();
            let mut client = http2::Builder::new(TokioExecutor::new());
            let connecting = client.max_header_list_size(1 << 20).handshake(TokioIo::new(stream));
            let Ok((sender, connection)) = connecting.await else { continue };
            tasks.push(tokio::spawn(async move {
                // The server decides how the connection ends.
                let _ = connection.await;
            }));
            for stream in 0..each {
                let (mut sender, request) = (sender.clone(), request(number * each + stream, body));
                tasks.push(tokio::spawn(async move {
                    let _ = sender.send_request(request).await;
                }));
            }
        }
        Self { tasks }
    }
}

impl Drop for StalledBodies {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

type Stalling = StreamBody<stream::BoxStream<'static, Result<Frame<Bytes>, std::convert::Infallible>>>;

fn request(number: usize, body: Body) -> Request<Stalling> {
    let (path, class) = match body {
        Body::Management => ("/v1/management/keys", Class::Management),
        Body::Form => ("/dashboard/sign-in", Class::Management),
        Body::Chat | Body::LargeHead => ("/v1/chat/completions", Class::Api),
    };
    let content_type =
        if body == Body::Form { "application/x-www-form-urlencoded" } else { "application/json" };
    let (announced, sent) = body.bytes();
    let begun = stream::once(async move { Ok(Frame::data(Bytes::from(vec![b' '; sent]))) });
    let mut request = Request::post(format!("http://x{path}"))
        .header(header::AUTHORIZATION, format!("Bearer {}", invented_key(class, number)))
        .header(header::CONTENT_TYPE, content_type)
        .header(header::CONTENT_LENGTH, announced);
    if body == Body::LargeHead {
        // Each header differs, so that HPACK cannot share their entries.
        request = request.header("x-filler", format!("{number:0>HEAD$}"));
    }
    request.body(StreamBody::new(begun.chain(stream::pending()).boxed())).unwrap()
}
