//! Attacks by customers and over time: a customer that reads nothing, one that sends the largest bodies, and many
//! requests without a scraper, each next to another customer.

pub(super) mod rates;
pub(super) mod webhooks;

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, header};
use http_body_util::Full;
use serde_json::json;
use tokio::time::{Instant as Deadline, sleep};

use super::{
    paying::{Waits, chats, pay},
    row::Row,
    unread,
};
use crate::measure::process::memory;
use tests::{
    harness::{Options, Stack, usd},
    upstream::Script,
};

/// How long a client may stop reading its stream, and how long its slot may take to become free afterwards.
const STALL: (Duration, Duration) = (Duration::from_mins(1), Duration::from_secs(5));
/// Number of the gateway's slots in the attack on them, and the share that one account may use.
const SLOTS: (usize, usize) = (64, 48);

/// Number of large bodies that a customer sends at once, the size of each, and how long the attack lasts.
const BODIES: (usize, usize) = (3, 30 << 20);
const BODIES_TIME: Duration = Duration::from_secs(8);
/// A message in a large body: many short messages take the longest to parse.
const MESSAGE: &str = r#"{"role":"user","content":"x"},"#;
/// How much longer the slowest of another customer's chats may take.
const BODIES_DELAY: Duration = Duration::from_millis(500);

/// Measures memory during paid requests while nobody reads the metrics.
pub(super) async fn unscraped(stack: &Stack, requests: usize) -> Row {
    stack.upstream.set_default(Script::tokens(12, 1));
    let key = stack.key().await;
    let pid = stack.server().pid();
    pay(stack, &key, requests / 5).await;
    let mut looks = vec![memory(pid)];
    for _ in 0..4 {
        pay(stack, &key, requests / 5).await;
        looks.push(memory(pid));
    }
    let grown = looks[4].saturating_sub(looks[2]);
    let bound = 8 << 20;
    let looks: Vec<String> = looks.iter().map(|bytes| (bytes >> 20).to_string()).collect();
    Row {
        name: format!("{requests} requests without a scraper"),
        expected: format!("{} MiB more in the last two fifths", bound >> 20),
        seen: format!("{} MiB after each fifth", looks.join(", ")),
        held: grown <= bound,
    }
}

/// Runs a customer that reads nothing, next to another one.
pub(super) async fn slots() -> Vec<Row> {
    let (all, share) = SLOTS;
    let env = vec![("FAREGATE_MAX_IN_FLIGHT", all.to_string())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    stack.others_spend();
    let greedy = stack.key().await;
    let other = stack.open_account("other", usd("1"));
    let other = stack.key_of(&other, json!({})).await;
    let began = Instant::now();
    let unread = unread::open_streams(stack.server().public(), &greedy.secret, all).await;
    let (taken, refused) = (unread.begun(), unread.refused());
    let served = stack.call(&other, Script::tokens(12, 5)).send().await.status;
    let freed = loop {
        let tried = stack.call(&greedy, Script::tokens(12, 5)).send().await.status;
        if tried == 200 || began.elapsed() > 2 * STALL.0 {
            break began.elapsed();
        }
        sleep(Duration::from_millis(500)).await;
    };
    let bound = STALL.0 + STALL.1;
    vec![
        Row {
            name: format!("{all} streams of one customer that reads nothing"),
            expected: format!("{share} begin, others are served"),
            seen: format!("{taken} begin, {refused} are refused, another one gets {served}"),
            held: taken == share && served == 200,
        },
        Row {
            name: "slots of a client that stopped reading".into(),
            expected: format!("free in {bound:?}"),
            seen: format!("{:.1} s", freed.as_secs_f64()),
            held: freed <= bound,
        },
    ]
}

/// Runs a customer whose requests are as large as allowed, next to another one.
pub(super) async fn large_bodies(stack: &Stack) -> Row {
    let greedy = stack.key().await;
    let other = stack.open_account("other", usd("1"));
    let other = stack.key_of(&other, json!({})).await;
    let calm = chats(stack, &other, Deadline::now() + BODIES_TIME / 4).await;
    let until = Deadline::now() + BODIES_TIME;
    let (at_once, size) = BODIES;
    let sending = (0..at_once).map(|_| send_large_bodies(stack, &greedy.secret, size, until));
    let (beside, sent) = tokio::join!(chats(stack, &other, until), join_all(sending));
    let delay = beside.longest.saturating_sub(calm.longest);
    let Waits { median, longest } = beside;
    Row {
        name: format!(
            "{} bodies of {} MiB of one customer, {at_once} at once",
            sent.iter().sum::<usize>(),
            size >> 20
        ),
        expected: format!("another's chat waits {BODIES_DELAY:?} longer"),
        seen: format!("{delay:.0?} ({:.0?}, then {longest:.0?}, {median:.0?} in the middle)", calm.longest),
        held: delay <= BODIES_DELAY && sent.iter().all(|sent| *sent > 0),
    }
}

/// Sends large bodies one after the other until `until`. Returns how many the gateway read to their end.
async fn send_large_bodies(stack: &Stack, secret: &str, size: usize, until: Deadline) -> usize {
    let (http, url) = (stack.http.fresh(), stack.url("/v1/chat/completions"));
    let messages = MESSAGE.repeat(size / MESSAGE.len());
    // The model comes last and does not exist, so the gateway parses the whole body in vain.
    let body = format!(r#"{{"messages":[{}],"model":"none"}}"#, messages.trim_end_matches(','));
    let body = Bytes::from(body);
    let mut sent = 0;
    while Deadline::now() < until {
        let request = Request::post(&url)
            .header(header::AUTHORIZATION, format!("Bearer {secret}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.clone()));
        sent += usize::from(http.send(request.unwrap()).await.status == 404);
    }
    sent
}
