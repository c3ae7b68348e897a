//! Importing keys from another gateway: callers keep their keys, and the keys' earlier spending still counts.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    harness::{ApiKey, Deployment, Form, Options, Stack, cost_of, nanos},
    upstream::Script,
};

use crate::apis::clients::{client, succeeds};

/// Timeout for all checks with the Python client on a slow machine.
const ALL_FACTS: Duration = Duration::from_mins(3);
/// A key from another gateway, and its SHA-256 hash.
const PLAINTEXT: &str = "any-text~that/is+no=key-of-ours";
const SHA256: &str = "51bed613080ff432b65a8dacacc469007e7ee3e2b905564ae4c900002cbc5c7e";
/// Number of keys in an import that is killed.
const MANY: usize = 3_000;
/// Number of times that an import is killed.
const KILLS: u64 = 6;

/// Reads an export made for the tests.
fn fixture(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/moving").join(name).display().to_string()
}

/// Returns the plaintext of the key with this number in the exports.
fn plaintext(n: u8) -> String {
    format!("sk-moved-{n}-0123456789abcdefghij")
}

fn import<'a>(kind: &'a str, files: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["import", kind, "--account", "default", "--file"];
    arguments.extend(files.iter().map(String::as_str));
    arguments.extend(more);
    arguments
}

/// Returns the keys of the account, oldest first.
async fn listed(stack: &Stack) -> Vec<Value> {
    let answer = stack.manage(Method::GET, "?order=asc&limit=1000", None).await.json();
    answer["data"].as_array().unwrap().clone()
}

async fn keys_of_litellm_work(deployment: Deployment, files: Vec<String>) {
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    stack.others_spend();
    let dry = stack.cli(&import("litellm", &files, &["--dry-run"]));
    assert!(
        dry.ends_with(
            "would make 2 groups and 7 keys, 2 of them disabled and 0 revoked; nothing was changed\n"
        ),
        "{dry}"
    );
    assert_eq!(listed(&stack).await, [] as [Value; 0]);
    let said = stack.cli(&import("litellm", &files, &[]));
    assert!(said.ends_with("made 2 groups and 7 keys, 2 of them disabled and 0 revoked\n"), "{said}");
    stack.moved_in().await;
    let before = listed(&stack).await;

    let refusals = [
        (1, None),
        (2, None),
        (3, None),
        (4, Some("key_disabled")),
        (5, Some("key_disabled")),
        (6, Some("key_expired")),
        (7, Some("invalid_api_key")),
        (8, Some("key_limit_reached")),
        (9, Some("invalid_api_key")),
    ];
    let keys: serde_json::Map<_, _> =
        refusals.into_iter().map(|(n, code)| (plaintext(n), json!(code))).collect();
    let mut command = client("python/moved.py");
    command.env("BASE_URL", stack.url("/v1")).env("KEYS", Value::Object(keys).to_string());
    succeeds("python/moved.py", command, ALL_FACTS).await;

    stack.released(Duration::from_secs(5)).await;
    let after = listed(&stack).await;
    let events = stack.cli(&["events", "export", "--account", "default"]);
    let again = stack.cli(&import("litellm", &files, &[]));
    assert!(again.contains("made 0 groups and 0 keys"), "{again}");
    assert_eq!(listed(&stack).await, after, "a second run changes nothing");
    assert_eq!(stack.cli(&["events", "export", "--account", "default"]), events);
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(&after) {
        let spent = nanos(&after["used"]).nanos() - nanos(&before["used"]).nanos();
        let works =
            ["checkout", "research notebook, \"beta\"", "trial"].contains(&before["label"].as_str().unwrap());
        assert_eq!(spent > 0, works, "{after}");
        assert_eq!((&before["id"], &before["limit"]), (&after["id"], &after["limit"]));
    }
    stack.cli(&["audit"]);
}

#[apply(fact)]
async fn json_of_litellm_moves_in_and_the_keys_work_with_the_openai_sdk() {
    keys_of_litellm_work(Deployment::AllInOne, vec![fixture("litellm-1.74.json")]).await;
}

#[apply(fact)]
async fn tables_of_litellm_move_in_and_the_keys_work_with_the_openai_sdk() {
    let tables =
        ["teams", "budgets", "models", "keys"].map(|table| fixture(&format!("litellm-1.74-{table}.csv")));
    keys_of_litellm_work(Deployment::AllInOne, tables.into()).await;
}

#[apply(fact)]
async fn a_later_version_of_litellm_moves_in_over_a_redis() {
    keys_of_litellm_work(Deployment::services(2, 2, Form::Alone), vec![fixture("litellm-1.104.json")]).await;
}

#[apply(fact)]
async fn a_key_of_any_form_moves_in_and_is_never_logged() {
    let stack = Stack::start().await;
    let models = stack.url("/v1/models");
    stack.http.send_as(PLAINTEXT, Method::GET, &models, None).await.assert_error(401, "invalid_api_key");
    let file = stack.data().join("keys.jsonl");
    let line = format!(r#"{{"sha256": "{SHA256}", "used": 0.5, "limit": 2, "label": "moved"}}"#);
    std::fs::write(&file, line).unwrap();
    stack.cli(&import("keys", &[file.display().to_string()], &[]));
    stack.moved_in().await;
    let id = listed(&stack).await[0]["id"].as_str().unwrap().to_owned();
    let key = ApiKey { id, account: stack.account.clone(), secret: PLAINTEXT.to_owned() };
    let answer = stack.call(&key, Script::tokens(10, 5)).send().await;
    assert_eq!((answer.status, answer.cost()), (200, cost_of(10, 5)), "{answer}");
    let own = stack.get(&key, "/v1/key").await.json();
    assert_eq!(own["label"], "moved");
    let used = NanoUsd::from_nanos(500_000_000).checked_add(cost_of(10, 5)).unwrap();
    assert_eq!(nanos(&own["used"]), used);
    let management = stack.url("/v1/management/keys");
    stack
        .http
        .send_as(PLAINTEXT, Method::GET, &management, None)
        .await
        .assert_error(403, "management_key_required");
    let path = stack.url(&format!("/v1/models/sk-{}", "x".repeat(30)));
    stack.http.send_as(PLAINTEXT, Method::GET, &path, None).await;
    let log = stack.server().log();
    assert!(!log.contains(PLAINTEXT) && !log.contains("xxxxx"), "{log}");
}

#[apply(fact)]
async fn an_import_that_names_a_wrong_line_changes_nothing() {
    let stack = Stack::start().await;
    let file = stack.data().join("keys.jsonl");
    let line = |n: usize, more: &str| format!("{{\"sha256\": \"{n:064x}\"{more}}}\n");
    std::fs::write(&file, line(1, "") + &line(2, "") + &line(3, ", \"limit\": \"all\"")).unwrap();
    let files = [file.display().to_string()];
    let (status, _, error) = stack.operator().try_cli(&import("keys", &files, &[]));
    assert!(!status.success() && error.contains("keys.jsonl line 3: `limit` must be a number"), "{error}");
    assert_eq!(listed(&stack).await, [] as [Value; 0]);
}

/// Kills imports at random times. With `is_whole`, either all keys or none must exist after each kill.
async fn a_killed_import_is_completed(stack: &Stack, is_whole: bool) {
    let file: PathBuf = stack.data().join("many.jsonl");
    let line = |n: usize| format!("{{\"sha256\": \"{n:064x}\", \"used\": 0.5, \"label\": \"{n}\"}}\n");
    std::fs::write(&file, (0..MANY).map(line).collect::<String>()).unwrap();
    let files = [file.display().to_string()];
    let count = || {
        let accounts: Value = serde_json::from_str(&stack.cli(&["accounts", "list", "--json"])).unwrap();
        usize::try_from(accounts[0]["keys"].as_u64().unwrap()).unwrap()
    };
    for kill in 0..KILLS {
        let arguments = import("keys", &files, &[]);
        stack.operator().kill_cli(&arguments, Duration::from_millis(20 + 90 * kill)).await;
        let made = count();
        assert!(made <= MANY && (!is_whole || made == 0 || made == MANY), "{made} keys");
    }
    stack.cli(&import("keys", &files, &[]));
    assert_eq!(count(), MANY);
    stack.cli(&["audit"]);
    let usage = stack.cli(&import("keys", &files, &["--dry-run"]));
    assert!(usage.contains(&format!("{MANY} keys exist already and stay unchanged")), "{usage}");
    stack.moved_in().await;
}

#[apply(fact)]
async fn an_import_that_is_killed_has_made_all_or_nothing_over_sqlite() {
    a_killed_import_is_completed(&Stack::start().await, true).await;
}

#[apply(fact)]
async fn an_import_that_is_killed_is_completed_by_the_next_over_redis() {
    let deployment = Deployment::services(1, 1, Form::Alone);
    a_killed_import_is_completed(&Stack::with(Options { deployment, ..Options::default() }).await, false)
        .await;
}
