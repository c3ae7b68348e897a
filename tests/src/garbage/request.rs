//! Requests as bytes: request line, headers, framing of the body, and the sender's behaviour.

use std::fmt;

use super::{
    body::{self, Body},
    rng::Rng,
};

/// Credentials that requests may carry.
pub struct Keys {
    pub good: String,
    /// Keys that are refused, each for a different reason.
    pub refused: Vec<String>,
    pub management: String,
    /// Id of a key that requests may change and revoke.
    pub victim: String,
}

/// How a sender ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Sends everything and reads the whole answer: the request is valid HTTP and must be answered.
    Listen,
    /// Sends everything, reads for this many milliseconds, and leaves.
    Glance { ms: u64 },
    /// Sends everything, reads this many bytes, and leaves.
    Leave { after: u64 },
    /// Leaves after sending this many bytes of the request.
    Cut { after: usize },
}

/// A request and how it is sent.
pub struct Sending {
    pub bytes: Vec<u8>,
    /// Number of bytes per write.
    pub piece: usize,
    /// Pause between two writes in milliseconds.
    pub pause_ms: u64,
    pub ending: Ending,
    /// Whether the model may fail on this request, so that an upstream error is a valid answer.
    pub blames_upstream: bool,
}

const METHODS: [&str; 9] = ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "POST", "TRACE", "BREW"];
const PATHS: [&str; 24] = [
    "/",
    "/v1",
    "/v1/",
    "/health",
    "/openapi.json",
    "/v1/models",
    "/v1/models/",
    "/v1/models/Model%20Flash",
    "/v1/models/%ff%00",
    "/v1/models/../models",
    "/v1/models/Model%20Max?x=%zz",
    "/v1/chat/completions/",
    "/v1/chat/completions?stream=true",
    "/v1/embeddings",
    "/v1/management",
    "/v1/management/",
    "/v1/management/keys/",
    "/v1/management/keys/ak_x",
    "/v1/management/keys/%00",
    "//v1//models",
    "/livez",
    "/metrics",
    "/v1/management/../../livez",
    "*",
];
const QUERIES: [&str; 14] = [
    "",
    "?",
    "?limit=1",
    "?limit=3&order=asc",
    "?limit=0",
    "?limit=-1",
    "?limit=99999999999999999999",
    "?limit=1&limit=2",
    "?order=up",
    "?status=revoked",
    "?status=%ff",
    "?after=ak_0",
    "?after=",
    "?limit=1000&status=active&order=desc",
];
const CONTENT_TYPES: [&str; 7] = [
    "application/json",
    "application/json; charset=utf-8",
    "APPLICATION/JSON",
    "text/plain",
    "application/merge-patch+json",
    "multipart/form-data",
    "",
];
const HEADERS: [&str; 12] = [
    "expect: 100-continue",
    "x-request-id: req_00000000000000000000000000000000",
    "origin: https://a.example",
    "access-control-request-method: POST",
    "accept-encoding: gzip, br",
    "idempotency-key: fuzz",
    "idempotency-key: \u{e9}",
    "x-forwarded-for: 127.0.0.1",
    "te: trailers",
    "upgrade: h2c",
    "range: bytes=0-1",
    "x-empty:",
];

impl Sending {
    /// Draws a random request.
    pub fn roll(rng: &mut Rng, keys: &Keys) -> Self {
        let (line, mut body) = Self::line_and_body(rng, keys);
        let mut head = format!("{line} HTTP/1.1\r\nhost: fuzz\r\nconnection: close\r\n").into_bytes();
        for value in credentials(rng, keys, line.contains("management")) {
            push_line(&mut head, &format!("authorization: {value}"));
        }
        if rng.percent(90) {
            let kind = if rng.percent(85) { CONTENT_TYPES[0] } else { rng.pick(&CONTENT_TYPES) };
            push_line(&mut head, &format!("content-type: {kind}"));
        }
        while rng.percent(20) {
            let header = *rng.pick(&HEADERS);
            push_line(&mut head, header);
        }
        if rng.percent(1) {
            push_line(&mut head, &format!("x-long: {}", "x".repeat(rng.below(40_000))));
        }
        let mut bytes = frame(rng, head, &body.bytes);
        let mut ending = ending(rng, bytes.len());
        if rng.percent(6) {
            // The bytes may no longer be HTTP, and then no answer is due; or the script may make the scripted model
            // fail.
            body.blames_upstream = true;
            body::damage(rng, &mut bytes);
            ending = Ending::Glance { ms: 100 };
        }
        let (piece, pause_ms) = pace(rng, bytes.len());
        Self { bytes, piece, pause_ms, ending, blames_upstream: body.blames_upstream }
    }

    fn line_and_body(rng: &mut Rng, keys: &Keys) -> (String, Body) {
        match rng.below(100) {
            0..70 => ("POST /v1/chat/completions".into(), Body::chat(rng)),
            70..85 => {
                let path = match rng.below(4) {
                    0 => format!("/v1/management/keys{}", rng.pick(&QUERIES)),
                    1 => "/v1/management/keys".into(),
                    _ => format!("/v1/management/keys/{}", keys.victim),
                };
                let method = *rng.pick(&["GET", "POST", "PATCH", "PATCH", "DELETE"]);
                // A revoked key accepts no further change, so most revocations are replaced.
                let method = if method == "DELETE" && rng.percent(95) { "HEAD" } else { method };
                let body = if matches!(method, "POST" | "PATCH") { Body::key(rng) } else { Body::default() };
                (format!("{method} {path}"), body)
            }
            _ => {
                let body = if rng.percent(30) { Body::chat(rng) } else { Body::default() };
                (format!("{} {}", rng.pick(&METHODS), rng.pick(&PATHS)), body)
            }
        }
    }
}

fn push_line(head: &mut Vec<u8>, line: &str) {
    head.extend_from_slice(line.as_bytes());
    head.extend_from_slice(b"\r\n");
}

/// Draws values of `Authorization`: usually one, and usually a valid one.
fn credentials(rng: &mut Rng, keys: &Keys, management: bool) -> Vec<String> {
    let good = if management { &keys.management } else { &keys.good };
    match rng.below(100) {
        0..85 => vec![format!("Bearer {good}")],
        85..90 => vec![format!("bearer {}", rng.pick(&keys.refused))],
        90..92 => vec![format!("Bearer {}", if management { &keys.good } else { &keys.management })],
        92..94 => vec![format!("Bearer {good}"), format!("Bearer {good}")],
        94..96 => Vec::new(),
        96..98 => vec![format!("Bearer {}{}", good, rng.below(10))],
        _ => vec![(*rng.pick(&["Basic eDp5", "Bearer", "", "Bearer \u{e9}", "Bearer a b"])).into()],
    }
}

/// Joins head and body into one message, with `Content-Length` or in chunks of random size.
fn frame(rng: &mut Rng, mut head: Vec<u8>, body: &[u8]) -> Vec<u8> {
    if body.is_empty() && rng.percent(80) {
        head.extend_from_slice(b"\r\n");
    } else if rng.percent(75) {
        push_line(&mut head, &format!("content-length: {}\r\n", body.len()));
        head.extend_from_slice(body);
    } else {
        push_line(&mut head, "transfer-encoding: chunked\r\n");
        let size = 1 + rng.below(body.len().clamp(1, 5_000));
        for chunk in body.chunks(size) {
            let extension = if rng.percent(5) { ";x=y" } else { "" };
            push_line(&mut head, &format!("{:x}{extension}", chunk.len()));
            head.extend_from_slice(chunk);
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(if rng.percent(10) { b"0\r\nx-trailer: y\r\n\r\n" } else { b"0\r\n\r\n" });
    }
    head
}

fn ending(rng: &mut Rng, length: usize) -> Ending {
    match rng.below(100) {
        0..75 => Ending::Listen,
        75..83 => Ending::Leave { after: rng.below(2_000) as u64 },
        83..90 => Ending::Glance { ms: rng.below(60) as u64 },
        _ => Ending::Cut { after: rng.below(length) },
    }
}

/// Draws the bytes per write, and the milliseconds between two writes. Most requests are sent in one write, and none
/// takes long.
fn pace(rng: &mut Rng, length: usize) -> (usize, u64) {
    match rng.below(100) {
        0..80 => (length.max(1), 0),
        80..90 => (1 + rng.below(length.max(1)), 0),
        _ => (1 + length / (1 + rng.below(8)), rng.below(20) as u64),
    }
}

impl fmt::Display for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = String::from_utf8_lossy(&self.bytes).chars().take(3_000).collect();
        write!(f, "{:?}, {} bytes a write, {} ms between\n{shown}", self.ending, self.piece, self.pause_ms)
    }
}
