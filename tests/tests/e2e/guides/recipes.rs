//! The recipes in `docs/governing.md`. They are run as printed.

mod models;

use std::{collections::HashMap, path::Path, process::Command};

use http::Method;
use serde_json::Value;
use tests::{
    harness::{FLASH, MAX, Stack, nanos, run_to_end, usd},
    upstream::Script,
};

use crate::money::budgets::manage;

const PAGE: &str = include_str!("../../../../docs/governing.md");

/// Returns, for each section of the page, its blocks of shell commands.
fn commands() -> HashMap<&'static str, String> {
    let sections = PAGE.split("\n## ").map(|section| {
        let title = section.lines().next().unwrap();
        let blocks = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        (title, blocks.collect::<String>())
    });
    sections.collect()
}

/// Runs all commands in a section, in an empty folder.
async fn run(stack: &Stack, title: &'static str, folder: &Path) -> String {
    run_and(stack, title, folder, "").await
}

/// Runs all commands in a section and then further commands of the test, in an empty folder.
async fn run_and(stack: &Stack, title: &'static str, folder: &Path, more: &str) -> String {
    stack.operator().install(folder);
    let commands = commands();
    let preparation = commands.values().find(|text| text.contains("manage()")).unwrap();
    let preparation: String = preparation.lines().filter(|line| line.starts_with("manage()")).collect();
    let script = format!("set -euo pipefail\n{preparation}\n{}\n{more}", commands[title]);
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(script).current_dir(folder);
    shell.env("PATH", format!("{}:{}", folder.display(), std::env::var("PATH").unwrap()));
    shell.env("FAREGATE", stack.url("")).env("MANAGEMENT_KEY", &stack.account.management_key);
    let output = tokio::task::spawn_blocking(move || run_to_end(&mut shell)).await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    printed
}

/// Sends a request with the plaintext of a key that a recipe created. Returns the status and the error code.
async fn chat(stack: &Stack, secret: &str, model: &str) -> (u16, String) {
    let body = serde_json::json!({
        "model": model,
        "messages": [{"role": "user", "content": Script::tokens(3, 1).message()}],
    });
    let url = stack.url("/v1/chat/completions");
    let answer = stack.http.send_as(secret, Method::POST, &url, Some(body)).await;
    (answer.status, answer.code())
}

async fn group_named(stack: &Stack, name: &str) -> Value {
    let listed = manage(stack, Method::GET, "/groups", None).await.json();
    let groups = listed["data"].as_array().unwrap();
    groups.iter().find(|group| group["name"] == name).unwrap_or_else(|| panic!("{listed}")).clone()
}

#[apply(fact)]
async fn a_course_of_200_students_has_its_keys_and_ends_at_once() {
    let stack = Stack::start().await;
    let folder = tempfile::TempDir::new().unwrap();
    let printed = run(&stack, "A course of 200 students", folder.path()).await;
    assert!(printed.trim_end().ends_with('Z'), "archived at: {printed}");
    let students = std::fs::read_to_string(folder.path().join("students.tsv")).unwrap();
    assert_eq!(students.lines().count(), 200);
    let (_, secret) = students.lines().next().unwrap().split_once('\t').unwrap();
    assert_eq!(chat(&stack, secret, FLASH).await, (401, "group_archived".into()));
    let course = group_named(&stack, "Course 101").await;
    assert_eq!(course["keys"], 200);
    let path = format!("/groups/{}/keys?limit=1", course["id"].as_str().unwrap());
    let key = manage(&stack, Method::GET, &path, None).await.json()["data"][0].clone();
    assert_eq!((&key["limits"][0]["amount"], &key["limits"][0]["per"]), (&5.into(), &"week".into()));
    assert!(key["expires_at"].is_string(), "{key}");
}

#[apply(fact)]
async fn a_team_has_more_until_midnight() {
    let stack = Stack::start().await;
    let folder = tempfile::TempDir::new().unwrap();
    let printed = run(&stack, "More until a time", folder.path()).await;
    assert_eq!(printed.trim_end(), r#"{"amount":10,"remaining":25}"#);
    let until = &group_named(&stack, "Search team").await["limits"][0]["raised"]["until"];
    assert!(until.as_str().unwrap().ends_with("T00:00:00Z"), "{until}");
}

#[apply(fact)]
async fn a_customer_who_prepays_has_an_account_to_which_each_payment_is_added_once() {
    let stack = Stack::start().await;
    let folder = tempfile::TempDir::new().unwrap();
    let printed = run(&stack, "A customer who prepays", folder.path()).await;
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 5, "{printed}");
    assert_eq!(lines[1], lines[2]);
    assert_eq!(lines[3], r#"{"total_deposited":150,"total_refunded":0,"total_used":0,"credit":150}"#);
    assert!(lines[4].starts_with("refund re_1 took 20 USD from cus_4711, 0 USD less"), "{printed}");
    let secret = std::fs::read_to_string(folder.path().join("acme.key")).unwrap();
    assert_eq!(chat(&stack, secret.trim(), FLASH).await.0, 200);
    let accounts: Value = serde_json::from_str(&stack.cli(&["accounts", "list", "--json"])).unwrap();
    assert!(accounts[1]["name"] == "cus_4711" && nanos(&accounts[1]["credit"]) < usd("130"), "{accounts}");
}

#[apply(fact)]
async fn a_customer_pays_into_a_wallet_that_two_products_share() {
    let stack = Stack::start().await;
    stack.others_spend();
    let folder = tempfile::TempDir::new().unwrap();
    // Ten more payments are sent at the same time, each of them twice.
    let more = "for n in 3 4 5 6 7 8 9 10 11 12; do pay pay_$n 1 & pay pay_$n 1 & done; wait; pay pay_1 100";
    let printed = run_and(&stack, "A customer with a wallet and two products", folder.path(), more).await;
    let limits: Vec<&str> = printed.lines().collect();
    // A payment that is repeated has the answer that it had at first.
    assert_eq!((&limits[..2], limits.last()), (&["100", "150"][..], Some(&"100")));
    let secret = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap().trim().to_owned();
    assert_eq!(chat(&stack, &secret("search.key"), FLASH).await.0, 200);
    assert_eq!(chat(&stack, &secret("search.key"), MAX).await, (403, "model_not_allowed".into()));
    assert_eq!(chat(&stack, &secret("support.key"), MAX).await.0, 200);
    let customer = group_named(&stack, "Acme").await;
    let [search, support] =
        [group_named(&stack, "Acme search").await, group_named(&stack, "Acme support").await];
    assert_eq!(
        nanos(&customer["used"]).nanos(),
        nanos(&search["used"]).nanos() + nanos(&support["used"]).nanos()
    );
    assert_eq!((nanos(&customer["limit"]), nanos(&customer["paid"])), (usd("160"), usd("160")));
}

#[apply(fact)]
async fn a_team_of_agents_has_a_daily_cap_each_and_is_revoked_at_once() {
    let stack = Stack::start().await;
    let folder = tempfile::TempDir::new().unwrap();
    let printed = run(&stack, "A team of coding agents", folder.path()).await;
    let own: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&own["limits"][0]["per"], &own["max_in_flight"]), (&"day".into(), &4.into()));
    assert_eq!(own["group"]["name"], "Agents");
    let secret = std::fs::read_to_string(folder.path().join("tester.key")).unwrap();
    assert_eq!(chat(&stack, secret.trim(), FLASH).await, (401, "invalid_api_key".into()));
}
