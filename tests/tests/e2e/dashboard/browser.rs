//! The dashboard in a real browser. `tests/clients/node/dashboard.js` describes what the dashboard shows and does
//! there.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tests::{
    harness::{FLASH, LOOK_EVERY, MAX, PATIENCE, Stack},
    upstream::Script,
};

use crate::apis::clients::{client, succeeds};

/// How long a slow machine may take to view every page, at each width, in both themes and for each role.
const EVERY_PAGE: Duration = Duration::from_mins(15);

/// Labels that are difficult to display.
const LABELS: [&str; 5] = [
    "<script>alert(1)</script>",
    "A label so long that it has to be cut somewhere, for it takes all eighty letters",
    "مفتاح العميل الأول (1)",
    "🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀",
    "",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_works_and_is_accessible_in_a_real_browser() {
    holds("pages").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: `make test-slow`"]
async fn every_act_works_in_a_real_browser() {
    holds("acts").await;
}

/// Runs one part of the checks in browsers at an installation.
async fn holds(part: &str) {
    let stack = Stack::start().await;
    stack.others_spend();
    let customer = stack.key_with(json!({"label": "Customer A", "limit": 5})).await;
    for (model, script) in [
        (FLASH, Script::tokens(1_200, 500)),
        (MAX, Script::tokens(100_000, 5_000)),
        (MAX, Script::tokens(90, 7)),
    ] {
        let answer = stack.call(&customer, script).with("model", model).send().await;
        assert_eq!(answer.status, 200, "{answer}");
    }
    for label in LABELS {
        let key = stack.key_with(json!({"label": label})).await;
        assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
    }
    stack.key_with(json!({"label": "Old", "expires_at": "2020-01-01T00:00:00Z"})).await;
    let spent = stack.key_with(json!({"label": "Spent", "limit": 0.0001})).await;
    for _ in 0..3 {
        stack.call(&spent, Script::tokens(12, 2_000)).with("user", "student-7").send().await;
    }
    refused_calls_are_listed(&stack).await;
    stack.cli(&["accounts", "create", "--name", "empty"]);
    let account = stack.account.name.as_str();
    let group = stack.cli(&["groups", "create", "--account", account, "--name", "Led"]);
    let of_group =
        stack.key_with(json!({"label": "Of the lead", "limit": 5, "group_id": group.trim()})).await;
    assert_eq!(stack.call(&of_group, Script::tokens(1_200, 500)).send().await.status, 200);
    let lead = ["--name", "lead@example.com", "--role", "lead", "--group", "Led"];
    let mut command = client("node/dashboard.js");
    command
        .env("PART", part)
        .env("BASE_URL", stack.url("/v1"))
        .env("MANAGEMENT_KEY", &stack.account.management_key)
        .env("ACCOUNT", account)
        .env("OWNER_LINK", link(&stack, &["sign-in-link", "--account", account]))
        .env("VIEWER_LINK", invited(&stack, account, "viewer@example.com", "viewer"))
        .env("LEAD_LINK", link(&stack, &[&["members", "invite", "--account", account], &lead[..]].concat()))
        .env("OPERATOR_LINK", stack.cli(&["operators", "create", "--name", "ann@example.com"]).trim())
        .env("EMPTY_LINK", invited(&stack, "empty", "owner", "owner"));
    succeeds("node/dashboard.js", command, EVERY_PAGE).await;
}

/// Waits for refused calls to be listed, since a key-service writes them every ten seconds.
pub(super) async fn refused_calls_are_listed(stack: &Stack) {
    let url = stack.url("/v1/management/refusals");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = stack.http.send_as(&stack.account.management_key, Method::GET, &url, None).await;
        if answer.json()["data"].as_array().is_some_and(|listed| !listed.is_empty()) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{answer}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Returns the link for a new member.
pub(super) fn invited(stack: &Stack, account: &str, name: &str, role: &str) -> String {
    link(stack, &["members", "invite", "--account", account, "--name", name, "--role", role])
}

/// Returns the sign-in link that a command prints.
pub(super) fn link(stack: &Stack, arguments: &[&str]) -> String {
    let printed = stack.cli(arguments);
    printed.lines().find(|line| line.contains("/sign-in/link#")).unwrap().trim().to_owned()
}
