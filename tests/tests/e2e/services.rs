//! Two gateways, two key-services, one Redis: everything holds, no matter which of them serves a request.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde_json::json;
use tests::{
    harness::{Deployment, Form, Options, PATIENCE, Server, Stack, Stream, cost_of},
    upstream::Script,
};
use tokio::time::sleep;

use crate::money::caps;

mod cluster;
pub(crate) mod faults;
pub(crate) mod money;
mod replicas;
mod rolling;
mod rotation;
mod secured;
mod side_by_side;
mod spread;
pub(crate) mod told;
mod webhooks;

/// Time within which a revocation ends streams: the promised five seconds, plus two for slow machines.
const REVOCATION: Duration = Duration::from_secs(7);
/// Number of keys revoked under load, one after the other.
const REVOKED: usize = 6;
/// Number of requests sent after their key was revoked, unless `FAREGATE_TEST_REVOKED_TRIES` sets it.
const TRIES: usize = 2_400;
/// Number of clients that send one request after the other.
const CLIENTS: usize = 8;

/// Returns the number in an environment variable.
pub(crate) fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Asks a process to end, as a supervisor does, and waits until it has ended.
async fn end(server: &Server) {
    server.terminate();
    let status = server.ended().await;
    assert!(status.success(), "{status}\n{}", server.last_words());
}

async fn two_of_each(redis: Form) -> Stack {
    with_lease(redis, Options::default().lease).await
}

async fn with_lease(redis: Form, lease: Duration) -> Stack {
    let deployment = Deployment::services(2, 2, redis);
    Stack::with(Options { deployment, lease, ..Options::default() }).await
}

#[apply(fact)]
async fn a_request_costs_exactly_its_tokens_whichever_gateway_carries_it() {
    let stack = two_of_each(Form::Cluster).await;
    let key = stack.key().await;
    let mut spent = 0;
    for round in 0..4 {
        let answer = stack.call(&key, Script::tokens(12, 5)).send().await;
        assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 5)), "{answer}");
        spent += cost_of(12, 5).nanos();
        assert_eq!(stack.used(&key).await.nanos(), spent, "whole, round {round}: as the other gateway shows");
        let ended = stack.call(&key, Script::tokens(1_000, 50)).stream().await.rest().await;
        assert_eq!(ended.assert_done().cost(), cost_of(1_000, 50));
        spent += cost_of(1_000, 50).nanos();
        // One more request, so that the next round uses the gateways in the opposite order.
        assert_eq!(stack.get(&key, "/v1/models").await.status, 200);
        assert_eq!(stack.used(&key).await.nanos(), spent, "streamed, round {round}");
    }
}

#[apply(fact)]
async fn a_limit_holds_against_400_requests_over_both_gateways_and_can_be_spent_to_its_end() {
    let stack = two_of_each(Form::Alone).await;
    let limit = caps::cap();
    let keys = [stack.key_limited(limit).await];
    caps::storm(&stack, &keys, limit, "key_limit_reached").await;
    caps::spend_the_rest(&stack, &keys, limit, "key_limit_reached").await;
}

#[apply(fact)]
async fn credit_holds_against_400_requests_of_several_keys_over_both_gateways() {
    let stack = two_of_each(Form::Cluster).await;
    let credit = caps::cap();
    let account = stack.open_account("tight", credit);
    let keys = join_all((0..4).map(|_| stack.key_of(&account, json!({})))).await;
    caps::storm(&stack, &keys, credit, "insufficient_credits").await;
    caps::spend_the_rest(&stack, &keys, credit, "insufficient_credits").await;
}

#[apply(fact)]
async fn once_a_revocation_is_answered_no_gateway_serves_the_key() {
    let wanted = std::env::var("FAREGATE_TEST_REVOKED_TRIES").map_or(TRIES, |text| text.parse().unwrap());
    let stack = two_of_each(Form::Alone).await;
    let mut in_all = 0;
    for _ in 0..REVOKED {
        let key = stack.key().await;
        let (revoked, tries) = (AtomicBool::new(false), AtomicUsize::new(0));
        let client = async || {
            while tries.load(Ordering::Relaxed) < wanted.div_ceil(REVOKED) {
                let must_fail = revoked.load(Ordering::Relaxed);
                let answer = stack.call(&key, Script::tokens(3, 1)).send().await;
                if must_fail {
                    answer.assert_error(401, "invalid_api_key");
                    tries.fetch_add(1, Ordering::Relaxed);
                } else {
                    assert!(matches!(answer.status, 200 | 401), "{answer}");
                }
            }
        };
        let revocation = async {
            sleep(Duration::from_millis(100)).await;
            stack.revoke(&key).await;
            revoked.store(true, Ordering::Relaxed);
        };
        tokio::join!(join_all((0..CLIENTS).map(|_| client())), revocation);
        in_all += tries.into_inner();
    }
    println!("{in_all} requests were tried after their key was revoked, and none was served");
}

#[apply(fact)]
async fn a_revocation_ends_the_streams_of_both_gateways() {
    let stack = two_of_each(Form::Cluster).await;
    let key = stack.key().await;
    let mut streams = Vec::new();
    for gateway in &stack.gateways {
        let call = stack.call_at(gateway, &key, Script::tokens(10, 5_000).pace(20));
        streams.push(call.stream().await);
    }
    for stream in &mut streams {
        stream.read_tokens(5).await;
    }
    stack.revoke(&key).await;
    let revoked = Instant::now();
    let mut delivered = 0;
    for ended in join_all(streams.into_iter().map(Stream::rest)).await {
        ended.assert_error(401, "invalid_api_key");
        delivered += cost_of(10, ended.tokens() as u64).nanos();
    }
    let took = revoked.elapsed();
    println!("streams end {took:?} after the revocation");
    assert!(took < REVOCATION, "after {took:?}");
    stack.released(PATIENCE).await;
    // A token that was generated while the stream ended counts too.
    let (billed, served) = (stack.used(&key).await.nanos(), stack.cost_of_served(&key).nanos());
    assert!((delivered..=served).contains(&billed), "{billed} for {delivered} delivered of {served} served");
}

#[apply(fact)]
async fn a_gateway_with_a_wrong_internal_token_serves_no_request_and_logs_the_reason() {
    let deployment = Deployment::services(1, 1, Form::Alone);
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    let key = stack.key().await;
    let stranger =
        stack.another_gateway(vec![("FAREGATE_INTERNAL_TOKEN", "a-guess-long-enough".into())]).await;
    let answer = stack.call_at(&stranger, &key, Script::tokens(12, 5)).send().await;
    answer.assert_error(503, "service_unavailable");
    assert!(stack.upstream.generations().is_empty());
    assert!(stranger.log().contains("token"), "{}", stranger.last_words());
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200, "others are served");
}
