//! Random and mutated requests over plain connections: each gets a valid answer, nothing hangs, and no hold remains.

use std::{env, time::Duration};

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tests::harness::{ApiKey, PATIENCE, Stack, usd};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use request::{Ending, Keys, Sending};
use rng::Rng;

mod body;
mod request;
mod rng;

/// Number of requests, unless `FAREGATE_FUZZ_REQUESTS` sets it. `FAREGATE_FUZZ_SEED` repeats a run.
const REQUESTS: u64 = 2_000;
/// Number of requests per installation: more keys and records would only make it slower.
const ROUND: u64 = 2_000;
/// Number of concurrent connections.
const AT_ONCE: usize = 24;
/// Spending limit of the fuzzed keys, in USD.
const LIMIT: &str = "9";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_comes_is_answered_and_nothing_is_held_for_good() {
    let setting = |name, default| env::var(name).map_or(default, |text| text.parse().unwrap());
    let (requests, seed) = (setting("FAREGATE_FUZZ_REQUESTS", REQUESTS), setting("FAREGATE_FUZZ_SEED", 1));
    for first in (0..requests).step_by(usize::try_from(ROUND).unwrap()) {
        round(seed, first..requests.min(first + ROUND)).await;
    }
}

/// Sends a range of requests to an installation of their own. Each has its own seed, so that it can be repeated alone.
async fn round(seed: u64, numbers: std::ops::Range<u64>) {
    let stack = Stack::start().await;
    stack.others_spend();
    let keys = keys(&stack).await;
    let base = stack.server().public().trim_start_matches("http://").to_owned();
    let (mut answered, mut wanted) = (0, 0);
    let mut all = stream::iter(numbers)
        .map(|number| {
            let sending = Sending::roll(&mut Rng::new(seed, number), &keys);
            let base = &base;
            async move {
                let listens = sending.ending == Ending::Listen;
                let answer = timeout(PATIENCE, send(base, &sending)).await;
                let answer = answer.unwrap_or_else(|_| panic!("{seed}/{number} hangs: {sending}"));
                assert!(!listens || !answer.is_empty(), "{seed}/{number} is not answered: {sending}");
                if let Err(wrong) = judge(&sending, &answer) {
                    panic!("{seed}/{number} {wrong}: {sending}\n{}", String::from_utf8_lossy(&answer));
                }
                (listens, answer.starts_with(b"HTTP/1.1 200"))
            }
        })
        .buffer_unordered(AT_ONCE);
    while let Some((listens, good)) = all.next().await {
        wanted += u64::from(listens);
        answered += u64::from(good);
    }
    drop(all);
    assert!(
        wanted > 0 && answered > wanted / 20,
        "hardly anything gets past the door: {answered} of {wanted}"
    );
    let health = stack.http.get(&stack.url("/health")).await;
    assert_eq!(health.status, 200, "{health}");
}

/// Makes valid keys, and keys that are refused for one reason each.
async fn keys(stack: &Stack) -> Keys {
    let plain = |key: ApiKey| key.secret;
    let victim = stack.key().await;
    let revoked = stack.key().await;
    stack.revoke(&revoked).await;
    Keys {
        good: plain(stack.key_limited(usd(LIMIT)).await),
        refused: vec![
            plain(revoked),
            plain(stack.key_with(json!({"limit": 0})).await),
            plain(stack.key_with(json!({"expires_at": "2020-01-01T00:00:00Z"})).await),
            plain(stack.key_with(json!({"limit": 0.0001})).await),
        ],
        management: stack.account.management_key.clone(),
        victim: victim.id,
    }
}

/// Sends a request as its `Sending` demands, and returns the bytes received before the sender left.
async fn send(base: &str, sending: &Sending) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut connection = TcpStream::connect(base).await.unwrap();
    connection.set_nodelay(true).unwrap();
    let bytes = match sending.ending {
        Ending::Cut { after } => &sending.bytes[..after.min(sending.bytes.len())],
        Ending::Listen | Ending::Glance { .. } | Ending::Leave { .. } => &sending.bytes,
    };
    for (number, piece) in bytes.chunks(sending.piece).enumerate() {
        if number > 0 && sending.pause_ms > 0 {
            sleep(Duration::from_millis(sending.pause_ms)).await;
        }
        // The server may have answered and closed before it read everything; its answer is still to be read.
        if connection.write_all(piece).await.is_err() {
            break;
        }
    }
    let mut read = async |answer: &mut Vec<u8>, most: u64| {
        // A connection reset can only follow the answer.
        let _ = (&mut connection).take(most).read_to_end(answer).await;
    };
    match sending.ending {
        Ending::Listen => read(&mut answer, u64::MAX).await,
        Ending::Leave { after } => read(&mut answer, after).await,
        Ending::Glance { ms } => {
            // The bytes received before the timeout are kept.
            let _ = timeout(Duration::from_millis(ms), read(&mut answer, u64::MAX)).await;
        }
        Ending::Cut { .. } => {}
    }
    answer
}

/// Checks an answer; an error describes its fault.
fn judge(sending: &Sending, answer: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(()) };
    let status: u16 = head.get(9..12).and_then(|text| text.parse().ok()).ok_or("is no HTTP")?;
    let code = serde_json::from_str::<Value>(body).map(|body| body["error"]["code"].clone());
    let whole = sending.ending == Ending::Listen;
    match status {
        500.. => {
            let theirs =
                code.is_ok_and(|code| code.as_str().is_some_and(|code| code.starts_with("upstream_")));
            if sending.blames_upstream && (theirs || !whole) {
                Ok(())
            } else {
                Err("ends in an error of ours".into())
            }
        }
        // Errors of the HTTP parser have no body, and neither have answers to HEAD.
        400.. if whole && !body.is_empty() && !code.is_ok_and(|code| code.is_string()) => {
            Err("is refused without an error of the contract".into())
        }
        200 if whole && head.contains("text/event-stream") => {
            let ended = body.contains("data: [DONE]") != body.contains("data: {\"error\":");
            if ended { Ok(()) } else { Err("ends neither well nor in an error".into()) }
        }
        _ => Ok(()),
    }
}
