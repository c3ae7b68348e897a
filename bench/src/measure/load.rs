//! Load generator: each connection has one request in flight. All requests are made in advance as bytes, so that the
//! generator uses little CPU compared with the measured programs.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use memchr::memmem;
use serde_json::json;
use tests::{
    harness::{Dialect, FLASH},
    upstream::Script,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
    time::{sleep, timeout},
};

/// Time between two tokens of a stream.
pub(super) const PACE: Duration = Duration::from_millis(20);

/// Maximum number of requests that one connection sends during a measurement.
const MOST_REQUESTS: u32 = 200_000;
/// Maximum time that an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// Number of streams that are opened at once. If all were opened at once, the burst of connections would be measured
/// too.
const OPENED_TOGETHER: usize = 50;
const READ: usize = 16 << 10;

/// Requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Whole answers. Each of the concurrent requests has its own connection.
    Whole {
        /// Number of concurrent requests.
        at_once: u32,
    },
    /// Whole answers that share a few HTTP/2 connections, as they do behind a proxy.
    Shared {
        /// Number of concurrent requests.
        at_once: u32,
        /// Number of connections that carry them.
        connections: u32,
    },
    /// Streams, each read to its end.
    Streamed {
        /// The dialect of the requests.
        dialect: Dialect,
        /// Number of concurrent streams.
        at_once: u32,
        /// Number of chunks in each stream.
        chunks: u32,
    },
}

impl Work {
    /// Returns work of the same kind, but with short streams.
    pub(super) fn warming_up(self) -> Self {
        match self {
            Self::Streamed { dialect, at_once, .. } => Self::Streamed { dialect, at_once, chunks: 5 },
            Self::Whole { .. } | Self::Shared { .. } => self,
        }
    }
}

/// Answers received.
#[derive(Default)]
pub(super) struct Load {
    /// Number of whole answers, or of chunks in streams.
    pub(super) pieces: u32,
    /// Number of requests that were answered with 503, and of streams that ended early. Both may happen on a busy
    /// machine.
    pub(super) failed: u32,
    /// Time until each answer or, for a stream, until its first token.
    waits: Vec<Duration>,
}

impl Load {
    /// Adds the figures of another load to this one.
    pub(super) fn add(&mut self, other: &Self) {
        self.pieces += other.pieces;
        self.failed += other.failed;
        self.waits.extend(&other.waits);
    }

    /// Returns a time that `percent` per cent of the answers did not exceed.
    pub(super) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.waits.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        sorted.get(last * percent / 100).copied().unwrap_or_default()
    }
}

/// Where to send requests. The addresses are used in turn, and each request carries a random key.
#[derive(Clone)]
pub(super) struct Target {
    addresses: Arc<[SocketAddr]>,
    keys: Arc<[String]>,
}

impl Target {
    pub(super) fn new(addresses: Vec<SocketAddr>, keys: Vec<String>) -> Self {
        Self { addresses: addresses.into(), keys: keys.into() }
    }

    fn address(&self, number: u32) -> SocketAddr {
        self.addresses[number as usize % self.addresses.len()]
    }

    /// Returns the bytes of an HTTP/1.1 request for each key.
    fn requests(&self, dialect: Dialect, body: &str) -> Arc<[Bytes]> {
        let path = dialect.path();
        let request = |key: &String| {
            Bytes::from(format!(
                "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ))
        };
        self.keys.iter().map(request).collect()
    }
}

/// Does `work` for `duration`. Requests that are in flight at the end are finished and counted.
pub(super) async fn run(target: &Target, work: Work, duration: Duration) -> Load {
    let deadline = Instant::now() + duration;
    let workers = match work {
        Work::Whole { at_once } => {
            let requests = target.requests(Dialect::Chat, &body(Dialect::Chat, None));
            (0..at_once)
                .map(|number| worker(target, number, requests.clone(), None, Duration::ZERO, deadline))
                .collect()
        }
        Work::Streamed { dialect, at_once, chunks } => {
            let script = Script::tokens(200, u64::from(chunks)).pace(millis(PACE));
            let requests = target.requests(dialect, &body(dialect, Some(script)));
            let streamed = Some(Streamed { dialect, chunks });
            // The streams begin one after the other, so that they send their tokens at different moments.
            let start = |number| PACE * chunks * number / at_once;
            (0..at_once)
                .map(|number| worker(target, number, requests.clone(), streamed, start(number), deadline))
                .collect()
        }
        Work::Shared { at_once, connections } => shared(target, at_once, connections, deadline).await,
    };
    let mut all = Load::default();
    for done in join_all(workers).await {
        all.add(&done.expect("no request fails"));
    }
    all
}

#[derive(Clone, Copy)]
struct Streamed {
    dialect: Dialect,
    chunks: u32,
}

impl Streamed {
    /// Returns the bytes that precede a stream's first token, and the bytes with which the last event of a successful
    /// stream begins.
    const fn marks(self) -> [&'static [u8]; 2] {
        match self.dialect {
            Dialect::Chat => [b"\"content\":\" ", b"data: [DONE]"],
            Dialect::Responses => [b"\"delta\":\" ", b"event: response.completed"],
            Dialect::Messages => [b"\"text\":\" ", b"event: message_stop"],
        }
    }
}

fn worker(
    target: &Target,
    number: u32,
    requests: Arc<[Bytes]>,
    streamed: Option<Streamed>,
    start: Duration,
    deadline: Instant,
) -> JoinHandle<Load> {
    let (address, mut dice) = (target.address(number), Dice(u64::from(number)));
    tokio::spawn(async move {
        sleep(start).await;
        let (mut connection, mut load) = (Connection::open(address).await, Load::default());
        for _ in 0..MOST_REQUESTS {
            if Instant::now() >= deadline {
                break;
            }
            let request = &requests[dice.below(requests.len())];
            if let Some(wait) = connection.exchange(request, streamed).await {
                load.waits.push(wait);
                load.pieces += streamed.map_or(1, |streamed| streamed.chunks);
            } else {
                load.failed += 1;
            }
        }
        load
    })
}

/// An HTTP/1.1 connection.
struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

/// Reads a stream until its connection is dropped.
fn drain(mut connection: Connection) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            connection.answer.clear();
            connection.read().await;
        }
    })
}

impl Connection {
    async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the server accepts connections");
        stream.set_nodelay(true).unwrap();
        Self { stream, answer: Vec::with_capacity(READ) }
    }

    /// Sends a request and reads its answer. Returns how long it took until the whole answer or the first token of a
    /// stream arrived; `None` if the request failed.
    async fn exchange(&mut self, request: &[u8], streamed: Option<Streamed>) -> Option<Duration> {
        let sent = Instant::now();
        self.send(request).await;
        let (marks, mut first) = (streamed.map(Streamed::marks), None);
        while !is_complete(&self.answer) {
            self.read().await;
            let has_begun = |[token, _]: [&[u8]; 2]| memmem::find(&self.answer, token).is_some();
            if first.is_none() && marks.is_some_and(has_begun) {
                first = Some(sent.elapsed());
            }
        }
        if self.answer.starts_with(b"HTTP/1.1 503") {
            return None;
        }
        assert!(self.answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&self.answer));
        match marks {
            Some([_, end]) => first.filter(|_| memmem::find(&self.answer, end).is_some()),
            None => Some(sent.elapsed()),
        }
    }

    async fn send(&mut self, request: &[u8]) {
        self.answer.clear();
        self.stream.write_all(request).await.expect("the server reads requests");
    }

    async fn read(&mut self) {
        self.answer.reserve(READ);
        let read = timeout(ANSWER_TIMEOUT, self.stream.read_buf(&mut self.answer))
            .await
            .expect("the answer comes in time");
        assert!(read.is_ok_and(|bytes| bytes > 0), "the server keeps connections open");
    }
}

/// Returns whether a response has arrived completely.
fn is_complete(answer: &[u8]) -> bool {
    let Some(end) = memmem::find(answer, b"\r\n\r\n") else { return false };
    let (head, body) = (&answer[..end], &answer[end + 4..]);
    let length = head.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked("content-length:".len())?;
        name.eq_ignore_ascii_case(b"content-length:")
            .then(|| std::str::from_utf8(value).ok()?.trim().parse().ok())?
    });
    match length {
        Some(length) => body.len() >= length,
        None => body == b"0\r\n\r\n" || body.ends_with(b"\r\n0\r\n\r\n"),
    }
}

/// Starts workers that share a few HTTP/2 connections.
async fn shared(target: &Target, at_once: u32, connections: u32, deadline: Instant) -> Vec<JoinHandle<Load>> {
    let mut senders = Vec::new();
    for number in 0..connections {
        let stream =
            TcpStream::connect(target.address(number)).await.expect("the server accepts connections");
        stream.set_nodelay(true).unwrap();
        let (sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver);
        senders.push(sender);
    }
    let (body, key) = (Bytes::from(body(Dialect::Chat, None)), target.keys[0].clone());
    let worker = |number: u32| {
        let mut sender: http2::SendRequest<Full<Bytes>> = senders[(number % connections) as usize].clone();
        let (body, authorization) = (body.clone(), format!("Bearer {key}"));
        tokio::spawn(async move {
            let mut load = Load::default();
            while Instant::now() < deadline && load.pieces + load.failed < MOST_REQUESTS {
                let request = Request::post("http://localhost/v1/chat/completions")
                    .header(header::AUTHORIZATION, &authorization)
                    .header(header::CONTENT_TYPE, "application/json")
                    .body(Full::new(body.clone()))
                    .unwrap();
                let sent = Instant::now();
                sender.ready().await.unwrap();
                let answer = sender.send_request(request).await.unwrap();
                let status = answer.status();
                let text = answer.into_body().collect().await.unwrap().to_bytes();
                if status == 503 {
                    load.failed += 1;
                    continue;
                }
                assert!(status == 200, "{status}: {}", String::from_utf8_lossy(&text));
                load.waits.push(sent.elapsed());
                load.pieces += 1;
            }
            load
        })
    };
    (0..at_once).map(worker).collect()
}

/// Streams that stay open, and are read as they arrive until this value is dropped.
pub(super) struct Held(Vec<JoinHandle<()>>);

impl Held {
    /// Opens `count` streams that send a token at intervals of `pace`, and waits until each stream has sent its first
    /// token.
    pub(super) async fn open(target: &Target, count: usize, pace: Duration) -> Self {
        let script = Script::tokens(200, 1_000_000).pace(millis(pace));
        let requests = target.requests(Dialect::Chat, &body(Dialect::Chat, Some(script)));
        let mut held = Self(Vec::new());
        while held.0.len() < count {
            let more = OPENED_TOGETHER.min(count - held.0.len());
            let opening = (0..more).map(async |number| {
                let address = target.address(u32::try_from(number).expect("it is small"));
                let mut connection = Connection::open(address).await;
                connection.send(&requests[number % requests.len()]).await;
                while memmem::find(&connection.answer, b"\"content\":\" ").is_none() {
                    connection.read().await;
                }
                connection
            });
            held.0.extend(join_all(opening).await.into_iter().map(drain));
            // The batches start at different moments, so that their tokens do not all arrive at the same time.
            sleep(
                pace * u32::try_from(OPENED_TOGETHER).expect("it is small")
                    / u32::try_from(count).expect("it is small"),
            )
            .await;
        }
        held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("it is short")
}

/// A generator of random numbers, which are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits fit") % count
    }
}

/// Returns the size of each request body in bytes.
pub(super) fn request_bytes() -> usize {
    body(Dialect::Chat, None).len()
}

/// Returns a request of about 0.9 kB, for a whole answer, or for a stream that follows this script.
fn body(dialect: Dialect, script: Option<Script>) -> String {
    let streamed = script.is_some();
    let prompt = script.map_or_else(
        || "Please explain, in plain words, how a prepaid account pays for a request. ".repeat(9),
        |script| format!("{}{}", script.message(), " please".repeat(90)),
    );
    let messages = json!([
        {"role": "system", "content": "You are a helpful assistant. Answer briefly and precisely."},
        {"role": "user", "content": prompt},
    ]);
    let (list, limit) = match dialect {
        Dialect::Chat | Dialect::Messages => ("messages", "max_tokens"),
        Dialect::Responses => ("input", "max_output_tokens"),
    };
    json!({"model": FLASH, list: messages, limit: 1024, "temperature": 0.7, "stream": streamed}).to_string()
}
