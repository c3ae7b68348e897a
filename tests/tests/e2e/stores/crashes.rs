//! How processes end: orderly shutdowns and crashes.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, Call, Dialect, LOOK_EVERY, Options, Stack, cost_of},
    upstream::Script,
};
use tokio::time::sleep;

/// Number of streams in flight when the process is killed.
const STREAMS: usize = 50;
/// Maximum time until a waiting charge is delivered.
const SETTLED: Duration = Duration::from_secs(10);
/// The shortest lease allowed, because tests wait for it.
const LEASE: Duration = Duration::from_secs(3);

#[apply(fact)]
async fn after_kill_9_every_stream_of_any_dialect_is_billed_what_it_last_reported_once() {
    let stack = Stack::with(Options { lease: LEASE, ..Options::default() }).await;
    let mut keys = Vec::new();
    for _ in 0..STREAMS {
        keys.push(stack.key().await);
    }
    let script = Script::tokens(12, 100_000).pace(25);
    let calls = keys.iter().zip(Dialect::ALL.into_iter().cycle());
    let calls = calls.map(|(key, dialect)| stack.call(key, script.clone()).speaking(dialect));
    let streams = join_all(calls.map(Call::stream)).await;
    let tags: Vec<_> = streams.iter().map(|stream| stream.tag.clone()).collect();
    // Until the crash, the leases are renewed, each time with a report of progress.
    let reading: Vec<_> = streams.into_iter().map(|stream| tokio::spawn(stream.rest())).collect();
    sleep(LEASE + LEASE / 3).await;

    stack.crash().await;
    let killed = Instant::now();
    for ended in join_all(reading).await {
        let ended = ended.unwrap();
        assert!(ended.broken.is_some() && !ended.done, "no stream may look complete: {ended:?}");
    }
    stack.released(LEASE + Duration::from_secs(3)).await;
    println!("the last hold expired {:?} after the restart", killed.elapsed());

    let mut billed = Vec::new();
    for (key, tag) in keys.iter().zip(&tags) {
        let served =
            stack.upstream.wait_for(tag, "stop", |generation| generation.ended.is_some()).await.served;
        let used = stack.used(key).await;
        assert!((cost_of(12, 1)..=cost_of(12, served.completion)).contains(&used), "{used} for {served:?}");
        billed.push(used);
    }
    sleep(LEASE).await;
    for (key, before) in keys.iter().zip(billed) {
        assert_eq!(stack.used(key).await, before, "billed once");
    }
}

#[apply(fact)]
async fn after_kill_9_keys_credit_and_what_was_used_are_still_there() {
    let stack = Stack::start().await;
    let key = stack.key_limited(cost_of(10_000, 10)).await;
    stack.call(&key, Script::tokens(100, 10)).send().await;
    stack.add_credit(&stack.account, cost_of(5, 5), "");
    let (shown, balance) = (stack.show(&key).await, stack.balance(&stack.account));
    stack.crash().await;
    assert_eq!((stack.show(&key).await, stack.balance(&stack.account)), (shown, balance));
    assert_eq!(stack.call(&key, Script::tokens(100, 10)).send().await.status, 200);
    assert_eq!(stack.used(&key).await.nanos(), 2 * cost_of(100, 10).nanos());
}

#[apply(fact)]
async fn an_interrupted_server_lets_what_runs_finish_and_takes_nothing_new() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let mut stream = stack.call(&key, Script::tokens(12, 100).pace(20)).stream().await;
    let whole =
        tokio::spawn(stack.call(&key, Script { head_after_ms: 1_500, ..Script::tokens(30, 7) }).send());
    stream.read_tokens(5).await;

    stack.server().interrupt();
    assert_drains_soon(&stack).await;
    stack.call(&key, Script::default()).send().await.assert_error(503, "overloaded");
    let ended = stream.rest().await;
    assert_eq!((ended.assert_done().tokens(), ended.cost()), (100, cost_of(12, 100)));
    let answer: Answer = whole.await.unwrap();
    assert_eq!((answer.status, answer.cost()), (200, cost_of(30, 7)), "{answer}");
    let status = stack.server().ended().await;
    assert!(status.success(), "{status}");

    let spent = cost_of(12, 100).nanos() + cost_of(30, 7).nanos();
    let balance = stack.balance(&stack.account);
    assert_eq!(balance.held, NanoUsd::ZERO);
    assert_eq!(balance.credit.nanos(), 10_000_000_000 - spent, "captures were delivered before the end");
    stack.server().restart().await;
    assert_eq!(stack.used(&key).await.nanos(), spent);
}

/// Asserts that `/health` soon reports draining, so that a load balancer stops sending requests.
async fn assert_drains_soon(stack: &Stack) {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        let health = stack.http.get(&stack.url("/health")).await;
        if health.status == 503 {
            assert_eq!(health.json(), json!({"status": "draining"}));
            return;
        }
        assert!(Instant::now() < deadline, "it does not drain: {health}");
        sleep(LOOK_EVERY).await;
    }
}

#[apply(fact)]
async fn an_idle_server_ends_at_once_when_interrupted() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    assert_eq!(stack.call(&key, Script::default()).send().await.status, 200);
    let interrupted = Instant::now();
    stack.server().interrupt();
    assert!(stack.server().ended().await.success());
    assert!(interrupted.elapsed() < Duration::from_secs(5), "it took {:?}", interrupted.elapsed());
}

#[apply(fact)]
async fn before_it_drains_a_process_says_that_it_stops_and_goes_on_serving_until_signalled_again() {
    let env = vec![("FAREGATE_DRAIN_PAUSE_SECONDS", "600".to_owned())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let key = stack.key().await;
    let ready = async || stack.http.get(&format!("{}/readyz", stack.server().admin())).await.status;
    assert_eq!(ready().await, 200);
    stack.server().terminate();
    assert_drains_soon(&stack).await;
    assert_eq!(ready().await, 503);
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.cost(), cost_of(12, 5));
    stack.server().terminate();
    assert!(stack.server().ended().await.success());
    assert_eq!(stack.balance(&stack.account).held, NanoUsd::ZERO);
}

#[apply(fact)]
async fn a_drain_has_an_end() {
    let env = vec![("FAREGATE_DRAIN_SECONDS", "1".to_owned())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let key = stack.key().await;
    let mut stream = stack.call(&key, Script::tokens(12, 100_000).pace(20)).stream().await;
    stream.read_tokens(5).await;
    stack.server().interrupt();
    let ended = stream.rest().await;
    assert!(!ended.done, "a stream that was cut does not look complete: {ended:?}");
    assert!(stack.server().ended().await.success());
    let balance = stack.balance(&stack.account);
    assert_eq!(balance.held, NanoUsd::ZERO);
    assert!(
        balance.credit.nanos() <= 10_000_000_000 - cost_of(12, 5).nanos(),
        "the delivered tokens are billed"
    );
}

#[apply(fact)]
async fn requests_outlive_their_leases() {
    let stack = Stack::with(Options { lease: LEASE, ..Options::default() }).await;
    let key = stack.key().await;
    let whole = stack.call(&key, Script { head_after_ms: 7_000, ..Script::tokens(12, 5) });
    let stream = async {
        let mut stream = stack.call(&key, Script::tokens(12, 50).pace(140)).stream().await;
        stream.read_tokens(30).await;
        stream.rest().await
    };
    let (answer, ended) = tokio::join!(whole.send(), stream);
    assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 5)), "{answer}");
    assert_eq!(ended.assert_done().cost(), cost_of(12, 50));
    assert_eq!(stack.used(&key).await.nanos(), cost_of(12, 5).nanos() + cost_of(12, 50).nanos());
}

#[apply(fact)]
async fn while_the_stores_file_is_removed_nothing_is_spent_and_nothing_is_ready() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let file = stack.data().join("data/faregate.db");
    let away = file.with_extension("away");
    let admin = async |path: &str| stack.http.get(&format!("{}{path}", stack.server().admin())).await;
    let running = stack.call(&key, Script { head_after_ms: 1_000, ..Script::tokens(12, 5) }).send();
    let removal = async {
        sleep(Duration::from_millis(500)).await;
        std::fs::rename(&file, &away).unwrap();
        stack.call(&key, Script::default()).send().await.assert_error(503, "service_unavailable");
        assert_eq!(admin("/readyz").await.status, 503);
        assert!(admin("/metrics").await.text().contains("keyservice_store_file_gone 1"));
    };
    let (answer, ()) = tokio::join!(running, removal);
    assert_eq!(answer.status, 200, "its charge waits: {answer}");
    std::fs::rename(&away, &file).unwrap();
    stack.released(SETTLED).await;
    assert_eq!((admin("/readyz").await.status, stack.used(&key).await), (200, cost_of(12, 5)));
}
