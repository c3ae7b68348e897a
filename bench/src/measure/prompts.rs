//! Measures the memory that long prompts need: a gateway's peak, compared with the size of the body that passes through
//! it.

use std::{fmt, net::SocketAddr};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use serde_json::{Value, json};

use super::{
    installation::{Installation, Setup},
    process::{forget_peak, memory, peak_memory},
    system::upstream,
};
use tests::{
    harness::{Answer, FLASH, Http},
    upstream::{Script, text},
};

const MIB: usize = 1 << 20;
/// Bodies, in MiB of text and of images: a million tokens, the same with pictures, and the largest allowed body.
const BODIES: [(usize, usize); 3] = [(6, 0), (6, 16), (6, 57)];
/// Number of times that each body is sent; the highest peak is reported.
const TIMES: usize = 3;
/// Size of one image in MiB, as base64.
const IMAGE: usize = 4;

/// For each body: its size in bytes, and how much the gateway's memory grew while it passed.
pub struct Report(Vec<(u64, u64)>);

/// Measures a gateway in a separate process.
pub async fn run() -> Report {
    let upstream = upstream().await;
    let installation = Installation::start(Setup::SERVICES, upstream.address).await;
    let (pid, address) = (installation.parts()[0].pid, installation.addresses()[0]);
    let (http, key) = (Http::new(), installation.key.clone());
    send(&http, address, &key, body(1, 0)).await;
    let mut report = Report(Vec::new());
    for (text, images) in BODIES {
        let (sent, mut grown) = (body(text, images).len() as u64, 0);
        for _ in 0..TIMES {
            forget_peak(pid);
            let before = memory(pid);
            send(&http, address, &key, body(text, images)).await;
            grown = grown.max(peak_memory(pid).saturating_sub(before));
        }
        report.0.push((sent, grown));
    }
    report
}

async fn send(http: &Http, address: SocketAddr, key: &str, body: Bytes) {
    let request = Request::post(format!("http://{address}/v1/chat/completions"))
        .header(header::AUTHORIZATION, format!("Bearer {key}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .unwrap();
    let response = http.open(request).await.expect("there is a response");
    let answer = Answer::read(response).await.expect("there is an answer");
    assert_eq!(answer.status, 200, "{answer}");
}

/// Makes a request with this many MiB of text in page-sized messages, and this many MiB of images in one further
/// message.
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
        let mib = |bytes: u64| bytes as f64 / MIB as f64;
        writeln!(f, "resident memory of a gateway while a whole request passes, {TIMES} times each")?;
        for (sent, grown) in &self.0 {
            let (sent, grown) = (mib(*sent), mib(*grown));
            let ratio = grown / sent;
            writeln!(
                f,
                "  a body of {sent:>5.1} MiB   at most {grown:>6.1} MiB more   {ratio:>4.2} of its size"
            )?;
        }
        Ok(())
    }
}
