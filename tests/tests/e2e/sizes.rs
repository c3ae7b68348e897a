//! The longest prompts, and as many of them as fit into the memory budget.

use std::time::Duration;

use serde_json::{Value, json};
use tests::{
    harness::{ApiKey, Call, Options, PATIENCE, Server, Settings, Stack, cost_of},
    upstream::{Fault, Script, text},
};
use tokio::time::timeout;

/// Limits of one mebibyte for a prompt and two for all prompts together.
fn little_room() -> Vec<(&'static str, String)> {
    vec![("FAREGATE_MAX_BODY_MIB", "1".to_owned()), ("FAREGATE_MAX_PROMPTS_MIB", "2".to_owned())]
}

/// A request with a prompt of almost a mebibyte.
fn long(stack: &Stack, key: &ApiKey, script: Script) -> Call {
    let mut call = stack.call(key, script);
    let messages = call.body["messages"].as_array_mut().unwrap();
    messages.insert(0, json!({"role": "system", "content": "x".repeat(900 << 10)}));
    call
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_prompt_that_exceeds_the_budget_is_answered_503_with_retry_after() {
    let stack = Stack::with(Options { env: little_room(), ..Options::default() }).await;
    let key = stack.key().await;
    let waiting = long(&stack, &key, Script::default().fault(Fault::StallBeforeHead));
    let tag = waiting.tag.clone();
    let waiting = tokio::spawn(waiting.try_stream());
    stack.upstream.wait_for(&tag, "come", |_| true).await;
    let refused = long(&stack, &key, Script::default()).send().await;
    assert_eq!(refused.assert_error(503, "overloaded").header("connection"), "close");
    let short = stack.call(&key, Script::tokens(12, 5)).send().await;
    assert_eq!(short.status, 200, "{short}");
    waiting.abort();
    stack.upstream.wait_for(&tag, "be let go", |generation| generation.ended.is_some()).await;
    stack.released(PATIENCE).await;
    assert_eq!(long(&stack, &key, Script::tokens(12, 5)).send().await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn streams_keep_no_prompt_that_need_not_be_counted() {
    for kind in ["openai", "vllm"] {
        let stack = Stack::with(Options { kind, env: little_room(), ..Options::default() }).await;
        let key = stack.key().await;
        let mut streams = Vec::new();
        for _ in 0..4 {
            let script = Script::tokens(12, 9).fault(Fault::Stall { after: 1 });
            let call = long(&stack, &key, script).costing(cost_of(12, 1), cost_of(300_000, 9));
            let mut stream = timeout(Duration::from_secs(10), call.stream()).await.expect("there is room");
            stream.read_tokens(1).await;
            streams.push(stream);
        }
        drop(streams);
        stack.released(PATIENCE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_prompt_of_a_million_tokens_passes_unchanged() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let page = text(1_000);
    let mut call = stack.call(&key, Script::tokens(1_000_000, 5)).with("max_tokens", 5);
    let told = call.body["messages"][0].take();
    let turn =
        |n: usize| json!({"role": if n.is_multiple_of(2) { "user" } else { "assistant" }, "content": page});
    let image = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", "QUJD".repeat(1 << 20))}});
    let mut messages: Vec<Value> = (0..1_300).map(turn).collect();
    messages.extend([json!({"role": "user", "content": [image]}), told]);
    call.body["messages"] = messages.into();
    let (tag, sent) = (call.tag.clone(), call.body["messages"].clone());
    assert!(sent.to_string().len() > 10 << 20);
    let answer = call.send().await;
    assert_eq!((answer.status, answer.cost()), (200, cost_of(1_000_000, 5)), "{answer}");
    assert!(stack.upstream.tagged(&tag)[0].json()["messages"] == sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_bound_that_the_largest_body_cannot_keep_is_refused_at_start() {
    let data = tempfile::TempDir::new().unwrap();
    let env = vec![("FAREGATE_MAX_PROMPTS_MIB", "127".to_owned())];
    let log = Server::refuses(&Settings::all_in_one(data.path(), env)).await;
    assert!(
        log.contains("FAREGATE_MAX_PROMPTS_MIB: 127 MiB is less than twice FAREGATE_MAX_BODY_MIB"),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_whole_answer_of_80_mib_arrives_and_is_billed() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let script = Script { padding_mib: 80, ..Script::tokens(12, 40) };
    let answer = stack.call(&key, script).send().await;
    assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 40)), "{answer}");
    assert_eq!(stack.used(&key).await, stack.cost_of_served(&key));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_whole_answer_that_is_too_large_to_be_given_out_is_billed_by_the_usage_at_its_end() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let script = Script { padding_mib: 300, ..Script::tokens(12, 40) };
    let answer = stack.call(&key, script).send().await;
    assert_eq!(answer.assert_error(502, "upstream_error").header("x-should-retry"), "false");
    assert_eq!(stack.used(&key).await, stack.cost_of_served(&key), "the generated tokens are billed");
    assert_eq!(stack.used(&key).await, cost_of(12, 40));
}
