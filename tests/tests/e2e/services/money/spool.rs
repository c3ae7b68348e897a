//! Answers completed while no key-service is reachable, in every dialect: their charges survive the end of the gateway.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tests::{
    harness::{ApiKey, Deployment, Dialect, Form, LOOK_EVERY, Options, PATIENCE, Stack, cost_of},
    upstream::Script,
};
use tokio::time::sleep;

use crate::services::faults::outages::LEASE;

/// Number of requests whose answers complete while the key-service is down.
const REQUESTS: usize = 10;

/// How the gateway ends.
#[derive(Clone, Copy)]
enum End {
    /// As by a power failure.
    Killed,
    /// As when a supervisor asks it to stop.
    Terminated,
}

#[apply(fact)]
async fn answers_given_while_the_key_service_was_away_are_billed_after_their_gateway_was_killed() {
    charges_survive(End::Killed).await;
}

#[apply(fact)]
async fn answers_given_while_the_key_service_was_away_are_billed_after_their_gateway_was_stopped() {
    charges_survive(End::Terminated).await;
}

async fn charges_survive(end: End) {
    let deployment = Deployment::services(1, 1, Form::Cluster);
    let env = vec![("FAREGATE_DRAIN_SECONDS", "1".to_owned())];
    let stack = Stack::with(Options { deployment, lease: LEASE, env, ..Options::default() }).await;
    let key = stack.key().await;
    let script = Script { head_after_ms: 1_500, ..Script::tokens(30, 7) };
    // In each of the three dialects, every second request is streamed.
    let requests = (0..REQUESTS).zip(Dialect::ALL.into_iter().cycle());
    let answers = join_all(requests.map(|(number, dialect)| {
        let call = stack.call(&key, script.clone()).speaking(dialect);
        async move {
            let is_whole = number % 2 == 0;
            if is_whole { call.send().await.status == 200 } else { call.stream().await.rest().await.done }
        }
    }));
    let outage = async {
        sleep(Duration::from_millis(700)).await;
        stack.key_services[0].kill();
    };
    let (answers, ()) = tokio::join!(answers, outage);
    let answered = answers.into_iter().filter(|good| *good).count();
    assert_eq!(answered, REQUESTS, "an answer does not wait for its charge for ever");

    match end {
        End::Killed => stack.kill_gateway(0),
        End::Terminated => {
            stack.gateways[0].terminate();
            stack.gateways[0].ended().await;
        }
    }
    // Waits for longer than a lease: without captures, every hold would expire and be billed at its last report.
    sleep(LEASE).await;
    stack.key_services[0].restart().await;
    stack.gateways[0].restart().await;
    billed(&stack, &key, answered).await;
    // A second restart must not deliver a charge twice.
    stack.kill_gateway(0);
    stack.gateways[0].restart().await;
    sleep(LEASE * 2).await;
    billed(&stack, &key, answered).await;
    stack.cli(&["audit"]);
}

/// Waits until exactly this many requests are billed.
async fn billed(stack: &Stack, key: &ApiKey, requests: usize) {
    let amount = cost_of(30, 7).nanos() * i64::try_from(requests).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let used = stack.used(key).await.nanos();
        if used == amount {
            return;
        }
        assert!(Instant::now() < deadline, "{used} n$ are billed, {amount} n$ were served");
        sleep(LOOK_EVERY).await;
    }
}
