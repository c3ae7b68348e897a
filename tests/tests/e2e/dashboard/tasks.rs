//! Tasks that people carry out in the dashboard, in a real browser. `tests/clients/node/tasks.js` contains the tasks
//! and their clicks.

use chrono::{DateTime, Datelike, Months, NaiveTime, Utc};
use serde_json::json;
use shared::{
    clock::{Clock, System},
    money::NanoUsd,
};
use tests::{
    harness::{ApiKey, FLASH, LOOK_EVERY, MAX, Options, PATIENCE, Stack, usd},
    upstream::Script,
};
use tokio::time::{Duration, Instant, sleep};

use super::{
    browser::{invited, link, refused_calls_are_listed},
    signed_in,
};
use crate::{
    apis::clients::{client, succeeds},
    money::budgets::{group, number, requests, send},
};

/// How long a slow machine may take for all tasks.
const EVERY_TASK: Duration = Duration::from_mins(5);
/// Seconds for which an app shows a code. Clocks that differ by a multiple of it change their codes at the same
/// moments.
const CODE_STEP: i64 = 30;
const DAY: i64 = 86_400;

/// Returns the seconds from now to noon of a date, rounded to whole steps. At noon, the day does not end during the
/// test.
fn ahead(date: DateTime<Utc>, now: DateTime<Utc>) -> i64 {
    let noon = date.date_naive().and_time(NaiveTime::MIN).and_utc() + Duration::from_hours(12);
    (noon - now).num_seconds() / CODE_STEP * CODE_STEP
}

/// Sends one request with a prompt of this many tokens to the larger model, and one to the smaller model.
async fn ask_both(stack: &Stack, key: &ApiKey, prompt: u64) {
    for model in [MAX, FLASH] {
        let answer = stack.call(key, Script::tokens(prompt, 50)).with("model", model).send().await;
        assert_eq!(answer.status, 200, "{answer}");
    }
}

/// Sends requests until one is refused. The limit pays for nearly two.
async fn until_refused(stack: &Stack, key: &ApiKey) {
    for status in [200, 200, 402] {
        assert_eq!(send(stack, key).await.status, status);
    }
}

/// Waits until the page of models shows that the models answer, which a key-service reports every ten seconds.
async fn models_answer(stack: &Stack) {
    let mut viewer = signed_in(stack, &stack.account, "first-viewer").await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let page = viewer.get("/dashboard/models").await;
        if page.text().contains("Answered in the last two hours") {
            return;
        }
        assert!(Instant::now() < deadline, "{page}");
        sleep(LOOK_EVERY).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: `make test-slow`"]
async fn thirty_tasks_take_no_more_clicks_than_a_good_console_needs() {
    let now = DateTime::from_timestamp_millis(System.now().millis()).unwrap();
    let last_month = now.with_day(1).unwrap() - Months::new(1);
    let today = ahead(now, now);
    let stack = Stack::with(Options { clocks: vec![ahead(last_month, now)], ..Options::default() }).await;
    let nearly_two = number(NanoUsd::from_nanos(requests(2).nanos() - 1));
    let month = json!([{"amount": 40, "per": "month"}]);
    let engineering = group(&stack, json!({"name": "Engineering", "limits": month})).await;
    let bot = stack.key_with(json!({"label": "code-review-bot", "group_id": engineering["id"]})).await;
    let day = json!([{"amount": nearly_two, "per": "day"}]);
    let tiny = group(&stack, json!({"name": "Tiny team", "limits": day})).await;
    let of_tiny = stack.key_with(json!({"label": "tiny-a", "group_id": tiny["id"]})).await;
    let limited = stack.key_with(json!({"label": "golden-ticket", "limit": nearly_two})).await;
    let leaked = stack.key_with(json!({"label": "in-a-repository"})).await;
    for label in ["nightly-batch", "course-one", "course-two", "course-three"] {
        stack.key_with(json!({"label": label})).await;
    }
    ask_both(&stack, &bot, 50_000).await;
    stack.clocks[0].set(today - DAY);
    ask_both(&stack, &bot, 100_000).await;
    stack.clocks[0].set(today);
    ask_both(&stack, &bot, 200_000).await;
    stack.call(&bot, Script::tokens(20, 10)).stream().await.rest().await.assert_done();
    let generation = stack.journal(&stack.account).last().unwrap()["generation_id"].clone();
    until_refused(&stack, &of_tiny).await;
    until_refused(&stack, &limited).await;
    refused_calls_are_listed(&stack).await;
    models_answer(&stack).await;
    let account = stack.account.name.as_str();
    let mut command = client("node/tasks.js");
    command
        .env("BASE_URL", stack.url("/v1"))
        .env("ACCOUNT", account)
        .env("CLOCK_AHEAD", today.to_string())
        .env("LAST_MONTH", last_month.format("%Y-%m").to_string())
        .env("GENERATION", generation.as_str().unwrap())
        .env("LEAKED_KEY", &leaked.secret)
        .env("OWNER_LINK", link(&stack, &["sign-in-link", "--account", account]))
        .env("VIEWER_LINK", invited(&stack, account, "viewer@example.com", "viewer"))
        .env("OPERATOR_LINK", stack.cli(&["operators", "create", "--name", "ann@example.com"]).trim());
    succeeds("node/tasks.js", command, EVERY_TASK).await;
    // One of the tasks adds credit.
    stack.credited(&stack.account, usd("25"));
}
