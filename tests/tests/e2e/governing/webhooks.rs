//! Webhooks of a running installation: what receivers get, and what the sender never does.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use tests::harness::{LOOK_EVERY, Options, PATIENCE, Received, Receiver, Stack};
use tokio::time::{Instant, sleep};

/// Number of keys created while a receiver fails half of the time.
const KEYS: usize = 30;
/// Minutes on the server's clock within which the deliveries must arrive, and how long each minute takes.
const MINUTES: i64 = 60;
const A_MINUTE_TAKES: Duration = Duration::from_secs(1);

/// Creates a webhook of the stack's account with this URL. Returns the object, including its secret.
pub(crate) async fn webhook(stack: &Stack, url: &str, types: &[&str]) -> Value {
    let body = json!({"url": url, "types": types});
    let answer = manage(stack, Method::POST, "/webhooks", Some(body)).await;
    answer["id"].as_str().unwrap();
    answer
}

/// Returns the answer to a request to this path below `/v1/management`.
async fn manage(stack: &Stack, method: Method, path: &str, body: Option<Value>) -> Value {
    let url = stack.url(&format!("/v1/management{path}"));
    let answer = stack.http.send_as(&stack.account.management_key, method, &url, body).await;
    assert!(answer.status < 300, "{answer}");
    answer.json()
}

/// Returns the events of a type, by id.
pub(crate) async fn events(stack: &Stack, kind: &str) -> BTreeMap<String, Value> {
    let listed = manage(stack, Method::GET, &format!("/events?limit=1000&type={kind}"), None).await;
    let events = listed["data"].as_array().unwrap();
    events.iter().map(|event| (event["id"].as_str().unwrap().to_owned(), event.clone())).collect()
}

/// Returns the ids of the deliveries that were accepted.
fn accepted(received: &[Received]) -> BTreeSet<String> {
    received.iter().filter(|received| received.status.is_success()).map(Received::id).collect()
}

#[apply(fact)]
async fn every_event_reaches_a_receiver_that_fails_half_of_the_time() {
    let stack = Stack::with(Options { clocks: vec![0], ..Options::default() }).await;
    let receiver = Receiver::start(|n| if n % 2 == 0 { 503 } else { 204 }, Duration::ZERO).await;
    webhook(&stack, &receiver.url(), &["key.created"]).await;
    for _ in 0..KEYS {
        stack.key().await;
    }
    let written = events(&stack, "key.created").await;
    assert_eq!(written.len(), KEYS);
    // Pauses between attempts double, so the clock is moved forward for deliveries that fail repeatedly.
    for minute in 1..=MINUTES {
        if accepted(&receiver.received()).len() == KEYS {
            break;
        }
        stack.clocks[0].set(60 * minute);
        sleep(A_MINUTE_TAKES).await;
    }
    let deliveries = receiver.received();
    assert_eq!(accepted(&deliveries).len(), KEYS, "every event arrives");
    for one in &deliveries {
        assert_eq!(written[&one.id()], one.event(), "the same event each time");
    }
    let failed = deliveries.iter().filter(|one| !one.status.is_success()).count();
    assert!(failed >= KEYS / 2, "{failed} attempts failed");
    println!("{KEYS} events, {} attempts, of which {failed} failed", deliveries.len());
}

#[apply(fact)]
async fn events_that_wait_for_another_attempt_survive_a_kill() {
    let stack = Stack::start().await;
    let receiver = Receiver::start(|n| if n < 3 { 500 } else { 200 }, Duration::ZERO).await;
    webhook(&stack, &receiver.url(), &["key.created"]).await;
    for _ in 0..3 {
        stack.key().await;
    }
    receiver.until("three attempts", |all| all.len() >= 3).await;
    stack.crash().await;
    let deliveries = receiver.until("every event arrives", |all| accepted(all).len() == 3).await;
    let written: BTreeSet<String> = events(&stack, "key.created").await.into_keys().collect();
    assert_eq!(accepted(&deliveries), written);
}

#[apply(fact)]
async fn a_proxy_of_the_environment_is_not_used() {
    let proxy = Receiver::start(|_| 200, Duration::ZERO).await;
    let through = format!("http://{}", proxy.address());
    let names = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
    let env = names.into_iter().map(|name| (name, through.clone())).collect();
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let receiver = Receiver::start(|_| 200, Duration::ZERO).await;
    webhook(&stack, &receiver.url(), &["key.created"]).await;
    // The receiver does not use TLS, so the attempt fails at the receiver itself.
    let secure = webhook(&stack, &format!("https://{}/", receiver.address()), &["key.created"]).await;
    stack.key().await;
    receiver.until("the event arrives", |all| all.len() == 1).await;
    let path = format!("/webhooks/{}/deliveries", secure["id"].as_str().unwrap());
    let deadline = Instant::now() + PATIENCE;
    let attempts = loop {
        let attempts = manage(&stack, Method::GET, &path, None).await["data"].clone();
        if attempts != json!([]) {
            break attempts;
        }
        assert!(Instant::now() < deadline, "no attempt is made");
        sleep(LOOK_EVERY).await;
    };
    assert_eq!(attempts[0]["error"], "cannot establish a TLS connection", "{attempts}");
    assert_eq!(proxy.received().len(), 0);
}
