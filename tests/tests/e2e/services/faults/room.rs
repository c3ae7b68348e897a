//! A store without space: probes and metrics report it, and recover by themselves.

use std::time::{Duration, Instant};

use tests::{
    harness::{Answer, Deployment, Form, LOOK_EVERY, Options, PATIENCE, Stack, cost_of},
    upstream::Script,
};
use tokio::time::sleep;

/// Maximum time until a key-service has noticed that its store refuses writes, or accepts them again.
const NOTICED: Duration = Duration::from_secs(15);

async fn over(redis: Form) -> Stack {
    let deployment = Deployment::Services { gateways: 1, key_services: 1, redis };
    Stack::with(Options { deployment, ..Options::default() }).await
}

/// Asks whether the key-service is ready, until it answers with this status.
async fn readiness(stack: &Stack, status: u16) -> Answer {
    let deadline = Instant::now() + NOTICED;
    loop {
        let answer = stack.http.get(&format!("{}/readyz", stack.key_services[0].admin())).await;
        if answer.status == status {
            return answer;
        }
        assert!(Instant::now() < deadline, "{answer}");
        sleep(LOOK_EVERY).await;
    }
}

/// Returns the value of one of the key-service's metrics without labels.
async fn metric(stack: &Stack, name: &str) -> f64 {
    let metrics = stack.http.get(&format!("{}/metrics", stack.key_services[0].admin())).await;
    let value = metrics.text().lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {name}"))
}

/// Fills a master, and empties it again.
async fn fills_and_empties(stack: &Stack, master: usize) {
    let key = stack.key().await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
    readiness(stack, 200).await;
    assert!(
        (metric(stack, "keyservice_ready").await, metric(stack, "keyservice_store_up").await) == (1.0, 1.0)
    );
    let used = metric(stack, "keyservice_store_used_ratio").await;
    assert!((0.0..0.9).contains(&used) && used > 0.0, "of the machine's memory: {used}");

    assert!(stack.redis().ask(master, "CONFIG SET maxmemory 1mb").starts_with("+OK"));
    let (status, says, ready) = if stack.redis().masters() == 1 {
        (503, "the store refuses writes", 0.0)
    } else {
        (200, "is missing: 127.0.0.1", 0.5)
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let said = readiness(stack, status).await;
        if said.text().contains(says) && said.text().contains("OOM") {
            break;
        }
        assert!(Instant::now() < deadline, "{said}");
        sleep(LOOK_EVERY).await;
    }
    while (metric(stack, "keyservice_ready").await - ready).abs() > 0.01
        || metric(stack, "keyservice_store_used_ratio").await < 1.0
    {
        assert!(Instant::now() < deadline, "metrics tell it too");
        sleep(LOOK_EVERY).await;
    }
    assert!(metric(stack, "keyservice_store_up").await > 0.0, "it answers");

    assert!(stack.redis().ask(master, "CONFIG SET maxmemory 0").starts_with("+OK"));
    readiness(stack, 200).await;
    super::outages::heals(stack, &key).await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.cost(), cost_of(12, 5));
}

#[apply(fact)]
async fn a_redis_at_its_maxmemory_is_not_ready_and_ready_again_without_traffic() {
    fills_and_empties(&over(Form::Alone).await, 0).await;
}

#[apply(fact)]
async fn a_cluster_names_the_one_of_its_masters_that_is_full() {
    fills_and_empties(&over(Form::Cluster).await, 1).await;
}
