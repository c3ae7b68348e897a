//! Clients that stop reading their streams, for a while or for good, while the upstream keeps generating.

use std::time::Duration;

use bench::attack::{silent::address, unread::open_scripted_streams};
use serde_json::json;
use tests::{
    harness::{ApiKey, FLASH, Options, PATIENCE, Stack, cost_of},
    upstream::{Generation, Script},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::sleep,
};

/// Number of tokens that an upstream still generates before it notices that its stream was ended.
const ON_THEIR_WAY: u64 = 20;

/// Returns a script whose upstream generates at a pace of its own, however fast its output is read.
fn own_pace(tokens: u64, pace_ms: u64) -> Script {
    Script { own_pace: true, tag: "unread".into(), ..Script::tokens(12, tokens).pace(pace_ms) }
}

/// Starts a stack in which a client counts as gone if it has not read anything for this many seconds.
async fn with_stall(seconds: u32) -> Stack {
    let env = vec![("FAREGATE_CLIENT_STALL_SECONDS", seconds.to_string())];
    Stack::with(Options { env, ..Options::default() }).await
}

async fn unread_for(stack: &Stack, key: &ApiKey, script: &Script, time: Duration) -> Generation {
    stack.others_spend();
    let unread = open_scripted_streams(stack.server().public(), &key.secret, 1, script).await;
    assert_eq!(unread.begun(), 1);
    sleep(time).await;
    drop(unread);
    let ended = stack.upstream.wait_for(&script.tag, "stop", |generation| generation.ended.is_some()).await;
    stack.released(PATIENCE).await;
    ended
}

#[apply(fact)]
async fn a_client_that_takes_nothing_and_leaves_pays_for_what_was_generated_meanwhile() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let served = unread_for(&stack, &key, &own_pace(100_000, 10), Duration::from_secs(4)).await.served;
    assert!(served.completion > 100, "it generated on: {served:?}");
    let used = stack.used(&key).await;
    let least = cost_of(12, served.completion - ON_THEIR_WAY);
    assert!((least..=cost_of(12, served.completion)).contains(&used), "{used}: {served:?}");
}

#[apply(fact)]
async fn a_client_that_takes_nothing_is_generated_for_up_to_its_limit_and_no_further() {
    let stack = Stack::start().await;
    let limit = cost_of(400, 100);
    let key = stack.key_limited(limit).await;
    let served = unread_for(&stack, &key, &own_pace(100_000, 15), Duration::from_secs(8)).await.served;
    assert_eq!(stack.used(&key).await, limit);
    let (least, most) = (limit, limit.checked_add(cost_of(0, ON_THEIR_WAY)).unwrap());
    let cost = cost_of(12, served.completion);
    assert!((least..=most).contains(&cost), "{cost} was generated of {limit}");
}

#[apply(fact)]
async fn a_client_that_pauses_finds_its_stream_whole() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let mut stream = stack.call(&key, Script::tokens(12, 40_000)).stream().await;
    stream.read_tokens(1).await;
    sleep(Duration::from_secs(3)).await;
    let ended = stream.rest().await;
    assert_eq!((ended.assert_done().tokens(), ended.cost()), (40_000, cost_of(12, 40_000)));
}

#[apply(fact)]
async fn a_client_for_which_no_more_is_kept_hears_so_after_what_was_kept() {
    let stack = with_stall(20).await;
    let key = stack.key().await;
    let script = Script { own_pace: true, ..Script::tokens(12, 120_000) };
    let mut stream = stack.call(&key, script).costing(cost_of(12, 1), cost_of(12, 120_000)).stream().await;
    stream.read_tokens(1).await;
    // This is nearly as long as the time after which the gateway considers the client gone.
    sleep(Duration::from_secs(18)).await;
    let ended = stream.rest().await;
    ended.assert_error(503, "overloaded");
    stack.released(PATIENCE).await;
    assert!(stack.used(&key).await >= cost_of(12, ended.tokens() as u64), "what it got is billed");
}

/// Opens a stream over a plain connection. The test can then read it at any pace.
async fn open_plain(stack: &Stack, key: &ApiKey, script: &Script) -> TcpStream {
    let messages = json!([{"role": "user", "content": script.message()}]);
    let body = json!({"model": FLASH, "stream": true, "messages": messages}).to_string();
    let mut plain = TcpStream::connect(address(stack.server().public())).await.unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
        content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        key.secret,
        body.len()
    );
    plain.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    plain
}

#[apply(fact)]
async fn a_client_that_takes_a_little_of_a_large_stream_now_and_then_gets_all_of_it() {
    let stack = with_stall(6).await;
    stack.others_spend();
    let key = stack.key().await;
    let mut plain = open_plain(&stack, &key, &Script::tokens(12, 60_000)).await;
    let mut read = vec![0; 64 << 10];
    // Reads 64 KiB at intervals that are an eighth of the time after which a client that does not read is considered
    // gone.
    for _ in 0..10 {
        plain.read_exact(&mut read).await.unwrap();
        sleep(Duration::from_millis(800)).await;
    }
    plain.read_to_end(&mut read).await.unwrap();
    assert!(read.len() > 10 << 20, "{}", read.len());
    let end = String::from_utf8_lossy(&read[read.len() - 200..]);
    assert!(end.contains("data: [DONE]"), "{end}");
    assert_eq!(stack.used(&key).await, cost_of(12, 60_000));
}

#[apply(fact)]
async fn a_client_that_takes_nothing_of_a_large_stream_for_its_time_loses_the_rest() {
    let stack = with_stall(6).await;
    stack.others_spend();
    let key = stack.key().await;
    let script = Script { tag: "lost".into(), ..Script::tokens(12, 60_000) };
    let mut plain = open_plain(&stack, &key, &script).await;
    let mut read = vec![0; 64 << 10];
    plain.read_exact(&mut read).await.unwrap();
    stack.upstream.wait_for(&script.tag, "stop", |generation| generation.ended.is_some()).await;
    stack.released(PATIENCE).await;
    // The buffers of both systems still contain a part of the stream. After that part, the connection breaks off.
    let cut = plain.read_to_end(&mut read).await;
    assert!(cut.is_err() || !String::from_utf8_lossy(&read).contains("data: [DONE]"));
    assert!(read.len() < 6 << 20, "{}", read.len());
    assert!(stack.used(&key).await < cost_of(12, 60_000), "the tokens that were never made cost nothing");
}
