//! What a gateway reports while the key-services are unavailable, or while it cannot write to its spool.

use std::time::{Duration, Instant};

use tests::{
    harness::{Deployment, Form, LOOK_EVERY, Options, PATIENCE, Server, Settings, Stack, cost_of},
    upstream::Script,
};
use tokio::time::sleep;

/// Returns the value of a metric that has no labels.
async fn metric(stack: &Stack, gateway: &Server, name: &str) -> f64 {
    let metrics = stack.http.get(&format!("{}/metrics", gateway.admin())).await;
    let line =
        metrics.text().lines().find_map(|line| line.strip_prefix(&format!("{name} ")).map(str::to_owned));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// Waits until a metric has this value.
async fn shows(stack: &Stack, gateway: &Server, name: &str, value: f64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = metric(stack, gateway, name).await;
        if (shown - value).abs() < 0.5 {
            return;
        }
        assert!(Instant::now() < deadline, "{name} is {shown} rather than {value}\n{}", gateway.last_words());
        sleep(LOOK_EVERY).await;
    }
}

/// Returns the number of lines in the log that contain these words.
fn lines(server: &Server, words: &str) -> usize {
    server.log().lines().filter(|line| line.contains(words)).count()
}

#[apply(fact)]
async fn an_outage_is_told_once_by_address_and_at_its_end() {
    let env = vec![("FAREGATE_WORKERS", "3".to_owned())];
    let deployment = Deployment::services(1, 2, Form::Alone);
    let stack = Stack::with(Options { deployment, env, ..Options::default() }).await;
    let (gateway, key) = (stack.server(), stack.key().await);
    shows(&stack, gateway, "gateway_ready", 1.0).await;
    stack.key_services.iter().for_each(Server::kill);
    for _ in 0..3 {
        let refused = stack.call(&key, Script::tokens(1, 1)).send().await;
        assert_eq!(refused.status, 503, "{refused}");
        assert_eq!(stack.http.get(&stack.url("/health")).await.status, 200);
        stack.http.get(&stack.url("/v1/management/keys")).await;
    }
    shows(&stack, gateway, "gateway_ready", 0.0).await;
    for key_service in &stack.key_services {
        key_service.restart().await;
    }
    shows(&stack, gateway, "gateway_ready", 1.0).await;
    let answer = stack.call(&key, Script::tokens(1, 1)).send().await;
    assert_eq!(answer.status, 200, "{answer}");
    // After this time, even the longest pause between two attempts to open a session is over.
    sleep(Duration::from_secs(1)).await;
    for key_service in &stack.key_services {
        let peer = format!("peer={}", key_service.address("key-grpc"));
        let told = |words: &str| {
            let log = gateway.log();
            log.lines().filter(|line| line.contains(words) && line.contains(&peer)).count()
        };
        assert_eq!(
            [told("WARN a key-service is unavailable"), told("INFO a key-service is back")],
            [1, 1],
            "{peer}"
        );
        assert_eq!(told("is still unavailable"), 0);
    }
    assert_eq!(lines(gateway, "requests could not be authorized"), 1);
    assert_eq!(lines(gateway, "route=\"/health\""), 0, "probes are no news");
    assert_eq!(lines(gateway, "the HTTP port of a key-service is unavailable"), 2);
}

#[apply(fact)]
async fn a_spool_that_cannot_be_written_is_counted_and_told_once_until_it_can() {
    let stack =
        Stack::with(Options { deployment: Deployment::services(1, 1, Form::Cluster), ..Options::default() })
            .await;
    let key = stack.key().await;
    let mut settings = Settings { files_bounded: true, ..stack.server().settings().clone() };
    settings.data = stack.data().join("full");
    std::fs::create_dir_all(&settings.data).unwrap();
    let gateway = Server::start(&settings).await;
    let call = stack.call_at(&gateway, &key, Script { head_after_ms: 1_000, ..Script::tokens(30, 7) });
    let outage = async {
        sleep(Duration::from_millis(500)).await;
        gateway.bound_files(Some(1));
        stack.key_services[0].kill();
    };
    let (answer, ()) = tokio::join!(call.send(), outage);
    assert_eq!(answer.status, 200, "{answer}");
    shows(&stack, &gateway, "gateway_captures_in_memory_alone", 1.0).await;
    shows(&stack, &gateway, "gateway_spool_write_failures_total", 3.0).await;
    assert_eq!(lines(&gateway, "the spool cannot be written"), 1);
    let spooled = || settings.cli(&["spool", "list"]);
    assert_eq!(spooled().lines().count(), 1, "the head alone");

    gateway.bound_files(None);
    shows(&stack, &gateway, "gateway_captures_in_memory_alone", 0.0).await;
    shows(&stack, &gateway, "gateway_spool_captures", 1.0).await;
    assert_eq!(lines(&gateway, "the spool can be written again"), 1);
    assert!(spooled().lines().nth(1).unwrap().contains("Model Flash"), "{}", spooled());
    stack.key_services[0].restart().await;
    shows(&stack, &gateway, "gateway_spool_captures", 0.0).await;
    assert_eq!(stack.used(&key).await, cost_of(30, 7));
}
