//! Random and mutated requests over plain connections: each gets a valid answer, nothing hangs, and no hold remains.

use std::env;

use futures_util::{StreamExt, stream};
use tests::{
    garbage::{Ending, Keys, Rng, Sending, judge, send},
    harness::{PATIENCE, Stack},
};
use tokio::time::timeout;

/// Number of requests, unless `FAREGATE_FUZZ_REQUESTS` sets it. Set `FAREGATE_FUZZ_SEED` to repeat a run.
const REQUESTS: u64 = 2_000;
/// Number of requests per installation, since more keys and records would only make it slower.
const ROUND: u64 = 2_000;
/// Number of concurrent connections.
const AT_ONCE: usize = 24;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_comes_is_answered_and_nothing_is_held_for_good() {
    let setting = |name, default| env::var(name).map_or(default, |text| text.parse().unwrap());
    let (requests, seed) = (setting("FAREGATE_FUZZ_REQUESTS", REQUESTS), setting("FAREGATE_FUZZ_SEED", 1));
    for first in (0..requests).step_by(usize::try_from(ROUND).unwrap()) {
        round(seed, first..requests.min(first + ROUND)).await;
    }
}

/// Sends a range of requests to a separate installation. Each request has its own seed, so that it can be repeated by
/// itself.
async fn round(seed: u64, numbers: std::ops::Range<u64>) {
    let stack = Stack::start().await;
    stack.others_spend();
    let keys = Keys::make(&stack, &stack.account).await;
    let base = stack.server().public().trim_start_matches("http://").to_owned();
    let (mut answered, mut wanted) = (0, 0);
    let mut all = stream::iter(numbers)
        .map(|number| {
            let sending = Sending::roll(&mut Rng::new(seed, number), &keys);
            let base = &base;
            async move {
                let listens = sending.ending == Ending::Listen;
                let answer = timeout(PATIENCE, send(base, &sending)).await;
                let answer = answer.unwrap_or_else(|_| panic!("{seed}/{number} hangs: {sending}")).unwrap();
                assert!(!listens || !answer.is_empty(), "{seed}/{number} is not answered: {sending}");
                if let Err(wrong) = judge(&sending, &answer) {
                    panic!("{seed}/{number} {wrong}: {sending}\n{}", String::from_utf8_lossy(&answer));
                }
                (listens, answer.starts_with(b"HTTP/1.1 200"))
            }
        })
        .buffer_unordered(AT_ONCE);
    while let Some((listens, good)) = all.next().await {
        wanted += u64::from(listens);
        answered += u64::from(good);
    }
    drop(all);
    assert!(
        wanted > 0 && answered > wanted / 20,
        "hardly anything gets past the door: {answered} of {wanted}"
    );
    let health = stack.http.get(&stack.url("/health")).await;
    assert_eq!(health.status, 200, "{health}");
}
