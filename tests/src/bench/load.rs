//! The load: a fixed number of connections, each with one request under way at all times.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use memchr::memmem;
use serde_json::json;
use tokio::{net::TcpStream, time::sleep};

use super::{PACE_MS, TOKENS};

/// Pieces of work that one connection does in one measurement, at most.
const MOST_PIECES: u32 = 200_000;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Whole answers; a piece is a request.
    Whole {
        /// Requests at once.
        at_once: u32,
    },
    /// Streams; a piece is a chunk.
    Streamed {
        /// Streams at once.
        at_once: u32,
    },
}

/// What was done.
#[derive(Default)]
pub(super) struct Load {
    /// Requests or chunks.
    pub(super) pieces: u32,
    /// Of each request, until its answer, or until its first token.
    waits: Vec<Duration>,
}

impl Load {
    /// Both together.
    pub(super) fn add(&mut self, other: Self) {
        self.pieces += other.pieces;
        self.waits.extend(other.waits);
    }

    /// The wait that so many of a hundred requests did not exceed.
    pub(super) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.waits.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        sorted.get(last * percent / 100).copied().unwrap_or_default()
    }
}

/// Does the work for so long. What has begun by then is finished and counts too.
pub(super) async fn run(address: SocketAddr, keys: &[String], work: Work, duration: Duration) -> Load {
    let deadline = Instant::now() + duration;
    let (at_once, streamed) = match work {
        Work::Whole { at_once } => (at_once, false),
        Work::Streamed { at_once } => (at_once, true),
    };
    let keys: Arc<[String]> = keys.into();
    let workers = (0..at_once).map(|index| {
        let chance = u64::from(index);
        let mut worker = Worker { address, keys: keys.clone(), chance, streamed, load: Load::default() };
        // Streams begin one after the other: all at once would measure the crowd at the door.
        let delay =
            if streamed { length_of_stream().min(duration) * index / at_once } else { Duration::ZERO };
        tokio::spawn(async move {
            sleep(delay).await;
            worker.work(deadline).await;
            worker.load
        })
    });
    let mut all = Load::default();
    for done in join_all(workers).await {
        all.add(done.expect("no request fails"));
    }
    all
}

fn length_of_stream() -> Duration {
    Duration::from_millis(u64::from(TOKENS * PACE_MS))
}

/// One connection.
struct Worker {
    address: SocketAddr,
    keys: Arc<[String]>,
    /// Which key comes next.
    chance: u64,
    streamed: bool,
    load: Load,
}

impl Worker {
    async fn work(&mut self, deadline: Instant) {
        let stream = TcpStream::connect(self.address).await.expect("the server accepts connections");
        stream.set_nodelay(true).unwrap();
        let (mut connection, driver) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver);
        while Instant::now() < deadline && self.load.pieces < MOST_PIECES {
            self.request(&mut connection).await;
        }
    }

    async fn request(&mut self, connection: &mut SendRequest<Full<Bytes>>) {
        let key = self.next_key().to_owned();
        let request = Request::post("/v1/chat/completions")
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::AUTHORIZATION, format!("Bearer {key}"))
            .body(Full::new(body(self.streamed)))
            .unwrap();
        let sent = Instant::now();
        connection.ready().await.unwrap();
        let response = connection.send_request(request).await.unwrap();
        let status = response.status();
        let mut body = response.into_body();
        let mut first = None;
        let mut tail = Bytes::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.unwrap().into_data() else { continue };
            if self.streamed {
                self.load.pieces += count(memmem::find_iter(&data, b"\"content\":\" "));
            }
            if first.is_none() && (!self.streamed || memmem::find(&data, b"\"content\":\" ").is_some()) {
                first = Some(sent.elapsed());
            }
            tail = data;
        }
        assert!(status == 200, "{status}: {}", String::from_utf8_lossy(&tail));
        if self.streamed {
            assert!(
                tail.ends_with(b"data: [DONE]\n\n"),
                "a stream ends early: {}",
                String::from_utf8_lossy(&tail)
            );
        } else {
            self.load.pieces += 1;
            first = Some(sent.elapsed());
        }
        self.load.waits.push(first.expect("an answer has a token"));
    }
}

impl Worker {
    /// One of the keys, each as likely as any other, and the same ones in every run.
    fn next_key(&mut self) -> &str {
        self.chance =
            self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let high = usize::try_from(self.chance >> 33).expect("31 bits fit");
        &self.keys[high % self.keys.len()]
    }
}

fn count(hits: impl Iterator) -> u32 {
    u32::try_from(hits.count()).expect("a piece of a stream is short")
}

/// Bytes of each request's body.
pub(super) fn request_bytes() -> usize {
    body(false).len()
}

fn body(streamed: bool) -> Bytes {
    let prompt = "Please explain, in plain words, how a prepaid account pays for a request. ".repeat(9);
    let messages = json!([
        {"role": "system", "content": "You are a helpful assistant. Answer briefly and precisely."},
        {"role": "user", "content": prompt},
    ]);
    let body = json!({"model": "Model Flash", "messages": messages, "max_tokens": 1024, "temperature": 0.7, "stream": streamed});
    Bytes::from(body.to_string())
}
