//! Several `faregate` processes over one Redis. Each is both a gateway and a key-service, and calls nothing outside its
//! process except the store.

use std::time::Duration;

use tests::{
    harness::{Deployment, Form, Options, PATIENCE, Stack, cost_of},
    upstream::Script,
};

use crate::money::caps;

/// A lease that is so short that tests can wait until it expires.
const LEASE: Duration = Duration::from_secs(3);

async fn two() -> Stack {
    let deployment = Deployment::side_by_side(2, Form::Cluster);
    Stack::with(Options { deployment, lease: LEASE, ..Options::default() }).await
}

#[apply(fact)]
async fn a_limit_holds_against_400_requests_over_processes_side_by_side() {
    let stack = two().await;
    let limit = caps::cap();
    let keys = [stack.key_limited(limit).await];
    caps::storm(&stack, &keys, limit, "key_limit_reached").await;
    caps::spend_the_rest(&stack, &keys, limit, "key_limit_reached").await;
}

#[apply(fact)]
async fn a_key_that_one_process_revoked_is_refused_by_the_next_request_at_another() {
    let stack = two().await;
    let [first, second] = [&stack.gateways[0], &stack.gateways[1]];
    for _ in 0..10 {
        let key = stack.key().await;
        for server in [first, second] {
            assert_eq!(stack.call_at(server, &key, Script::tokens(12, 5)).send().await.status, 200);
        }
        stack.revoke(&key).await;
        for server in [first, second] {
            let answer = stack.call_at(server, &key, Script::tokens(12, 5)).send().await;
            answer.assert_error(401, "invalid_api_key");
        }
    }
}

#[apply(fact)]
async fn a_process_that_dies_is_survived_by_the_other_which_bills_its_streams() {
    let stack = two().await;
    let key = stack.key().await;
    let [dying, other] = [&stack.gateways[0], &stack.gateways[1]];
    let mut broken = stack.call_at(dying, &key, Script::tokens(12, 5_000).pace(5)).stream().await;
    let kept = stack.call_at(other, &key, Script::tokens(12, 500).pace(10)).stream().await;
    broken.read_tokens(200).await;
    stack.kill_gateway(0);
    assert_eq!(kept.rest().await.assert_done().cost(), cost_of(12, 500));
    // Only the other process can now resolve the hold.
    stack.released(PATIENCE).await;
    dying.restart().await;
    assert!(stack.used(&key).await > cost_of(24, 500), "the broken stream is billed as last reported");
    let answer = stack.call_at(dying, &key, Script::tokens(12, 5)).send().await;
    assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 5)), "{answer}");
}
