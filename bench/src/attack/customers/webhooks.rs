//! The webhooks of one customer, as many and as slow as allowed, next to another customer's webhook.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::attack::row::Row;
use tests::harness::{Account, Deployment, Form, LOOK_EVERY, Options, Receiver, Stack, usd};

/// Number of webhooks that an account may have.
const WEBHOOKS: usize = 20;
/// Number of attempts that an account may have in flight: a quarter of a key-service's.
const PLACES: usize = 16;
/// Number of events that the webhooks rescan after they are enabled again, and number of concurrent requests that
/// create them.
const EVENTS: usize = 10_000;
const AT_ONCE: usize = 32;
/// Time after which every attempt that may start has reached a silent receiver, and none has ended.
const BEGUN: Duration = Duration::from_secs(5);
/// Number of deliveries to the other customer, one after the other, and how long each may take.
const DELIVERIES: usize = 10;
const DELAY: Duration = Duration::from_secs(2);
/// Time after which a delivery counts as lost.
const LOST: Duration = Duration::from_secs(30);

/// Runs a customer whose receivers do not answer, and whose webhooks rescan many events.
pub(crate) async fn rows() -> Vec<Row> {
    let stack =
        Stack::with(Options { deployment: Deployment::services(1, 1, Form::Alone), ..Options::default() })
            .await;
    let greedy = stack.open_account("greedy", usd("1"));
    let other = Receiver::start(|_| 204, Duration::ZERO).await;
    webhook(&stack, &stack.account, &other.url()).await;
    let calm = slowest_delivery(&stack, &other).await;

    let silent = Receiver::start(|_| 204, 2 * LOST).await;
    let mut webhooks = Vec::new();
    for _ in 0..WEBHOOKS {
        webhooks.push(webhook(&stack, &greedy, &silent.url()).await);
    }
    let key = stack.key_of(&greedy, json!({})).await;
    for _ in 1..WEBHOOKS {
        stack.key_of(&greedy, json!({})).await;
    }
    sleep(BEGUN).await;
    let begun = silent.received().len();
    let slowest = slowest_delivery(&stack, &other).await;
    let seen = |slowest: Duration| format!("{slowest:.1?} ({calm:.1?} before)");
    let mut rows = vec![Row {
        name: format!("{WEBHOOKS} webhooks of one customer whose receivers do not answer"),
        expected: format!("{PLACES} at once, another's event in {DELAY:?}"),
        seen: format!("{begun} at once, {}", seen(slowest)),
        held: begun == PLACES && slowest <= DELAY,
    }];

    // No event has this type, so the webhook scans all events and sends none.
    let paused = json!({"types": ["key.rotated"], "enabled": false});
    change(&stack, &greedy, &webhooks, &paused).await;
    let label = |number: usize| {
        let (stack, greedy, id) = (&stack, &greedy, &key.id);
        async move {
            let body = json!({"label": format!("number {number}")});
            stack.manage_as(greedy, Method::PATCH, &format!("/{id}"), Some(body)).await.status
        }
    };
    let statuses: Vec<u16> = stream::iter(0..EVENTS).map(label).buffer_unordered(AT_ONCE).collect().await;
    let written = statuses.iter().filter(|status| **status == 200).count();
    change(&stack, &greedy, &webhooks, &json!({"enabled": true})).await;
    let slowest = slowest_delivery(&stack, &other).await;
    rows.push(Row {
        name: format!("the same, enabled again behind {written} events"),
        expected: format!("another's event in {DELAY:?}"),
        seen: seen(slowest),
        held: written > EVENTS / 2 && slowest <= DELAY,
    });
    rows
}

/// Makes a webhook for new keys, and returns its id.
async fn webhook(stack: &Stack, account: &Account, url: &str) -> String {
    let body = json!({"url": url, "types": ["key.created"]});
    let made = manage(stack, account, Method::POST, "", body).await;
    made["id"].as_str().expect("it has an id").to_owned()
}

async fn change(stack: &Stack, account: &Account, webhooks: &[String], patch: &Value) {
    for id in webhooks {
        manage(stack, account, Method::PATCH, &format!("/{id}"), patch.clone()).await;
    }
}

async fn manage(stack: &Stack, account: &Account, method: Method, path: &str, body: Value) -> Value {
    let url = stack.url(&format!("/v1/management/webhooks{path}"));
    let answer = stack.http.send_as(&account.management_key, method, &url, Some(body)).await;
    assert!(answer.status < 300, "{answer}");
    answer.json()
}

/// Returns the longest time until an event of the stack's account arrives, over several events in a row.
async fn slowest_delivery(stack: &Stack, receiver: &Receiver) -> Duration {
    let mut slowest = Duration::ZERO;
    for _ in 0..DELIVERIES {
        let (before, began) = (receiver.received().len(), Instant::now());
        stack.key().await;
        while receiver.received().len() == before && began.elapsed() < LOST {
            sleep(LOOK_EVERY).await;
        }
        slowest = slowest.max(began.elapsed());
    }
    slowest
}
