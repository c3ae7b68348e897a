//! Contents of streams: large events, hidden tokens, different endings. Every generated token is held in advance and
//! billed.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use shared::money::NanoUsd;
use tests::{
    harness::{Deployment, Ended, Form, Options, Stack, cost_of},
    upstream::{Fault, Script, Style, text},
};

/// Two kinds of upstreams: one that reports progress, and one that does not.
const KINDS: [&str; 2] = ["vllm", "openai"];
/// Number of concurrent streams.
const STREAMS: usize = 20;
/// Time within which streams must end, since clients expect an end within seconds.
const SOON: Duration = Duration::from_secs(8);

async fn of_kind(over: Deployment, kind: &'static str) -> Stack {
    Stack::with(Options { kind, deployment: over, ..Options::default() }).await
}

/// Runs each test on `faregate` with SQLite, and on services over a Redis Cluster.
macro_rules! facts {
    ($($fact:ident)*) => {
        mod all_in_one {
            use super::Deployment;
            $(#[apply(fact)]
            async fn $fact() {
                super::$fact(Deployment::AllInOne).await;
            })*
        }
        mod services {
            use super::{Deployment, Form};
            $(#[apply(fact)]
            async fn $fact() {
                super::$fact(Deployment::services(1, 1, Form::Cluster)).await;
            })*
        }
    };
}

facts! {
    an_event_of_100_kb_arrives_whole_while_there_is_credit
    text_that_comes_in_events_of_4_kb_arrives_whole
    a_tool_call_of_5_kb_in_one_event_arrives_whole
    usage_that_jumps_past_a_grant_asks_for_what_it_needs
    an_event_beyond_what_can_be_paid_is_not_delivered_and_passes_no_limit
    reasoning_that_is_not_seen_is_generated_within_the_limit_by_20_streams_at_once
    reasoning_that_is_reported_beside_the_completion_is_billed
    a_stream_that_says_its_usage_but_not_that_it_is_done_ends_complete_within_seconds
    a_template_that_adds_more_than_assumed_is_covered_after_three_reports
}

async fn whole_stream(over: Deployment, kind: &'static str, script: Script) -> Ended {
    let stack = of_kind(over, kind).await;
    let key = stack.key().await;
    let ended = stack.call(&key, script).with("max_tokens", 50_000).stream().await.rest().await;
    assert_eq!(stack.used(&key).await, stack.cost_of_served(&key), "{kind}: the served tokens are billed");
    ended.assert_done();
    ended
}

async fn an_event_of_100_kb_arrives_whole_while_there_is_credit(over: Deployment) {
    for kind in KINDS {
        let script = Script { event_tokens: 20_000, ..Script::tokens(12, 20_000) };
        let ended = whole_stream(over, kind, script).await;
        assert!(ended.text().len() > 100_000, "{kind}: {ended:?}");
        assert_eq!(ended.text(), text(20_000), "{kind}");
        assert_eq!((ended.finish_reasons(), ended.cost()), (vec!["stop"], cost_of(12, 20_000)), "{kind}");
    }
}

async fn text_that_comes_in_events_of_4_kb_arrives_whole(over: Deployment) {
    for kind in KINDS {
        let ended = whole_stream(over, kind, Script { event_tokens: 800, ..Script::tokens(12, 4_000) }).await;
        assert_eq!((ended.text(), ended.finish_reasons()), (text(4_000), vec!["stop"]), "{kind}");
        assert_eq!(ended.cost(), cost_of(12, 4_000), "{kind}");
    }
}

async fn a_tool_call_of_5_kb_in_one_event_arrives_whole(over: Deployment) {
    for kind in KINDS {
        let script = Script { tool_calls: 1, tool_bytes: 5_000, ..Script::tokens(12, 0) };
        let ended = whole_stream(over, kind, script).await;
        let pieces =
            ended.deltas(0).filter_map(|delta| delta["tool_calls"][0]["function"]["arguments"].as_str());
        let arguments: String = pieces.collect();
        let parsed: serde_json::Value = serde_json::from_str(&arguments).unwrap();
        assert_eq!(parsed["q"].as_str().unwrap().len(), 5_001, "{kind}");
        assert_eq!(ended.finish_reasons(), ["tool_calls"], "{kind}");
        assert_eq!(ended.cost(), cost_of(12, 3 + 1_250), "{kind}");
    }
}

async fn usage_that_jumps_past_a_grant_asks_for_what_it_needs(over: Deployment) {
    for kind in KINDS {
        let script = Script { reasoning_tokens: 1_500, hidden_reasoning: true, ..Script::tokens(12, 1_700) };
        let ended = whole_stream(over, kind, script).await;
        assert_eq!((ended.tokens(), ended.finish_reasons()), (200, vec!["stop"]), "{kind}");
        assert_eq!(ended.cost(), cost_of(12, 1_700), "{kind}");
    }
}

async fn an_event_beyond_what_can_be_paid_is_not_delivered_and_passes_no_limit(over: Deployment) {
    for kind in KINDS {
        let stack = of_kind(over, kind).await;
        let limit = cost_of(1_000, 5_000);
        let key = stack.key_limited(limit).await;
        let script = Script { event_tokens: 20_000, ..Script::tokens(12, 20_000) };
        let call = stack.call(&key, script).costing(NanoUsd::ZERO, limit);
        let ended = call.stream().await.rest().await;
        assert_eq!(ended.assert_done().finish_reasons(), ["length"], "{kind}");
        assert!(stack.used(&key).await <= limit, "{kind}");
    }
}

async fn reasoning_that_is_not_seen_is_generated_within_the_limit_by_20_streams_at_once(over: Deployment) {
    // Upstreams of this kind report no progress.
    let stack = of_kind(over, "openai").await;
    let limit = cost_of(2_000, 30_000);
    let key = stack.key_limited(limit).await;
    let script = Script { reasoning_tokens: 6_000, hidden_reasoning: true, ..Script::tokens(30, 6_010) };
    let streams = (0..STREAMS).map(|_| {
        let call = stack.call(&key, script.clone()).with("max_tokens", 8_000);
        async {
            match call.try_stream().await {
                Ok(stream) => Ok(stream.rest().await),
                Err(refused) => Err(refused),
            }
        }
    });
    let mut complete = 0;
    for outcome in join_all(streams).await {
        match outcome {
            Ok(ended) => complete += usize::from(ended.assert_done().finish_reasons() == ["stop"]),
            Err(refused) => assert!(matches!(refused.status, 402 | 429), "{refused}"),
        }
    }
    let (served, used) = (stack.cost_of_served(&key), stack.used(&key).await);
    println!("{complete} of {STREAMS} streams are complete; {served} served, {used} billed, of {limit}");
    assert!(served <= limit, "{served} is generated of {limit}");
    assert_eq!(used, served, "the generated tokens are billed");
    assert!(complete > 0, "some can be paid");
}

async fn reasoning_that_is_reported_beside_the_completion_is_billed(over: Deployment) {
    let style = Style { reasoning_beside: true, ..Style::default() };
    for kind in KINDS {
        let stack = of_kind(over, kind).await;
        let key = stack.key().await;
        let script =
            Script { reasoning_tokens: 386, hidden_reasoning: true, style, ..Script::tokens(12, 387) };
        let whole = stack.call(&key, script.clone()).send().await;
        assert_eq!(whole.cost(), cost_of(12, 387), "{kind}: {whole}");
        let ended = stack.call(&key, script).stream().await.rest().await;
        assert_eq!(ended.assert_done().cost(), cost_of(12, 387), "{kind}");
    }
}

async fn a_stream_that_says_its_usage_but_not_that_it_is_done_ends_complete_within_seconds(over: Deployment) {
    for kind in KINDS {
        let stack = of_kind(over, kind).await;
        let key = stack.key().await;
        let began = Instant::now();
        let script = Script::tokens(12, 20).fault(Fault::StallBeforeDone);
        let ended = stack.call(&key, script).stream().await.rest().await;
        assert!(began.elapsed() < SOON, "{kind}: after {:?}", began.elapsed());
        assert_eq!((ended.assert_done().tokens(), ended.cost()), (20, cost_of(12, 20)), "{kind}");
        assert_eq!(ended.finish_reasons(), ["stop"], "{kind}");
    }
}

async fn a_template_that_adds_more_than_assumed_is_covered_after_three_reports(over: Deployment) {
    let stack = of_kind(over, "openai").await;
    let key = stack.key().await;
    let script = Script::tokens(5_000, 5);
    let call = |key| stack.call(key, script.clone()).with("max_tokens", 5);
    for _ in 0..3 {
        assert_eq!(call(&key).costing(cost_of(5_000, 5), cost_of(5_000, 5)).send().await.status, 200);
    }
    // Enough for the text of the prompt, but not for the longer prompt that the upstream turns it into.
    let poor = stack.key_limited(cost_of(2_000, 5)).await;
    call(&poor).send().await.assert_error(402, "key_limit_reached");
    assert_eq!(stack.cost_of_served(&poor), NanoUsd::ZERO, "nothing is generated for it");
}
