//! Two key-services deliver events from the same store, and one of them is killed.

use std::{collections::BTreeMap, time::Duration};

use tests::harness::{Deployment, Form, LOOK_EVERY, Options, PATIENCE, Received, Receiver, Server, Stack};
use tokio::time::{Instant, sleep};

use crate::governing::webhooks::{events, webhook};

/// Number of keys that are created before the kill. As many are created after it.
const KEYS: usize = 40;
/// How long the receiver takes to answer. It is so long that there are always attempts in flight.
const PAUSE: Duration = Duration::from_millis(300);
/// Maximum number of attempts for the same webhook that a key-service has in flight.
const MAX_ATTEMPTS: usize = 4;
/// After this many seconds, the claims of a key-service that was killed have ended.
const CLAIMS_ENDED: i64 = 31;
/// Time in which both key-services look for deliveries that are due, and finish their attempts.
const TWO_LOOKS: Duration = Duration::from_secs(2);

/// Returns how many requests there were for each event.
fn arrivals(received: &[Received]) -> BTreeMap<String, usize> {
    received.iter().fold(BTreeMap::new(), |mut counts, one| {
        *counts.entry(one.id()).or_default() += 1;
        counts
    })
}

/// Returns how many attempts a key-service has finished.
async fn attempts_of(stack: &Stack, key_service: &Server) -> u64 {
    let metrics = stack.http.get(&format!("{}/metrics", key_service.admin())).await;
    let ended = |line: &str| line.starts_with("keyservice_webhook_attempts_total");
    let lines = metrics.text().lines().filter(|line| ended(line));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[apply(fact)]
async fn two_key_services_never_make_the_same_attempt_and_one_that_is_killed_loses_no_event() {
    let deployment = Deployment::services(2, 2, Form::Cluster);
    let stack = Stack::with(Options { deployment, clocks: vec![0, 0], ..Options::default() }).await;
    let receiver = Receiver::start(|_| 204, PAUSE).await;
    webhook(&stack, &receiver.url(), &["key.created"]).await;
    for _ in 0..KEYS {
        stack.key().await;
    }
    let both = Instant::now() + PATIENCE;
    receiver.until("the first events arrive", |all| arrivals(all).len() == KEYS).await;
    sleep(TWO_LOOKS).await;
    let once = arrivals(&receiver.received());
    assert!(once.values().all(|count| *count == 1), "{once:?}");
    for key_service in &stack.key_services {
        while attempts_of(&stack, key_service).await == 0 {
            assert!(Instant::now() < both, "both take part");
            sleep(LOOK_EVERY).await;
        }
    }

    let before = receiver.received().len();
    for _ in 0..KEYS {
        stack.key().await;
    }
    receiver.until("some arrive", |all| all.len() >= before + MAX_ATTEMPTS).await;
    stack.key_services[0].kill();
    // The other key-service delivers everything except what the killed key-service has claimed.
    let left = 2 * KEYS - MAX_ATTEMPTS;
    receiver.until("the others arrive", |all| arrivals(all).len() >= left).await;
    sleep(TWO_LOOKS).await;
    assert!(arrivals(&receiver.received()).values().all(|count| *count == 1));
    stack.clocks[1].set(CLAIMS_ENDED);
    receiver.until("every event arrives", |all| arrivals(all).len() == 2 * KEYS).await;
    sleep(TWO_LOOKS).await;
    let arrivals = arrivals(&receiver.received());
    let written = events(&stack, "key.created").await;
    assert!(arrivals.keys().eq(written.keys()), "each event, and nothing else");
    let repeated: Vec<usize> = arrivals.into_values().filter(|count| *count > 1).collect();
    println!("{} of {} events arrived twice", repeated.len(), written.len());
    assert!(repeated.len() <= MAX_ATTEMPTS && repeated.iter().all(|count| *count == 2), "{repeated:?}");
    stack.key_services[0].restart().await;
}
