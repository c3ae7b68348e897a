//! Clients that leave before the end.

use std::time::{Duration, Instant};

use shared::money::NanoUsd;
use tests::{
    harness::{Models, Options, PATIENCE, Stack, cost_of},
    upstream::{End, Fault, Script},
};
use tokio::time::{sleep, timeout};

/// Time within which the connection to the upstream is closed: one second as promised, plus one for slow machines.
const AT_ONCE: Duration = Duration::from_secs(2);

#[apply(fact)]
async fn a_client_that_leaves_stops_the_upstream_and_pays_for_what_it_got() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let mut stream = stack.call(&key, Script::tokens(12, 100_000).pace(10)).stream().await;
    stream.read_tokens(20).await;
    let (tag, left) = (stream.tag.clone(), Instant::now());
    drop(stream);

    let served = stack.upstream.wait_for(&tag, "stop", |generation| generation.ended.is_some()).await;
    let (end, at) = served.ended.unwrap();
    assert_eq!(end, End::ClientLeft);
    assert!(at.duration_since(left) < AT_ONCE, "the upstream went on for {:?}", at.duration_since(left));
    stack.released(PATIENCE).await;
    let used = stack.used(&key).await;
    assert!((cost_of(12, 20)..=cost_of(12, served.served.completion)).contains(&used), "{used}: {served:?}");
}

#[apply(fact)]
async fn a_client_that_leaves_a_silent_stream_stops_it_too() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let mut stream = stack.call(&key, Script::tokens(12, 9).fault(Fault::Stall { after: 3 })).stream().await;
    stream.read_tokens(3).await;
    let (tag, left) = (stream.tag.clone(), Instant::now());
    drop(stream);
    let served = stack.upstream.wait_for(&tag, "stop", |generation| generation.ended.is_some()).await;
    assert!(served.ended.unwrap().1.duration_since(left) < AT_ONCE);
    stack.released(PATIENCE).await;
    assert_eq!(stack.used(&key).await, cost_of(12, 3));
}

#[apply(fact)]
async fn a_client_that_leaves_before_the_first_word_pays_for_the_prompt() {
    for kind in ["vllm", "openai"] {
        let stack = Stack::with(Options { kind, ..Options::default() }).await;
        let key = stack.key().await;
        let call = stack.call(&key, Script::tokens(12, 9).fault(Fault::Stall { after: 0 }));
        let stream = call.costing(cost_of(1, 0), cost_of(1_000, 0)).stream().await;
        let tag = stream.tag.clone();
        // Gives the gateway time to read the bytes that the upstream sends before its first token.
        sleep(Duration::from_millis(200)).await;
        drop(stream);
        stack.upstream.wait_for(&tag, "stop", |generation| generation.ended_by(End::ClientLeft)).await;
        stack.released(PATIENCE).await;
        let used = stack.used(&key).await;
        assert!(
            if kind == "vllm" { used == cost_of(12, 0) } else { used >= cost_of(1, 0) },
            "{kind}: {used}"
        );
    }
}

#[apply(fact)]
async fn a_client_that_leaves_before_a_stream_begins_pays_nothing() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let call = stack.call(&key, Script::default().fault(Fault::StallBeforeHead));
    let tag = call.tag.clone();
    assert!(timeout(Duration::from_millis(500), call.try_stream()).await.is_err(), "it began");
    let left = Instant::now();
    let served = stack.upstream.wait_for(&tag, "stop", |generation| generation.ended.is_some()).await;
    assert!(served.ended_by(End::ClientLeft) && left.elapsed() < AT_ONCE);
    stack.released(PATIENCE).await;
    assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
}

#[apply(fact)]
async fn a_client_that_leaves_a_whole_request_pays_for_all_of_it() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let call = stack.call(&key, Script { head_after_ms: 1_000, ..Script::tokens(12, 50) });
    let tag = call.tag.clone();
    assert!(timeout(Duration::from_millis(300), call.send()).await.is_err(), "it was answered");
    let served = stack.upstream.wait_for(&tag, "end", |generation| generation.ended.is_some()).await;
    assert!(served.ended_by(End::Finished), "its usage is known only at its end: {served:?}");
    stack.released(PATIENCE).await;
    assert_eq!(stack.used(&key).await, cost_of(12, 50));
}

#[apply(fact)]
async fn without_usage_along_the_way_a_client_that_leaves_pays_an_estimate() {
    let stack = Stack::with(Options { kind: "openai", ..Options::default() }).await;
    let key = stack.key().await;
    let call =
        stack.call(&key, Script::tokens(12, 100_000).pace(10)).costing(cost_of(1, 20), cost_of(1_000, 500));
    let mut stream = call.stream().await;
    stream.read_tokens(20).await;
    let tag = stream.tag.clone();
    drop(stream);
    stack.upstream.wait_for(&tag, "stop", |generation| generation.ended_by(End::ClientLeft)).await;
    stack.released(PATIENCE).await;
    assert!(stack.used(&key).await >= cost_of(1, 20), "a token a delta at least");
}

#[apply(fact)]
async fn a_hundred_clients_that_leave_at_once_leave_nothing_behind() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let streams = (0..100).map(|_| stack.call(&key, Script::tokens(12, 100_000).pace(20)).stream());
    let mut streams = futures_util::future::join_all(streams).await;
    for stream in &mut streams {
        stream.read_tokens(1).await;
    }
    drop(streams);
    stack.released(PATIENCE).await;
    let generations = stack.upstream.generations();
    assert!(generations.iter().all(|generation| generation.ended_by(End::ClientLeft)));
    assert!(stack.used(&key).await >= NanoUsd::from_nanos(100 * cost_of(12, 1).nanos()));
}

#[apply(fact)]
async fn a_client_that_leaves_at_the_finish_reason_pays_for_tokens_that_are_reported_later() {
    for kind in ["openai", "ollama"] {
        let stack = Stack::with(Options { kind, ..Options::default() }).await;
        let key = stack.key().await;
        let hidden = Script { reasoning_tokens: 2_000, hidden_reasoning: true, ..Script::tokens(12, 2_010) };
        let script = Script { usage_after_ms: 300, ..hidden };
        let call = stack.call(&key, script).costing(cost_of(12, 2_010), cost_of(12, 2_010));
        let mut stream = call.stream().await;
        stream.read_finish().await;
        drop(stream);
        stack.released(PATIENCE).await;
        assert_eq!(stack.used(&key).await, cost_of(12, 2_010), "{kind}");
    }
}

#[apply(fact)]
async fn an_upstream_that_is_read_to_its_end_is_billed_exactly_whenever_its_client_leaves() {
    let models = Models::With("left_mid_stream = \"finish\"");
    let stack = Stack::with(Options { kind: "openai", models, ..Options::default() }).await;
    let key = stack.key().await;
    let hidden = Script { reasoning_tokens: 100, hidden_reasoning: true, ..Script::tokens(12, 300) };
    let call = stack.call(&key, hidden.pace(5)).costing(cost_of(12, 300), cost_of(12, 300));
    let mut stream = call.stream().await;
    stream.read_tokens(5).await;
    let tag = stream.tag.clone();
    drop(stream);
    stack.upstream.wait_for(&tag, "finish", |generation| generation.ended_by(End::Finished)).await;
    stack.released(PATIENCE).await;
    assert_eq!(stack.used(&key).await, cost_of(12, 300));
}

#[apply(fact)]
async fn a_whole_request_whose_client_left_is_held_for_a_third_of_its_time() {
    let env = vec![("FAREGATE_ANSWER_SECONDS", "2".to_owned())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let key = stack.key().await;
    let stalled = Script::tokens(12, 9).fault(Fault::StallBeforeHead);
    let body_stalled = Script { body_after_ms: 60_000, ..Script::tokens(12, 9) };
    for script in [stalled, body_stalled] {
        let call = stack.call(&key, script.clone()).costing(NanoUsd::ZERO, NanoUsd::ZERO);
        let tag = call.tag.clone();
        assert!(timeout(Duration::from_millis(300), call.send()).await.is_err(), "it was answered");
        let left = Instant::now();
        stack.upstream.wait_for(&tag, "stop", |generation| generation.ended_by(End::ClientLeft)).await;
        let held = left.elapsed();
        assert!((Duration::from_secs(1)..Duration::from_secs(4)).contains(&held), "{held:?}: {script:?}");
        stack.released(PATIENCE).await;
        assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
    }
}
