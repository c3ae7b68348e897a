//! A reboot in any order: processes that start early wait for those that start late.

use std::time::{Duration, Instant};

use tests::{
    harness::{Deployment, Form, LOOK_EVERY, Options, PATIENCE, Redis, Server, Settings, Stack, until},
    upstream::Script,
};
use tokio::time::sleep;

use super::outages::heals;

/// How long Redis stays away: long enough for several attempts to connect.
const AWAY: Duration = Duration::from_secs(4);

async fn reboots_in_the_wrong_order(redis: Form) {
    let deployment = Deployment::Services { gateways: 1, key_services: 1, redis };
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    let key = stack.key().await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
    stack.kill_gateway(0);
    let key_service = &stack.key_services[0];
    key_service.kill();
    stack.redis().kill();

    stack.server().restart().await;
    key_service.launch_again();
    let ready = format!("{}/readyz", key_service.admin());
    let deadline = Instant::now() + PATIENCE;
    loop {
        match stack.http.try_get(&ready).await {
            Some(answer) if answer.text().contains("waiting for the store") => break,
            Some(answer) => assert_eq!(answer.status, 503, "{answer}"),
            None => {}
        }
        assert!(key_service.is_running() && Instant::now() < deadline, "{}", key_service.last_words());
        sleep(LOOK_EVERY).await;
    }
    stack.call(&key, Script::tokens(12, 5)).send().await.assert_error(503, "service_unavailable");
    sleep(AWAY).await;
    assert!(key_service.is_running(), "{}", key_service.last_words());

    stack.redis().restart().await;
    key_service.served_again().await;
    heals(&stack, &key).await;
}

#[apply(fact)]
async fn a_redis_that_starts_last_is_waited_for() {
    reboots_in_the_wrong_order(Form::Alone).await;
}

#[apply(fact)]
async fn a_cluster_that_starts_last_is_waited_for() {
    reboots_in_the_wrong_order(Form::Cluster).await;
}

#[apply(fact)]
async fn a_process_that_waits_ends_when_it_is_told_to() {
    let folder = tempfile::TempDir::new().unwrap();
    let nowhere = format!("redis://127.0.0.1:{}", tests::harness::free_port());
    let admin = format!("127.0.0.1:{}", tests::harness::free_port());
    let settings = settings(&folder, nowhere, &admin);
    let waiting = Server::launched(&settings);
    let http = tests::harness::Http::new();
    let ready = format!("http://{admin}/readyz");
    until("its probes to be answered", async || http.try_get(&ready).await.is_some()).await;
    waiting.terminate();
    assert!(waiting.ended().await.success(), "{}", waiting.last_words());
}

#[apply(fact)]
async fn what_waiting_cannot_mend_is_refused_at_once() {
    for form in [Form::AsInstalled, Form::Cluster] {
        let folder = tempfile::TempDir::new().unwrap();
        let redis = Redis::start(form, &folder.path().join("redis")).await;
        let settings = settings(&folder, redis.url(), "127.0.0.1:0");
        let masters = 0..redis.masters();
        masters.clone().for_each(|n| drop(redis.ask(n, "CONFIG SET maxmemory-policy allkeys-lru")));
        let refused = Server::refuses(&settings).await;
        assert!(refused.contains("maxmemory-policy to noeviction"), "{refused}");
        masters.clone().for_each(|n| drop(redis.ask(n, "CONFIG SET maxmemory-policy noeviction")));
        masters.for_each(|n| drop(redis.ask(n, "CONFIG SET requirepass between-us")));
        let refused = Server::refuses(&settings).await;
        assert!(refused.contains("error: FAREGATE_STORE"), "{refused}");
        let mut guessing = settings;
        let url = redis.url().replacen("://", "://:guessed@", 1);
        guessing.env.push(("FAREGATE_STORE", url));
        let refused = Server::refuses(&guessing).await;
        assert!(refused.contains("error: FAREGATE_STORE") && !refused.contains("guessed"), "{refused}");
    }
}

fn settings(folder: &tempfile::TempDir, store: String, admin: &str) -> Settings {
    let env = vec![
        ("FAREGATE_PEPPER", "5eed".repeat(16)),
        ("FAREGATE_INTERNAL_TOKEN", "between-the-services".to_owned()),
        ("FAREGATE_STORE", store),
        ("FAREGATE_ADMIN_LISTEN", admin.to_owned()),
    ];
    Settings::of("key-service", folder.path(), env)
}
