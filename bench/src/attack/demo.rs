//! Attacks on the demo model's own port, which checks no credentials.

use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use http_body_util::Full;

use super::{
    bodies::{Body, growth},
    ports,
    row::Row,
};
use crate::measure::process::{Process, memory, peak_memory};
use tests::harness::Http;

/// Number of prompts sent at once, the size of each, and the memory that the model may use for all of them.
const PROMPTS: usize = 12;
const PROMPT: usize = 60 << 20;
const MEMORY: u64 = 300 << 20;
/// Memory that stalled bodies may use.
const STALLED: u64 = 192 << 20;

/// Runs these attacks against a model in a separate process.
pub(super) async fn rows((connections, each): (usize, usize)) -> Vec<Row> {
    let model = Process::start("local-model", &["--listen", "127.0.0.1:0"]).await;
    let mut rows = ports::of_port("local-model", model.address).await;
    let (meanwhile, afterwards, sent) =
        growth(model.pid(), model.address, (connections, each), Body::Chat).await;
    rows.push(Row {
        name: format!("{connections} × {each} stalled bodies, {} MiB, port local-model", sent >> 20),
        expected: format!("{} MiB more", STALLED >> 20),
        seen: format!("{} MiB more, then {}", meanwhile >> 20, afterwards >> 20),
        held: meanwhile <= STALLED,
    });
    let answered = chat(&model, "Hi".into()).await;
    rows.push(Row {
        name: "a request after them".into(),
        expected: "answered".into(),
        seen: answered.to_string(),
        held: answered == 200,
    });
    let before = memory(model.pid());
    let prompt = Bytes::from(vec![b'x'; PROMPT]);
    let prompt = String::from_utf8(prompt.to_vec()).expect("it is text");
    let refused = join_all((0..PROMPTS).map(|_| chat(&model, prompt.clone()))).await;
    let peak = peak_memory(model.pid());
    rows.push(Row {
        name: format!("{PROMPTS} prompts of {} MiB to the demo model", PROMPT >> 20),
        expected: format!("refused, below {} MiB", MEMORY >> 20),
        seen: format!(
            "{:?}, {} MiB ({} before)",
            refused.iter().max().unwrap_or(&0),
            peak >> 20,
            before >> 20
        ),
        held: peak <= MEMORY && refused.iter().all(|status| *status == 400),
    });
    rows
}

/// Returns the status of a chat request with this prompt.
async fn chat(model: &Process, prompt: String) -> u16 {
    let body =
        format!(r#"{{"model":"demo","max_tokens":4,"messages":[{{"role":"user","content":"{prompt}"}}]}}"#);
    let request = Request::post(format!("http://{}/v1/chat/completions", model.address))
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    Http::new().send(request).await.status
}
