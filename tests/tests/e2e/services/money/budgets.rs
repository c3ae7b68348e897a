//! Limits of keys and groups over two gateways and two key-services: exact at every level, even while processes die.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, ApiKey, Deployment, Form, Options, PATIENCE, Stack, nanos},
    upstream::Script,
};
use tokio::time::{Instant, sleep};

use crate::{
    money::budgets::{group, number, requests, send, shown},
    services::{
        faults::outages::{LEASE, heals},
        two_of_each, with_lease,
    },
};

/// Number of requests sent at once.
const MANY: usize = 400;
/// Number of keys in the group.
const KEYS: usize = 20;

/// Creates a parent, a group in it and keys in the group, with a limit at each level. For a single key, the key's limit
/// is the tightest; for all keys together, the group's is.
async fn three_levels(stack: &Stack) -> (Value, Value, Vec<ApiKey>) {
    let parent = group(stack, json!({"name": "parent", "limit": number(requests(60))})).await;
    let limits = json!([{"amount": number(requests(40)), "per": "month"}]);
    let body = json!({"name": "group", "parent_id": parent["id"], "limits": limits});
    let group = group(stack, body).await;
    let key = json!({"group_id": group["id"], "limit": number(requests(5))});
    let keys = join_all((0..KEYS).map(|_| stack.key_with(key.clone()))).await;
    (parent, group, keys)
}

async fn storm(stack: &Stack, keys: &[ApiKey]) -> Vec<Result<Answer, String>> {
    let script = Script { head_after_ms: 30, ..Script::tokens(30, 40) };
    let calls = (0..MANY).zip(keys.iter().cycle());
    join_all(calls.map(|(_, key)| stack.call(key, script.clone()).with("max_tokens", 40).try_send())).await
}

/// Asserts that no level exceeded its limit, and that each level was billed the sum of the level below.
async fn assert_exact(stack: &Stack, parent: &Value, group: &Value, keys: &[ApiKey]) -> NanoUsd {
    let of_keys = join_all(keys.iter().map(|key| stack.used(key))).await;
    assert!(of_keys.iter().all(|used| *used <= requests(5)), "{of_keys:?}");
    let sum = NanoUsd::from_nanos(of_keys.iter().map(|used| used.nanos()).sum());
    let (parent, group) = (shown(stack, parent).await, shown(stack, group).await);
    assert_eq!((nanos(&group["used"]), nanos(&parent["used"])), (sum, sum));
    let window = &group["limits"][0];
    assert_eq!(nanos(&window["used"]), sum, "{window}");
    assert!(sum <= requests(40), "{sum}");
    sum
}

#[apply(fact)]
async fn bounds_at_three_levels_hold_against_400_requests_over_both_gateways() {
    let stack = two_of_each(Form::Cluster).await;
    let (parent, group, keys) = three_levels(&stack).await;
    let mut billed = 0;
    for answer in storm(&stack, &keys).await {
        let answer = answer.unwrap();
        match (answer.status, answer.code().as_str()) {
            (200, _) => billed += answer.cost().nanos(),
            (402, "group_limit_reached" | "key_limit_reached") | (429, "spend_reserved") => {}
            _ => panic!("{answer}"),
        }
    }
    assert_eq!(assert_exact(&stack, &parent, &group, &keys).await.nanos(), billed);
    // Requests sent one after the other use up the group's window.
    let mut refused = 0;
    for key in keys.iter().cycle().take(3 * KEYS) {
        let answer = send(&stack, key).await;
        refused += usize::from(answer.status == 402);
        assert!(matches!(answer.status, 200 | 402), "{answer}");
    }
    assert!(refused > 0);
    assert_eq!(assert_exact(&stack, &parent, &group, &keys).await, requests(40));
    let answer = send(&stack, &stack.key_with(json!({"group_id": group["id"]})).await).await;
    answer.assert_error(402, "group_limit_reached");
    assert!(answer.json()["error"]["resets_at"].is_string(), "{answer}");
}

#[apply(fact)]
async fn bounds_at_three_levels_are_exact_while_processes_are_killed() {
    let stack = with_lease(Form::Alone, LEASE).await;
    let (parent, group, keys) = three_levels(&stack).await;
    let other = stack.key().await;
    let faults = async {
        sleep(Duration::from_millis(60)).await;
        stack.key_services[0].kill();
        sleep(Duration::from_millis(60)).await;
        stack.kill_gateway(1);
        sleep(Duration::from_millis(60)).await;
        stack.redis().kill();
        sleep(Duration::from_millis(200)).await;
        stack.redis().restart().await;
        stack.key_services[0].restart().await;
        stack.gateways[1].restart().await;
    };
    let (_, ()) = tokio::join!(storm(&stack, &keys), faults);
    heals(&stack, &other).await;
    stack.released(PATIENCE).await;
    assert_exact(&stack, &parent, &group, &keys).await;
    stack.cli(&["audit"]);
}

/// Returns the number of admitted requests in a storm, and the most by which a bucket of `per_minute` can have refilled
/// meanwhile.
async fn admitted(stack: &Stack, keys: &[ApiKey], per_minute: u128) -> (usize, usize) {
    let began = Instant::now();
    let answers = storm(stack, keys).await;
    let refilled = usize::try_from(began.elapsed().as_millis() * per_minute / 60_000).unwrap() + 1;
    let admitted = answers.iter().filter(|answer| answer.as_ref().unwrap().status == 200).count();
    println!("{admitted} requests were admitted while the bucket refilled by at most {refilled}");
    (admitted, refilled)
}

#[apply(fact)]
async fn requests_per_minute_are_exact_over_both_gateways_in_each_minute() {
    let deployment = Deployment::services(2, 2, Form::Cluster);
    let stack = Stack::with(Options { deployment, clocks: vec![0, 0], ..Options::default() }).await;
    let group = group(&stack, json!({"name": "fifty", "requests_per_minute": 50})).await;
    let keys = join_all((0..4).map(|_| stack.key_with(json!({"group_id": group["id"]})))).await;
    for minute in 0..3 {
        for clock in &stack.clocks {
            clock.set(60 * minute);
        }
        let (admitted, refilled) = admitted(&stack, &keys, 50).await;
        assert!((50..=50 + refilled).contains(&admitted), "{admitted} with {refilled} in minute {minute}");
    }
}

#[apply(fact)]
async fn tokens_per_minute_are_passed_by_no_more_than_the_answers_in_flight() {
    let stack = two_of_each(Form::Cluster).await;
    let key = stack.key_with(json!({"tokens_per_minute": 1_000})).await;
    let (admitted, refilled) = admitted(&stack, std::slice::from_ref(&key), 1_000).await;
    // Prompts of 30 tokens count on admission; answers of 40 tokens count once they are known.
    assert!(admitted > 0 && 30 * admitted <= 1_000 + refilled, "{admitted} with {refilled} refilled");
    if 70 * admitted >= 1_000 + refilled {
        let refused = send(&stack, &key).await;
        assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limit_exceeded"), "{refused}");
    }
}

#[apply(fact)]
async fn places_of_a_killed_gateway_are_free_after_a_lease() {
    let stack = with_lease(Form::Alone, LEASE).await;
    let group = group(&stack, json!({"name": "three at once", "max_in_flight": 3})).await;
    let key = stack.key_with(json!({"group_id": group["id"]})).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let call = stack.call_at(&stack.gateways[0], &key, Script::tokens(10, 10_000).pace(50));
        let mut stream = call.stream().await;
        stream.read_tokens(2).await;
        streams.push(stream);
    }
    let at_other = || stack.call_at(&stack.gateways[1], &key, Script::tokens(3, 1)).send();
    let refused = at_other().await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limit_exceeded"), "{refused}");
    stack.kill_gateway(0);
    let deadline = Instant::now() + PATIENCE;
    while at_other().await.status != 200 {
        assert!(Instant::now() < deadline, "the places of the killed gateway are not free");
        sleep(Duration::from_millis(200)).await;
    }
    drop(streams);
    stack.released(PATIENCE).await;
    let streams = join_all(
        (0..3).map(|_| stack.call_at(&stack.gateways[1], &key, Script::tokens(10, 100).pace(10)).stream()),
    )
    .await;
    for ended in join_all(streams.into_iter().map(tests::harness::Stream::rest)).await {
        ended.assert_done();
    }
}
