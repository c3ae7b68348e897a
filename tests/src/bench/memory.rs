//! What requests weigh: a long prompt beside its own size, and a thousand slow streams.

use std::{fmt, net::SocketAddr};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::{
    installation::{Installation, Setup},
    upstream,
};
use crate::{
    harness::{Answer, FLASH, Http},
    upstream::{Script, text},
};

const MIB: usize = 1 << 20;
/// Bodies that are measured, in MiB of text and of images: a million tokens, the same with pictures, and the most there is.
const BODIES: [(usize, usize); 3] = [(6, 0), (6, 16), (6, 57)];
/// How often each is sent; the most that was seen is told.
const TIMES: usize = 3;
/// MiB of one image, as base64.
const IMAGE: usize = 4;
/// Bytes of the prompts of streams.
const PROMPTS: [usize; 2] = [1 << 10, 64 << 10];
/// Milliseconds between two tokens of a slow stream.
const SLOW_MS: u64 = 1_000;
/// Tokens of a slow stream: more than it lives to see.
const ENDLESS: u64 = 10_000;
/// Streams that begin at once: all of them would measure the crowd at the door.
const AT_ONCE: usize = 50;

/// What was measured, as two lists.
pub struct Report {
    bodies: Vec<Body>,
    streams: Vec<Streams>,
}

/// One body: its bytes, and those that the gateway grew by while it passed.
struct Body {
    sent: usize,
    grown: usize,
}

/// Open streams.
struct Streams {
    open: usize,
    prompt: usize,
    /// Bytes that the gateway grew by.
    grown: usize,
}

/// Measures a gateway in a process of its own, with so many streams open at once.
pub async fn run(streams: usize) -> Report {
    let upstream = upstream().await;
    let installation = Installation::start(Setup::Services, upstream.address).await;
    let gateway = installation.parts().into_iter().find(|part| part.name == "gateway");
    let gateway = Process(gateway.expect("there is one").pid);
    let client = Client { address: installation.address(), key: installation.key.clone(), http: Http::new() };
    client.whole(body(1, 0)).await;
    let mut report = Report { bodies: Vec::new(), streams: Vec::new() };
    for (text, images) in BODIES {
        let mut measured = Body { sent: body(text, images).len(), grown: 0 };
        for _ in 0..TIMES {
            let before = gateway.begin();
            client.whole(body(text, images)).await;
            measured.grown = measured.grown.max(gateway.most().saturating_sub(before));
        }
        report.bodies.push(measured);
    }
    for prompt in PROMPTS {
        let before = gateway.begin();
        let open = client.streams(streams, prompt).await;
        let grown = gateway.now().saturating_sub(before);
        report.streams.push(Streams { open: open.len(), prompt, grown });
    }
    report
}

/// A process whose memory is looked at.
struct Process(u32);

impl Process {
    /// Forgets the most that it had so far; what it has now, in bytes.
    fn begin(&self) -> usize {
        // "5" resets the peak: see proc(5).
        std::fs::write(format!("/proc/{}/clear_refs", self.0), "5")
            .expect("the peak of a child can be reset");
        self.now()
    }

    fn now(&self) -> usize {
        self.status("VmRSS:")
    }

    fn most(&self) -> usize {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).expect("it runs, on Linux");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux tells its memory");
        let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("in kB");
        kib << 10
    }
}

struct Client {
    address: SocketAddr,
    key: String,
    http: Http,
}

impl Client {
    async fn whole(&self, body: Bytes) {
        let answer = Answer::read(self.send(body).await).await.expect("there is an answer");
        assert_eq!(answer.status, 200, "{answer}");
    }

    /// Opens so many streams, and reads the first words of each.
    async fn streams(&self, count: usize, prompt: usize) -> Vec<Incoming> {
        let mut open = Vec::new();
        while open.len() < count {
            let more = AT_ONCE.min(count - open.len());
            open.extend(join_all((0..more).map(|_| self.stream(prompt))).await);
        }
        open
    }

    async fn stream(&self, prompt: usize) -> Incoming {
        let script = Script::tokens(12, ENDLESS).pace(SLOW_MS).message();
        let messages =
            json!([{"role": "system", "content": "x".repeat(prompt)}, {"role": "user", "content": script}]);
        let body = json!({"model": FLASH, "messages": messages, "stream": true});
        let mut stream = self.send(Bytes::from(body.to_string())).await.into_body();
        stream.frame().await.expect("it has begun").expect("it goes on");
        stream
    }

    async fn send(&self, body: Bytes) -> http::Response<Incoming> {
        let request = Request::post(format!("http://{}/v1/chat/completions", self.address))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.key))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .unwrap();
        let response = self.http.open(request).await.expect("there is a response");
        assert_eq!(response.status(), 200);
        response
    }
}

/// A request of so many MiB of text, in messages as long as a page, and of images in one more.
fn body(mib_of_text: usize, mib_of_images: usize) -> Bytes {
    let page = text(500);
    let turn =
        |n: usize| json!({"role": if n.is_multiple_of(2) { "user" } else { "assistant" }, "content": page});
    let mut messages: Vec<Value> = (0..mib_of_text * MIB / page.len()).map(turn).collect();
    let image = |mib: usize| {
        let url = format!("data:image/png;base64,{}", "QUJD".repeat(mib * MIB / 4));
        json!({"type": "image_url", "image_url": {"url": url}})
    };
    let images: Vec<Value> =
        (0..mib_of_images).step_by(IMAGE).map(|at| image(IMAGE.min(mib_of_images - at))).collect();
    if !images.is_empty() {
        messages.push(json!({"role": "user", "content": images}));
    }
    messages.push(json!({"role": "user", "content": Script::tokens(1_000_000, 5).message()}));
    Bytes::from(json!({"model": FLASH, "messages": messages, "max_tokens": 16}).to_string())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
        let (mib, kib) = (|bytes: usize| bytes as f64 / MIB as f64, |bytes: usize| bytes as f64 / 1024.0);
        writeln!(
            f,
            "resident memory of a gateway in a process of its own\n\na whole request, {TIMES} times each"
        )?;
        for Body { sent, grown } in &self.bodies {
            let (sent, grown) = (mib(*sent), mib(*grown));
            writeln!(
                f,
                "  a body of {sent:>5.1} MiB   at most {grown:>6.1} MiB more   {:>4.2} of its size",
                grown / sent
            )?;
        }
        writeln!(f, "\nopen streams, a token each {SLOW_MS} ms")?;
        for Streams { open, prompt, grown } in &self.streams {
            let each = kib(*grown) / kib(*open * 1024);
            writeln!(
                f,
                "  {open} with prompts of {:>4.0} KiB   {:>6.1} MiB more   {each:>5.1} KiB each",
                kib(*prompt),
                mib(*grown)
            )?;
        }
        Ok(())
    }
}
