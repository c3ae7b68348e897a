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
/// Number of tokens in each prompt. It is also the length of its text in bytes, because the upper bound of a prompt's
/// tokens is at least its length.
const PROMPT: usize = 1_000;
/// Pauses during which the opened requests wait and the rate refills.
const REFILLS: [Duration; 3] = [Duration::from_secs(5); 3];
/// Time within which a gateway releases the hold of a client that has left.
const RELEASED: Duration = Duration::from_millis(500);
/// Time after which the upstream answers a request. It is so long that the attack ends first.
const ANSWERED_MS: u64 = 60_000;

/// Opens a group of waiting requests each time the rate has refilled, and later drops the groups one after the other.
/// After each drop, opens as many new requests as the gateway admits. Together, these may be no more than the rate
/// allows.
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

/// Opens requests that wait, until the rate limit refuses one.
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
