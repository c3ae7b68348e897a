//! Several upstreams of one model: which one is chosen, and how a failed one is avoided and used again.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{
    harness::{ApiKey, Models, Options, PATIENCE, Stack, cost_of},
    upstream::{Fault, Script, Shape, Upstream},
};
use tokio::time::sleep;

/// Pause between two requests while waiting for an upstream to be tried again.
const TRY_EVERY: Duration = Duration::from_millis(100);

/// Starts a stack with a second upstream, listed before its own.
async fn two() -> (Stack, Upstream) {
    let second = Upstream::start();
    let models = Models::Also(second.url());
    (Stack::with(Options { models, ..Options::default() }).await, second)
}

/// Sends a request that leaves the script to the upstream.
async fn ask(stack: &Stack, key: &ApiKey) -> u16 {
    let mut call = stack.call(key, Script::default());
    call.body["messages"] = json!([{"role": "user", "content": "Hi"}]);
    call.send().await.status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_conversation_comes_back_to_the_upstream_that_has_read_it() {
    const CONVERSATIONS: usize = 12;
    const TURNS: usize = 4;
    let (stack, second) = two().await;
    let key = stack.key().await;
    let told = json!(Script { caches: true, ..Script::default() }.message());
    let mut conversations: Vec<Vec<Value>> = (0..CONVERSATIONS)
        .map(|n| {
            let system = format!("You are number {n}. ") + &"Be brief and precise. ".repeat(60);
            vec![json!({"role": "system", "content": system})]
        })
        .collect();
    let (mut prompt, mut cached) = (0, 0);
    for _ in 0..TURNS {
        for conversation in &mut conversations {
            conversation.push(json!({"role": "user", "content": told}));
            let mut call = stack.call(&key, Script::default());
            call.body["messages"] = conversation.clone().into();
            let answer = call.send().await.json();
            conversation.push(answer["choices"][0]["message"].clone());
            let usage = &answer["usage"];
            prompt += usage["prompt_tokens"].as_u64().unwrap();
            cached += usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        }
    }
    let served = [stack.upstream.generations().len(), second.generations().len()];
    assert!(
        served.iter().all(|served| served % TURNS == 0 && *served > 0),
        "no conversation is split: {served:?}"
    );
    // Three of four turns can be cached, except for the new messages in each.
    assert!(cached * 100 >= prompt * 65, "{cached} of {prompt}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_conversation_spills_over_rather_than_wait_for_its_upstream() {
    let (stack, second) = two().await;
    let key = stack.key().await;
    let long = json!({"role": "system", "content": "Be brief and precise. ".repeat(100)});
    let mut streams = Vec::new();
    for _ in 0..20 {
        let call = stack.call(&key, Script::tokens(12, 9).fault(Fault::Stall { after: 1 }));
        let mut call = call.costing(cost_of(12, 1), cost_of(12, 1));
        call.body["messages"].as_array_mut().unwrap().insert(0, long.clone());
        streams.push(call.stream().await);
    }
    let (one, other) = (stack.upstream.generations().len(), second.generations().len());
    // Bound of an upstream's share: a quarter above the even share of ten, rounded up.
    assert!(one.max(other) <= 13 && one + other == 20, "{one} {other}");
    for stream in &mut streams {
        stream.read_tokens(1).await;
    }
    drop(streams);
    stack.released(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_upstream_that_fails_is_left_alone_and_comes_back() {
    let (stack, second) = two().await;
    let key = stack.key().await;
    second.set_default(Script::default().fault(Fault::Error { status: 500, shape: Shape::Html }));
    for _ in 0..30 {
        assert_eq!(ask(&stack, &key).await, 200, "another one answers");
    }
    let failures = second.generations().len();
    assert!((3..=5).contains(&failures), "{failures} of 30 requests went to the one that fails");
    second.set_default(Script::default());
    let deadline = Instant::now() + PATIENCE;
    while second.generations().len() < failures + 5 {
        assert_eq!(ask(&stack, &key).await, 200);
        assert!(Instant::now() < deadline, "it does not come back");
        sleep(TRY_EVERY).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_only_upstream_is_asked_however_often_it_failed() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    stack.upstream.set_default(Script::default().fault(Fault::Error { status: 500, shape: Shape::Html }));
    for _ in 0..10 {
        assert_eq!(ask(&stack, &key).await, 502);
    }
    stack.upstream.set_default(Script::default());
    assert_eq!(ask(&stack, &key).await, 200);
    assert_eq!(stack.upstream.generations().len(), 11);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_that_is_refused_is_not_tried_elsewhere() {
    let (stack, second) = two().await;
    let key = stack.key().await;
    let script = Script::default().fault(Fault::Error { status: 400, shape: Shape::Nested });
    for _ in 0..5 {
        stack.call(&key, script.clone()).send().await.assert_error(400, "invalid_value");
    }
    assert_eq!(stack.upstream.generations().len() + second.generations().len(), 5);
}
