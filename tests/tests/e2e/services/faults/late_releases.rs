//! Releases that reach the store late. They must affect no other hold than their own.

use std::time::Duration;

use futures_util::future::join_all;
use shared::money::NanoUsd;
use tests::{
    harness::{Deployment, Form, Options, Stack, cost_of, until},
    upstream::Script,
};
use tokio::time::sleep;

/// How long the upstream takes to count a prompt. In this time, Redis stops answering.
const COUNT: Duration = Duration::from_millis(500);
/// Time within which a release that was given up reaches the store after all.
const DELIVERY: Duration = Duration::from_secs(2);

#[apply(fact)]
async fn a_release_that_comes_late_leaves_the_next_hold_of_its_request_open() {
    let deployment = Deployment::services(1, 1, Form::Alone);
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    // Two holds fit into this limit, so that the second need not wait for the end of the first. The prompt's upper
    // bound does not fit, so the tokens of the prompt are counted. Each key sends one request. There are as many keys
    // as prompts that may be counted at the same time.
    let limit = cost_of(500, 750);
    let keys = [stack.key_limited(limit).await, stack.key_limited(limit).await];
    let script = || Script {
        count_after_ms: u64::try_from(COUNT.as_millis()).unwrap(),
        says: "words ".repeat(800),
        ..Script::tokens(100, 0).pace(25)
    };
    let calls = keys.iter().map(|key| stack.call(key, script()).with("max_tokens", 400).stream());
    let outage = async {
        until("every prompt to be counted", async || stack.upstream.token_counts() == keys.len()).await;
        stack.redis().hang();
        // Redis hangs, so the gateway can neither extend the hold to the counted tokens nor release it. It gives up,
        // and asks for another hold.
        let given_up = async || stack.gateways[0].log().matches("not settled in time").count() == keys.len();
        until("the releases to be given up", given_up).await;
        stack.redis().resume();
    };
    let (streams, ()) = tokio::join!(join_all(calls), outage);
    let reading: Vec<_> = streams.into_iter().map(|stream| tokio::spawn(stream.rest())).collect();
    sleep(DELIVERY).await;
    let held = NanoUsd::from_nanos(2 * cost_of(100, 400).nanos());
    assert_eq!(stack.balance(&stack.account).held, held, "what runs is held");
    assert!(reading.iter().all(|stream| !stream.is_finished()), "they run");
    for (stream, key) in join_all(reading).await.into_iter().zip(&keys) {
        let ended = stream.unwrap();
        assert_eq!(ended.assert_done().cost(), stack.used(key).await);
    }
}
