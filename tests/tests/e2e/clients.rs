//! The official OpenAI SDKs, as applications use them. What they see is written down in `tests/clients`.

use std::{path::Path, process::Command, time::Duration};

use serde_json::json;
use tests::harness::{Models, Options, Stack};
use tokio::{task::spawn_blocking, time::timeout};

/// How long all facts of one SDK may take on a slow machine.
const PATIENCE: Duration = Duration::from_mins(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_python_sdk_finds_every_fact() {
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/.venv/bin/python");
    every_fact_holds(python, "python", "sdk.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_node_sdk_finds_every_fact() {
    every_fact_holds("node", "node", "sdk.js").await;
}

/// Runs a script of `tests/clients` against the built-in model; it prints a line a fact.
async fn every_fact_holds(program: &str, folder: &str, script: &str) {
    let stack = Stack::with(Options { models: Models::Builtin, ..Options::default() }).await;
    stack.others_spend();
    let made = stack.manage(http::Method::POST, "", Some(json!({"label": "sdk"}))).await;
    let mut command = Command::new(program);
    command
        .arg(script)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(folder))
        .env("BASE_URL", stack.url("/v1"))
        .env("API_KEY", made.json()["key"].as_str().unwrap())
        .env("MANAGEMENT_KEY", &stack.account.management_key);
    // One that does not end in time ends when its server does.
    let ran = timeout(PATIENCE, spawn_blocking(move || command.output())).await;
    let ran = ran.unwrap_or_else(|_| panic!("{script} does not end")).unwrap();
    let ran =
        ran.unwrap_or_else(|e| panic!("cannot run {program} ({e}); tests/tools/install.sh installs it"));
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
}
