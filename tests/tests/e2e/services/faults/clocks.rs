//! Key-services with different wall clocks: leases last equally long for all of them.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::Method;
use serde_json::Value;
use shared::money::NanoUsd;
use tests::{
    harness::{ACCOUNT, Deployment, Form, LOOK_EVERY, Options, PATIENCE, Server, Stack, cost_of},
    upstream::Script,
};
use tokio::time::sleep;

use super::outages::LEASE;

/// Difference between the clocks in seconds: more than a lease.
const APART: i64 = 4;
/// Difference from the store's clock, in seconds, that makes a key-service unready.
const TOO_FAR: i64 = 15;

/// Time within which a key-service compares its last mark with the store's.
const MARKED: Duration = Duration::from_secs(6);

/// Starts two gateways and two key-services, whose clocks are this many seconds ahead of the machine's and of Redis's
/// clock.
async fn with_clocks(clocks: [i64; 2]) -> Stack {
    let deployment = Deployment::services(2, 2, Form::Cluster);
    Stack::with(Options { deployment, lease: LEASE, clocks: clocks.into(), ..Options::default() }).await
}

#[apply(fact)]
async fn lists_by_time_have_each_bill_once_although_clocks_differ_and_go_back() {
    const REQUESTS: usize = 60;
    let stack = with_clocks([0, -1]).await;
    let key = stack.key().await;
    for n in 0..REQUESTS {
        if n == REQUESTS - 10 {
            stack.clocks.iter().for_each(|clock| clock.set(-6));
        }
        assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
        sleep(Duration::from_millis(40)).await;
    }
    let exported = stack.cli(&["journal", "export", "--account", ACCOUNT]);
    let entries: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let edge = entries[REQUESTS / 2]["at"].as_str().unwrap();
    let mut listed = Vec::new();
    for part in ["end", "start"] {
        let url = stack.url(&format!("/v1/management/generations?{part}={edge}"));
        let answer = stack.http.send_as(&stack.account.management_key, Method::GET, &url, None).await.json();
        let ids =
            answer["data"].as_array().unwrap().iter().map(|bill| bill["id"].as_str().unwrap().to_owned());
        listed.extend(ids);
    }
    let mut billed: Vec<_> =
        entries.iter().map(|entry| entry["generation_id"].as_str().unwrap().to_owned()).collect();
    listed.sort_unstable();
    billed.sort_unstable();
    assert_eq!((listed.len(), listed), (REQUESTS, billed));
}

#[apply(fact)]
async fn a_limit_holds_over_key_services_whose_clocks_differ_by_more_than_a_lease() {
    for clocks in [[0, APART], [-APART, 0], [-APART, APART]] {
        let stack = with_clocks(clocks).await;
        // The limit pays for two concurrent requests, and each takes longer than a lease.
        let limit = cost_of(1_000, 2_000);
        let key = stack.key_limited(limit).await;
        let script = Script { head_after_ms: 5_000, ..Script::tokens(30, 1_000) };
        let requests = (0..20).map(|number| {
            let call = stack.call(&key, script.clone()).with("max_tokens", 1_000);
            async move {
                sleep(Duration::from_millis(number * 250)).await;
                call.send().await
            }
        });
        let answers = join_all(requests).await;
        for refused in answers.iter().filter(|answer| answer.status != 200) {
            assert!(matches!(refused.status, 402 | 429), "{clocks:?}: {refused}");
        }
        let (served, used) = (stack.cost_of_served(&key), stack.used(&key).await);
        let answered = answers.iter().filter(|answer| answer.status == 200).count();
        assert!((1..=2).contains(&answered), "{clocks:?}: {answered} requests are answered");
        assert!(served <= limit, "{clocks:?}: {served} is served of {limit}");
        assert_eq!(used, served, "{clocks:?}");
    }
}

#[apply(fact)]
async fn a_clock_that_steps_while_streams_run_cuts_none_of_them() {
    let stack = with_clocks([0, 0]).await;
    let key = stack.key().await;
    let streams = join_all((0..8).map(|_| stack.call(&key, Script::tokens(30, 240).pace(50)).stream())).await;
    let step = async {
        for seconds in [APART, -APART, 0] {
            for clock in &stack.clocks {
                sleep(Duration::from_millis(1_500)).await;
                clock.set(seconds);
            }
        }
    };
    let reading = join_all(streams.into_iter().map(tests::harness::Stream::rest));
    let (ended, ()) = tokio::join!(reading, step);
    for ended in &ended {
        assert_eq!((ended.assert_done().tokens(), ended.cost()), (240, cost_of(30, 240)));
    }
    assert_eq!(stack.used(&key).await, stack.cost_of_served(&key));
}

#[apply(fact)]
async fn what_a_killed_gateway_held_is_free_after_a_lease_whatever_the_clocks_say() {
    let stack = with_clocks([-APART, APART]).await;
    let key = stack.key().await;
    let call = stack.call_at(&stack.gateways[0], &key, Script::tokens(30, 10_000).pace(50));
    let mut stream = call.stream().await;
    stream.read_tokens(20).await;
    stack.kill_gateway(0);
    let killed = Instant::now();
    // Less than a lease has passed, so the money is still held.
    sleep(LEASE / 2).await;
    assert!(stack.balance(&stack.account).held > NanoUsd::ZERO, "it is held for a lease");
    stack.released(PATIENCE).await;
    assert!(killed.elapsed() < LEASE * 3, "it is held for {:?}", killed.elapsed());
}

#[apply(fact)]
async fn a_key_service_is_not_ready_while_its_clock_is_far_from_its_stores() {
    let stack = with_clocks([0, TOO_FAR]).await;
    becomes(&stack, &stack.key_services[0], 200).await;
    becomes(&stack, &stack.key_services[1], 503).await;
    assert!(stack.key_services[1].log().contains("clock"), "{}", stack.key_services[1].last_words());
    stack.clocks[1].set(0);
    stack.key_services[1].restart().await;
    becomes(&stack, &stack.key_services[1], 200).await;
}

#[apply(fact)]
async fn a_command_beside_a_key_service_whose_clock_steps_back_closes_nothing() {
    let deployment = Deployment::services(1, 1, Form::Alone);
    let stack = Stack::with(Options { deployment, clocks: vec![0], ..Options::default() }).await;
    let key = stack.key().await;
    for seconds in [-120, -3_600] {
        stack.clocks[0].set(seconds);
        stack.cli(&["usage", "--account", ACCOUNT]);
        stack.cli(&["audit"]);
        stack.cli(&["management-keys", "create", "--account", ACCOUNT, "--name", "x"]);
        sleep(MARKED).await;
        let answer = stack.call(&key, Script::tokens(12, 5)).send().await;
        assert_eq!(answer.status, 200, "{answer}\n{}", stack.key_services[0].last_words());
    }
}

/// Waits until a process reports this readiness status.
async fn becomes(stack: &Stack, server: &Server, status: u16) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ready = stack.http.get(&format!("{}/readyz", server.admin())).await;
        if ready.status == status {
            return;
        }
        assert!(Instant::now() < deadline, "it stays {ready}\n{}", server.last_words());
        sleep(LOOK_EVERY).await;
    }
}
