//! Requests that are random or damaged, sent as bytes on plain connections, and the rules that every answer must
//! follow.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::harness::{Account, ApiKey, Stack, usd};

pub use request::{Ending, Keys, Sending};
pub use rng::Rng;

mod body;
mod request;
mod rng;

/// Spending limit in USD of the keys that the garbage carries.
const LIMIT: &str = "9";

impl Keys {
    /// Creates valid keys, and keys that are refused. Each of the refused keys is refused for a different reason.
    pub async fn make(stack: &Stack, account: &Account) -> Self {
        let make = async |body: Value| stack.key_of(account, body).await;
        let plain = |key: ApiKey| key.secret;
        let (victim, revoked) = (make(json!({})).await, make(json!({})).await);
        stack.revoke(&revoked).await;
        let limit: Value = serde_json::from_str(&usd(LIMIT).to_string()).unwrap();
        Self {
            good: plain(make(json!({ "limit": limit })).await),
            refused: vec![
                plain(revoked),
                plain(make(json!({"limit": 0})).await),
                plain(make(json!({"expires_at": "2020-01-01T00:00:00Z"})).await),
                plain(make(json!({"limit": 0.0001})).await),
            ],
            management: account.management_key.clone(),
            victim: victim.id,
        }
    }
}

/// Sends a request to this address as `Sending` describes. Returns the bytes that arrived before the sender left. If no
/// server listens there, returns an error.
pub async fn send(base: &str, sending: &Sending) -> std::io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut connection = TcpStream::connect(base).await?;
    connection.set_nodelay(true)?;
    let bytes = match sending.ending {
        Ending::Cut { after } => &sending.bytes[..after.min(sending.bytes.len())],
        Ending::Listen | Ending::Glance { .. } | Ending::Leave { .. } => &sending.bytes,
    };
    for (number, piece) in bytes.chunks(sending.piece).enumerate() {
        if number > 0 && sending.pause_ms > 0 {
            sleep(Duration::from_millis(sending.pause_ms)).await;
        }
        // The server may have answered and closed the connection before it read everything. Its answer can still be
        // read.
        if connection.write_all(piece).await.is_err() {
            break;
        }
    }
    let mut read = async |answer: &mut Vec<u8>, most: u64| {
        // If the connection is reset, that happens only after the answer.
        let _ = (&mut connection).take(most).read_to_end(answer).await;
    };
    match sending.ending {
        Ending::Listen => read(&mut answer, u64::MAX).await,
        Ending::Leave { after } => read(&mut answer, after).await,
        Ending::Glance { ms } => {
            // If the time is over, the bytes that have arrived are kept.
            let _ = timeout(Duration::from_millis(ms), read(&mut answer, u64::MAX)).await;
        }
        Ending::Cut { .. } => {}
    }
    Ok(answer)
}

/// Checks an answer. The error says what is wrong.
pub fn judge(sending: &Sending, answer: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(()) };
    let status: u16 = head.get(9..12).and_then(|text| text.parse().ok()).ok_or("is not HTTP")?;
    let code = serde_json::from_str::<Value>(body).map(|body| body["error"]["code"].clone());
    let whole = sending.ending == Ending::Listen;
    match status {
        500.. => {
            let theirs =
                code.is_ok_and(|code| code.as_str().is_some_and(|code| code.starts_with("upstream_")));
            if sending.blames_upstream && (theirs || !whole) {
                Ok(())
            } else {
                Err("ends in an internal error".into())
            }
        }
        // Errors that the HTTP parser finds have no body, and neither have answers to HEAD.
        400.. if whole && !body.is_empty() && !code.is_ok_and(|code| code.is_string()) => {
            Err("is refused without a documented error".into())
        }
        200 if whole && head.contains("text/event-stream") => {
            let ended = body.contains("data: [DONE]") != body.contains("data: {\"error\":");
            if ended { Ok(()) } else { Err("ends neither well nor in an error".into()) }
        }
        _ => Ok(()),
    }
}
