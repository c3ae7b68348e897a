//! Replicas that are awaited: what is answered survives the loss of the master, and without replicas nothing is answered.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tests::{
    harness::{Deployment, Form, LOOK_EVERY, Options, PATIENCE, Stack, cost_of, usd},
    upstream::Script,
};
use tokio::time::sleep;

use super::from_environment;

/// Masters that are lost, unless `FAREGATE_TEST_FAILOVERS` sets the number.
const FAILOVERS: u64 = 5;
/// Clients that send one request after the other meanwhile.
const CLIENTS: usize = 8;

async fn replicated() -> Stack {
    let deployment = Deployment::Services { gateways: 1, key_services: 1, redis: Form::WithReplica };
    let env = vec![("FAREGATE_REDIS_WAIT_REPLICAS", "1".to_owned())];
    Stack::with(Options { deployment, env, ..Options::default() }).await
}

async fn becomes_ready(stack: &Stack, status: u16) {
    let deadline = Instant::now() + PATIENCE;
    let url = format!("{}/readyz", stack.key_services[0].admin());
    while stack.http.get(&url).await.status != status {
        assert!(Instant::now() < deadline, "readiness is not {status}");
        sleep(LOOK_EVERY).await;
    }
}

#[apply(fact)]
async fn with_too_few_replicas_nothing_is_served_and_finished_charges_wait_until_they_are_back() {
    let stack = replicated().await;
    let key = stack.key().await;
    becomes_ready(&stack, 200).await;
    let mut stream = stack.call(&key, Script::tokens(12, 40).pace(50)).stream().await;
    stream.read_tokens(5).await;

    stack.redis().hang_replica();
    becomes_ready(&stack, 503).await;
    stack.call(&key, Script::tokens(12, 5)).send().await.assert_error(503, "service_unavailable");
    let ended = stream.rest().await;
    assert_eq!(ended.assert_done().tokens(), 40, "its charge waits in the gateway's spool");
    let spooled = stack.gateways[0].settings().data.join("data");
    let spooled = stack.cli(&["spool", "list", "--of", &spooled.display().to_string()]);
    assert!(spooled.contains(&key.id) || spooled.contains("gen_"), "{spooled}");

    stack.redis().resume_replica();
    becomes_ready(&stack, 200).await;
    let answer = stack.call(&key, Script::tokens(12, 5)).send().await;
    assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 5)), "{answer}");
    stack.released(PATIENCE).await;
    assert_eq!(stack.used(&key).await.nanos(), cost_of(12, 40).nanos() + cost_of(12, 5).nanos());
}

#[apply(fact)]
async fn no_charge_is_lost_with_a_master_whose_replica_takes_over() {
    let failovers = from_environment("FAREGATE_TEST_FAILOVERS", FAILOVERS);
    let stack = replicated().await;
    stack.add_credit(&stack.account, usd("100"), "");
    let keys = join_all((0..CLIENTS).map(|_| stack.key())).await;
    let (over, answered, refused) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let masters = async {
        for _ in 0..failovers {
            let before = answered.load(Ordering::Relaxed);
            stack.redis().fail_over().await;
            let deadline = Instant::now() + PATIENCE;
            // The next master has charges that only it has answered.
            while answered.load(Ordering::Relaxed) < before + CLIENTS {
                assert!(Instant::now() < deadline, "nothing is served after a failover");
                sleep(LOOK_EVERY).await;
            }
        }
        over.store(true, Ordering::Relaxed);
    };
    let clients = keys.iter().map(async |key| {
        while !over.load(Ordering::Relaxed) {
            let answer = stack.call(key, Script::tokens(12, 5)).send().await;
            if answer.status == 200 {
                answered.fetch_add(1, Ordering::Relaxed);
            } else {
                assert_eq!(answer.status, 503, "{answer}");
                refused.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(50)).await;
            }
        }
    });
    tokio::join!(masters, join_all(clients));
    stack.released(PATIENCE).await;
    let (answered, refused) = (answered.into_inner(), refused.into_inner());
    println!("{failovers} failovers, {answered} answered and charged, {refused} refused");
    let mut used = 0;
    for key in &keys {
        used += stack.used(key).await.nanos();
    }
    assert_eq!(
        used,
        cost_of(12, 5).nanos() * i64::try_from(answered).unwrap(),
        "each answer was charged once"
    );
}
