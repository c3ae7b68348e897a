//! Webhooks of one customer, which are as many and as slow as they may be, beside the webhook of another one.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::attack::row::Row;
use tests::harness::{Account, Deployment, Form, LOOK_EVERY, Options, Receiver, Stack, usd};

/// Webhooks that an account may have.
const WEBHOOKS: usize = 20;
/// A quarter of the attempts that a key-service has under way.
const PLACES: usize = 16;
/// Events that the webhooks look at after they were enabled again, and requests at once that write them.
const EVENTS: usize = 10_000;
const AT_ONCE: usize = 32;
/// Time in which no attempt at a receiver without an answer has ended, and all that may begin have begun.
const BEGUN: Duration = Duration::from_secs(5);
/// Deliveries to the other customer, one after the other, and the time that each may take.
const DELIVERIES: usize = 10;
const DELAY: Duration = Duration::from_secs(2);
/// Time after which a delivery has not come.
const LOST: Duration = Duration::from_secs(30);

/// A customer whose receivers do not answer, and which has many events looked at again.
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

    // Of a type that there is none of: all events are looked at, and none is sent.
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

/// The longest time from an event of the stack's account to its arrival, of some events one after the other.
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
