//! Attacks on rate limits: a customer tries to save up tokens with requests that wait.

use std::time::{Duration, Instant};

use serde_json::json;
use tests::{
    harness::{ApiKey, LOOK_EVERY, Stack},
    upstream::Script,
};
use tokio::{task::JoinHandle, time::sleep};

use crate::attack::row::Row;

/// Tokens per minute of the customer's key.
const PER_MINUTE: usize = 20_000;
/// Tokens in each prompt, and also its bytes, since a prompt's upper bound in tokens is at least its length.
const PROMPT: usize = 1_000;
/// Pauses in which requests wait while the rate refills.
const REFILLS: [Duration; 3] = [Duration::from_secs(5); 3];
/// Time within which a gateway releases the hold of a client that left.
const RELEASED: Duration = Duration::from_millis(500);
/// When the upstream answers waiting requests: only after the attack.
const ANSWERED_MS: u64 = 60_000;

/// Opens waiting requests whenever the rate has refilled, and later leaves them, one group after the other. After each
/// group, only as many new requests may begin as the rate allows.
pub(crate) async fn saved_tokens(stack: &Stack) -> Row {
    let key = stack.key_with(json!({"tokens_per_minute": PER_MINUTE})).await;
    let mut waiting = vec![begin_all(stack, &key).await];
    for refill in REFILLS {
        sleep(refill).await;
        waiting.push(begin_all(stack, &key).await);
    }
    let (left_at, mut begun) = (Instant::now(), Vec::new());
    for group in waiting {
        group.iter().for_each(JoinHandle::abort);
        sleep(RELEASED).await;
        begun.extend(begin_all(stack, &key).await);
    }
    begun.iter().for_each(JoinHandle::abort);
    let (took, used) = (left_at.elapsed(), begun.len() * PROMPT);
    let most = PER_MINUTE + PER_MINUTE * usize::try_from(took.as_millis()).expect("it is short") / 60_000;
    Row {
        name: format!("{PER_MINUTE} tokens per minute, saved up by requests that wait"),
        expected: format!("{most} in {took:.1?}"),
        seen: format!("{used}"),
        held: (1..=most).contains(&used),
    }
}

/// Begins requests that wait, until the rate refuses one.
async fn begin_all(stack: &Stack, key: &ApiKey) -> Vec<JoinHandle<()>> {
    let mut begun = Vec::new();
    loop {
        let script = Script { head_after_ms: ANSWERED_MS, ..Script::tokens(PROMPT as u64, 1) };
        let mut call = stack.call(key, script).with("max_tokens", 1);
        let long = json!({"role": "user", "content": "x".repeat(PROMPT)});
        call.body["messages"].as_array_mut().expect("a call has messages").insert(0, long);
        let before = stack.upstream.generations().len();
        let asked = tokio::spawn(async move { drop(call.try_stream().await) });
        while stack.upstream.generations().len() == before {
            if asked.is_finished() {
                return begun;
            }
            sleep(LOOK_EVERY).await;
        }
        begun.push(asked);
    }
}
