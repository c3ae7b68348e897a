//! Requests as bytes, and connections that report what the server sent back. Nothing here panics, because servers may
//! be killed while they answer.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use memchr::memmem;
use shared::money::NanoUsd;
use tests::harness::{Dialect, FLASH};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout_at,
};

/// Maximum time that a client waits for the end of an answer.
const GIVEN_UP: Duration = Duration::from_secs(30);
/// Maximum time that a client waits for a connection.
const CONNECTED: Duration = Duration::from_secs(2);
/// Number of bytes for which a read has space.
const READ: usize = 8 << 10;
/// Text that makes the upper bound of a prompt larger than its number of tokens. The script says which number of tokens
/// the upstream reports.
const PADDING: &str = "Please explain, in plain words, how a prepaid account pays for a request. Please explain it once more, in \
    plain words.";

/// A model call.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// Number of the request in its round. The tag of its script is made from it.
    pub(crate) number: u64,
    pub(crate) dialect: Dialect,
    pub(crate) streamed: bool,
    /// Number of tokens in the prompt. No two requests of a key have the same number.
    pub(crate) prompt: u64,
    /// Number of tokens that the model would generate if there were no limit.
    pub(crate) completion: u64,
    /// Maximum number of output tokens for which the client asks.
    pub(crate) limit: u64,
    /// Time between two tokens of a stream, in milliseconds.
    pub(crate) pace_ms: u64,
    /// Time before the answer, in milliseconds.
    pub(crate) head_after_ms: u64,
    /// If set, the client leaves after this many bytes of the answer.
    pub(crate) leaves_after: Option<usize>,
}

impl Ask {
    /// Returns the tag of the script in the request with this number.
    pub(crate) fn tag(number: u64) -> String {
        format!("p{number}")
    }

    /// Returns the number in a tag; `None` for the tags of requests that were not made here.
    pub(crate) fn number_in(tag: &str) -> Option<u64> {
        tag.strip_prefix('p')?.parse().ok()
    }

    /// Returns the bytes of the request, which carries this key.
    pub(crate) fn bytes(&self, secret: &str) -> Vec<u8> {
        let body = self.body();
        let path = self.dialect.path();
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {secret}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }

    fn body(&self) -> String {
        let Self { prompt, completion, pace_ms, head_after_ms, limit, streamed, .. } = self;
        let tag = Self::tag(self.number);
        let script = format!(
            r#"{{\"script\":{{\"tag\":\"{tag}\",\"prompt_tokens\":{prompt},\"completion_tokens\":{completion},\"pace_ms\":{pace_ms},\"head_after_ms\":{head_after_ms}}}}}"#
        );
        let (list, limit_name) = match self.dialect {
            Dialect::Chat | Dialect::Messages => ("messages", "max_tokens"),
            Dialect::Responses => ("input", "max_output_tokens"),
        };
        let options = match self.dialect {
            Dialect::Chat if *streamed => r#","stream_options":{"include_usage":true}"#,
            Dialect::Chat | Dialect::Responses | Dialect::Messages => "",
        };
        format!(
            r#"{{"model":"{FLASH}","{list}":[{{"role":"user","content":"{script} {PADDING}"}}],"{limit_name}":{limit},"stream":{streamed}{options}}}"#
        )
    }
}

/// Which limit is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsedUp {
    Key,
    Group,
    Credit,
}

/// What a client received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Got {
    /// Status of the answer; 0 if no head arrived.
    pub(crate) status: u16,
    /// Whether the whole answer arrived.
    pub(crate) complete: bool,
    /// Number of a stream's tokens that arrived.
    pub(crate) received: u64,
    /// Generation id.
    pub(crate) generation: Option<Box<str>>,
    /// The cost that the answer reported.
    pub(crate) told: Option<NanoUsd>,
    /// The limit that is used up, if the request was refused because of it.
    pub(crate) used_up: Option<UsedUp>,
    /// The beginning of an answer that is neither a success nor a refusal.
    pub(crate) failure: Option<Box<str>>,
}

/// An HTTP/1.1 connection.
pub(crate) struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    /// Opens a connection; `None` if no server accepts it.
    pub(crate) async fn open(address: SocketAddr) -> Option<Self> {
        let stream = tokio::time::timeout(CONNECTED, TcpStream::connect(address)).await.ok()?.ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Self { stream, answer: Vec::with_capacity(READ) })
    }

    /// Sends a request and reads the answer. Returns what the client received, and whether the connection can be used
    /// again.
    pub(crate) async fn exchange(&mut self, ask: &Ask, secret: &str) -> (Got, bool) {
        self.answer.clear();
        // If this fails, the answer shows what the server said before it closed the connection.
        let _ = self.stream.write_all(&ask.bytes(secret)).await;
        let deadline = (Instant::now() + GIVEN_UP).into();
        let mut whole = false;
        loop {
            if ask.leaves_after.is_some_and(|bytes| self.answer.len() >= bytes) {
                break;
            }
            self.answer.reserve(READ);
            match timeout_at(deadline, self.stream.read_buf(&mut self.answer)).await {
                Ok(Ok(1..)) => {}
                Ok(Ok(0) | Err(_)) | Err(_) => break,
            }
            if is_whole(&self.answer) {
                whole = true;
                break;
            }
        }
        let got = read(&self.answer, ask, whole);
        (got, whole && !says_close(&self.answer))
    }
}

/// Reads an answer from its bytes. `whole` says whether it arrived to its end.
fn read(answer: &[u8], ask: &Ask, whole: bool) -> Got {
    let Some(end) = memmem::find(answer, b"\r\n\r\n") else { return Got::default() };
    let (head, body) = (&answer[..end], &answer[end..]);
    let status = head.get(9..12).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0);
    let generation = header(head, "x-generation-id").map(Into::into);
    let ended = match (ask.streamed, ask.dialect) {
        (false, _) => true,
        (true, Dialect::Chat) => has(body, b"data: [DONE]"),
        (true, Dialect::Responses) => {
            has(body, b"event: response.completed") || has(body, b"event: response.incomplete")
        }
        (true, Dialect::Messages) => has(body, b"event: message_stop"),
    };
    let complete = whole && status == 200 && ended;
    let token: &[u8] = match ask.dialect {
        Dialect::Chat => b"\"content\":\" ",
        Dialect::Responses => b"\"delta\":\" ",
        Dialect::Messages => b"\"text\":\" ",
    };
    let is_stream = ask.streamed && status == 200;
    Got {
        status,
        complete,
        received: if is_stream { memmem::find_iter(body, token).count() as u64 } else { 0 },
        generation,
        told: complete.then(|| cost_in(body)).flatten(),
        used_up: (status == 402).then(|| match (has(body, b"credit"), has(body, b"group")) {
            (true, _) => UsedUp::Credit,
            (false, true) => UsedUp::Group,
            (false, false) => UsedUp::Key,
        }),
        failure: (!matches!(status, 0 | 200 | 401 | 402 | 429))
            .then(|| String::from_utf8_lossy(&body[..body.len().min(400)]).into_owned().into()),
    }
}

fn has(bytes: &[u8], text: &[u8]) -> bool {
    memmem::find(bytes, text).is_some()
}

fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let (found, value) = line.split_at_checked(name.len() + 1)?;
        let is_it = found.ends_with(b":") && found[..name.len()].eq_ignore_ascii_case(name.as_bytes());
        is_it.then(|| std::str::from_utf8(value).ok()).flatten().map(str::trim)
    })
}

fn says_close(answer: &[u8]) -> bool {
    let end = memmem::find(answer, b"\r\n\r\n").unwrap_or(0);
    header(&answer[..end], "connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
}

/// Returns the last cost that an answer reports.
fn cost_in(body: &[u8]) -> Option<NanoUsd> {
    let start = memmem::rfind(body, b"\"cost\":")? + b"\"cost\":".len();
    let rest = &body[start..];
    let end = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b' ' | b'\r' | b'\n'))?;
    NanoUsd::parse(std::str::from_utf8(&rest[..end]).ok()?).ok()
}

/// Returns whether a response has arrived completely.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = memmem::find(answer, b"\r\n\r\n") else { return false };
    let (head, body) = (&answer[..end], &answer[end + 4..]);
    match header(head, "content-length").and_then(|length| length.parse::<usize>().ok()) {
        Some(length) => body.len() >= length,
        None => body == b"0\r\n\r\n" || body.ends_with(b"\r\n0\r\n\r\n"),
    }
}
