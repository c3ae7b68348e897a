//! Calendar windows: they renew at midnight, on the first of the month and on Mondays, even if a clock steps by
//! seconds.

use chrono::{DateTime, Datelike, Days, NaiveTime, Utc};
use futures_util::future::join_all;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, System},
    money::NanoUsd,
};
use tests::{
    harness::{ApiKey, Options, Stack, Stream, cost_of, nanos},
    upstream::Script,
};
use tokio::time::{Duration, sleep};

use crate::money::budgets::{COMPLETION, PROMPT, number, requests, send};

/// Seconds between the start of a test and the end of its window.
const BEFORE: i64 = 12;
/// Number of streams that run across the end of a window.
const STREAMS: i64 = 50;
/// Cap of a key in each window, in requests.
const CAP: i64 = 6;
/// Maximum number of requests that try to use up the cap, at ten per second.
const MOST_TRIES: usize = 1_000;

/// Returns the machine's time.
fn today() -> DateTime<Utc> {
    DateTime::from_timestamp_millis(System.now().millis()).unwrap()
}

/// Starts an installation whose clock reaches this instant in a few seconds.
async fn shortly_before(instant: DateTime<Utc>) -> Stack {
    let ahead = (instant - today()).num_seconds() - BEFORE;
    Stack::with(Options { clocks: vec![ahead], ..Options::default() }).await
}

fn midnight(after_days: u64) -> DateTime<Utc> {
    (today().date_naive() + Days::new(after_days)).and_time(NaiveTime::MIN).and_utc()
}

fn next(is: impl Fn(DateTime<Utc>) -> bool) -> DateTime<Utc> {
    (1..40).map(midnight).find(|day| is(*day)).unwrap()
}

async fn window(stack: &Stack, key: &ApiKey, per: &str) -> Value {
    let shown = stack.show(key).await;
    shown["limits"].as_array().unwrap().iter().find(|limit| limit["per"] == per).unwrap().clone()
}

/// Waits for the end of a key's window, which currently shows `resets_at`.
async fn turned(stack: &Stack, key: &ApiKey, per: &str, resets_at: &Value) {
    for _ in 0..200 {
        if window(stack, key, per).await["resets_at"] != *resets_at {
            return;
        }
        sleep(Duration::from_millis(200)).await;
    }
    panic!("the window does not turn");
}

async fn a_window_renews_at(per: &str, instant: DateTime<Utc>) {
    let stack = shortly_before(instant).await;
    let key = stack.key_with(json!({"limits": [{"amount": number(requests(2)), "per": per}]})).await;
    let before = window(&stack, &key, per).await;
    assert_eq!(send(&stack, &key).await.status, 200);
    assert_eq!(send(&stack, &key).await.status, 200);
    let refused = send(&stack, &key).await;
    refused.assert_error(402, "key_limit_reached");
    assert_eq!(refused.json()["error"]["resets_at"], instant.format("%Y-%m-%dT%H:%M:%SZ").to_string());
    turned(&stack, &key, per, &before["resets_at"]).await;
    assert_eq!(nanos(&window(&stack, &key, per).await["used"]), NanoUsd::ZERO);
    assert_eq!(send(&stack, &key).await.status, 200);
    assert_eq!(nanos(&window(&stack, &key, per).await["used"]), requests(1));
}

#[apply(fact)]
async fn a_day_renews_at_midnight() {
    a_window_renews_at("day", midnight(1)).await;
}

#[apply(fact)]
async fn a_week_renews_on_monday() {
    a_window_renews_at("week", next(|day| day.weekday().num_days_from_monday() == 0)).await;
}

#[apply(fact)]
async fn a_month_renews_on_the_first() {
    a_window_renews_at("month", next(|day| day.day() == 1)).await;
}

/// Runs streams across the end of a window, next to a key that uses up its cap in both windows.
async fn streams_across(per: &str, instant: DateTime<Utc>) {
    let stack = shortly_before(instant).await;
    let (prompt, completion) = (10, 40);
    let amount = NanoUsd::from_nanos(cost_of(10_000, 2_000).nanos() * 50);
    let key = stack.key_with(json!({"limits": [{"amount": number(amount), "per": per}]})).await;
    let capped = stack.key_with(json!({"limits": [{"amount": number(requests(CAP)), "per": per}]})).await;
    let before = window(&stack, &capped, per).await;
    let streams = join_all((0..STREAMS).map(|number| {
        // Some end in the first window, but most in the second.
        let pace = if number % 5 == 0 { 10 } else { 450 };
        stack.call(&key, Script::tokens(prompt, completion).pace(pace)).stream()
    }))
    .await;
    let held = stack.call(&capped, Script::tokens(PROMPT, COMPLETION).pace(450));
    let held = held.with("max_tokens", COMPLETION).stream().await;
    let rest = join_all(streams.into_iter().map(Stream::rest));
    let asking = spend_in_both(&stack, &capped, per, &before["resets_at"]);
    let (ended, held, served) = tokio::join!(rest, held.rest(), asking);
    for ended in &ended {
        assert_eq!(ended.assert_done().cost(), cost_of(prompt, completion));
    }
    let [used_before, billed_after] = billed_around(&stack, &key, instant);
    let used_after = nanos(&window(&stack, &key, per).await["used"]);
    assert_eq!(used_after, billed_after);
    let one = cost_of(prompt, completion).nanos();
    assert_eq!(used_before.nanos() + used_after.nanos(), one * STREAMS);
    assert!(used_before.nanos() > 0 && used_after.nanos() > 0, "{used_before} before, {used_after} after");

    assert_eq!(held.assert_done().cost(), requests(1));
    let capped_after = nanos(&window(&stack, &capped, per).await["used"]);
    let [capped_before, _] = billed_around(&stack, &capped, instant);
    assert!(capped_before < requests(CAP), "the open stream is held: {capped_before}");
    assert_eq!(capped_after, requests(CAP), "with the stream of the window before");
    assert_eq!(capped_before.nanos() + capped_after.nanos(), requests(served + 1).nanos());
}

/// Returns what a key was billed before an instant, and what it was billed afterwards.
fn billed_around(stack: &Stack, key: &ApiKey, instant: DateTime<Utc>) -> [NanoUsd; 2] {
    let mut billed = [0; 2];
    for entry in stack.journal(&key.account).iter().filter(|entry| entry["key_id"] == key.id.as_str()) {
        let at: DateTime<Utc> = entry["at"].as_str().unwrap().parse().unwrap();
        billed[usize::from(at >= instant)] += nanos(&entry["charged"]).nanos();
    }
    billed.map(NanoUsd::from_nanos)
}

/// Requests more than the cap in the window that ends at `resets_at` and in the next window, until the next one is used
/// up. Returns the number of served requests.
async fn spend_in_both(stack: &Stack, key: &ApiKey, per: &str, resets_at: &Value) -> i64 {
    let mut served = 0;
    for _ in 0..MOST_TRIES {
        let has_turned = window(stack, key, per).await["resets_at"] != *resets_at;
        let answer = send(stack, key).await;
        match answer.status {
            200 => served += 1,
            402 if has_turned => return served,
            402 | 429 => sleep(Duration::from_millis(100)).await,
            _ => panic!("{answer}"),
        }
    }
    panic!("the next window is not used up");
}

#[apply(fact)]
async fn streams_across_midnight_are_billed_in_the_window_of_their_end() {
    streams_across("day", midnight(1)).await;
}

#[apply(fact)]
async fn streams_across_a_monday_are_billed_in_the_window_of_their_end() {
    streams_across("week", next(|day| day.weekday().num_days_from_monday() == 0)).await;
}

#[apply(fact)]
async fn streams_across_the_first_of_a_month_are_billed_in_the_window_of_their_end() {
    streams_across("month", next(|day| day.day() == 1)).await;
}

#[apply(fact)]
async fn a_clock_that_steps_by_forty_seconds_frees_and_traps_nothing() {
    let stack = shortly_before(midnight(1)).await;
    let ahead = (midnight(1) - today()).num_seconds() - BEFORE;
    let key = stack.key_with(json!({"limits": [{"amount": number(requests(2)), "per": "day"}]})).await;
    assert_eq!(send(&stack, &key).await.status, 200);
    // The clock is ahead for a while: the next day begins early, and this is not undone.
    stack.clocks[0].set(ahead + 40);
    assert_eq!(send(&stack, &key).await.status, 200);
    assert_eq!(send(&stack, &key).await.status, 200);
    send(&stack, &key).await.assert_error(402, "key_limit_reached");
    stack.clocks[0].set(ahead);
    send(&stack, &key).await.assert_error(402, "key_limit_reached");
    stack.clocks[0].set(ahead + 40);
    send(&stack, &key).await.assert_error(402, "key_limit_reached");
    stack.clocks[0].set(ahead - 40);
    let refused = send(&stack, &key).await;
    refused.assert_error(402, "key_limit_reached");
    assert_eq!(nanos(&window(&stack, &key, "day").await["used"]), requests(2));
}
