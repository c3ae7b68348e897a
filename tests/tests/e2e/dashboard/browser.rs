//! The dashboard in a real browser. What it shows and does there is written down in `tests/clients/node/dashboard.js`.

use std::time::Duration;

use serde_json::json;
use tests::{
    harness::{FLASH, MAX, Stack},
    upstream::Script,
};

use crate::clients::{client, succeeds};

/// How long a slow machine may take to load every page at each width, in each colours and for each role.
const EVERY_PAGE: Duration = Duration::from_mins(15);

/// Labels that are hard to show.
const LABELS: [&str; 5] = [
    "<script>alert(1)</script>",
    "A label so long that it has to be cut somewhere, for it takes all eighty letters",
    "مفتاح العميل الأول (1)",
    "🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀",
    "",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_works_and_is_accessible_in_a_real_browser() {
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
    stack.cli(&["accounts", "create", "--name", "empty"]);
    let account = stack.account.name.as_str();
    let mut command = client("node/dashboard.js");
    command
        .env("BASE_URL", stack.url("/v1"))
        .env("MANAGEMENT_KEY", &stack.account.management_key)
        .env("ACCOUNT", account)
        .env("OWNER_LINK", link(&stack, &["sign-in-link", "--account", account]))
        .env("VIEWER_LINK", invited(&stack, account, "viewer@example.com", "viewer"))
        .env("EMPTY_LINK", invited(&stack, "empty", "owner", "owner"));
    succeeds("node/dashboard.js", command, EVERY_PAGE).await;
}

/// The link of a new member.
fn invited(stack: &Stack, account: &str, name: &str, role: &str) -> String {
    link(stack, &["members", "invite", "--account", account, "--name", name, "--role", role])
}

/// The sign-in link that a command prints.
fn link(stack: &Stack, arguments: &[&str]) -> String {
    let printed = stack.cli(arguments);
    printed.lines().find(|line| line.contains("/sign-in/link#")).unwrap().trim().to_owned()
}
