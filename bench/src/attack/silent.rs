//! Sockets that send little or nothing and stay open.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::Method;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{sleep, timeout},
};

use super::row::plain;

/// Number of a flood's sockets that are opened at once, and the pause after them.
const OPENED_TOGETHER: usize = 64;
const WAVE: Duration = Duration::from_millis(20);
/// Number of requests that a pipelining client sends at once.
const PIPELINED: usize = 200;
/// The HTTP/2 preface and the empty settings that follow it.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// `GET /` on the first stream, from HPACK's static table: once with the end of the stream, and once without.
const REQUEST: &[u8] = b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01x";
const REQUEST_WITHOUT_END: &[u8] = b"\0\0\x06\x01\x01\0\0\0\x01\x82\x86\x84\x41\x01x";
const REQUEST_1: &str = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n";

/// How a socket falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Nothing is sent.
    Nothing,
    /// Part of an HTTP/1 head.
    PartOfHead,
    /// Idle after an HTTP/1 request.
    AfterRequest,
    /// HTTP/1 requests whose answers are never read.
    Pipelined,
    /// Part of the HTTP/2 preface.
    PartOfPreface,
    /// The preface alone.
    Preface,
    /// A HEADERS frame without the end of the headers.
    HeadersWithoutEnd,
    /// Idle after an HTTP/2 request; pings are not answered.
    AfterRequest2,
    /// Idle after an HTTP/2 request; pings are answered.
    AnsweringPings,
}

impl Silence {
    pub const ALL: [Self; 9] = [
        Self::Nothing,
        Self::PartOfHead,
        Self::AfterRequest,
        Self::Pipelined,
        Self::PartOfPreface,
        Self::Preface,
        Self::HeadersWithoutEnd,
        Self::AfterRequest2,
        Self::AnsweringPings,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing sent",
            Self::PartOfHead => "part of a head",
            Self::AfterRequest => "idle after a request",
            Self::Pipelined => "pipelined, never read",
            Self::PartOfPreface => "part of the HTTP/2 preface",
            Self::Preface => "preface alone",
            Self::HeadersWithoutEnd => "HEADERS without end",
            Self::AfterRequest2 => "idle after HTTP/2",
            Self::AnsweringPings => "idle after HTTP/2, pings answered",
        }
    }

    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Nothing | Self::AnsweringPings | Self::Pipelined => Vec::new(),
            Self::PartOfHead => REQUEST_1[..20].into(),
            Self::AfterRequest => REQUEST_1.into(),
            Self::PartOfPreface => PREFACE[..10].into(),
            Self::Preface => PREFACE.into(),
            Self::HeadersWithoutEnd => [PREFACE, REQUEST_WITHOUT_END].concat(),
            Self::AfterRequest2 => [PREFACE, REQUEST].concat(),
        }
    }
}

/// Returns the address in `http://ADDRESS`.
pub fn address(base: &str) -> SocketAddr {
    base.rsplit('/').next().and_then(|address| address.parse().ok()).expect("a base address")
}

/// Returns the time from the client's last action until the server closes such a socket; `None` if it does not.
pub async fn time_to_close(address: SocketAddr, silence: Silence, limit: Duration) -> Option<Duration> {
    let mut began = Instant::now();
    let closed = async {
        match silence {
            Silence::Pipelined => write_until_closed(address, &mut began).await,
            Silence::AnsweringPings => idle_http2(address).await,
            _ => {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(&silence.bytes()).await.unwrap();
                let mut read = vec![0; 4096];
                while stream.read(&mut read).await.is_ok_and(|count| count > 0) {}
            }
        }
    };
    timeout(limit, closed).await.ok().map(|()| began.elapsed())
}

/// Writes until the server closes the connection; `written` is when a write last succeeded.
async fn write_until_closed(address: SocketAddr, written: &mut Instant) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let requests = REQUEST_1.repeat(PIPELINED);
    while stream.write(requests.as_bytes()).await.is_ok() {
        *written = Instant::now();
    }
}

async fn idle_http2(address: SocketAddr) {
    let stream = TcpStream::connect(address).await.unwrap();
    let connecting =
        http2::Builder::new(TokioExecutor::new()).timer(TokioTimer::new()).handshake(TokioIo::new(stream));
    let (mut sender, connection) = connecting.await.unwrap();
    let carrying = tokio::spawn(connection);
    let answered = sender.send_request(plain(Method::GET, "http://x/health")).await;
    drop::<Result<_, hyper::Error>>(answered);
    // The sender keeps this side of the connection open.
    let _ = carrying.await;
    drop::<http2::SendRequest<Full<Bytes>>>(sender);
}

/// Opens this many silent sockets, a few thousand per second.
pub async fn flood(address: SocketAddr, sockets: usize) -> Vec<TcpStream> {
    let mut opened = Vec::with_capacity(sockets);
    while opened.len() < sockets {
        let wave = OPENED_TOGETHER.min(sockets - opened.len());
        let (wave, ()) = tokio::join!(join_all((0..wave).map(|_| TcpStream::connect(address))), sleep(WAVE));
        opened.extend(wave.into_iter().map(|socket| socket.expect("the server accepts connections")));
    }
    opened
}
