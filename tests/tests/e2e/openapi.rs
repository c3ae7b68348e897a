//! The service is what its description says: a property-based client reads it and looks for anything else.

use std::{env, path::Path, process::Command, time::Duration};

use tests::harness::Stack;
use tokio::{task::spawn_blocking, time::timeout};

/// Examples of each route, unless `FAREGATE_SCHEMATHESIS_EXAMPLES` says how many.
const EXAMPLES: u32 = 20;
/// How long one example may take on a slow machine, and the client to start.
const PER_EXAMPLE: Duration = Duration::from_secs(1);
const STARTING: Duration = Duration::from_mins(2);

/// Not everything that a request must be can be described: that a model or a cursor exists, say, or that a limit does not
/// round to zero. So what fits the description may be refused, in described words. Everything else is held against it.
const NOT_HELD: &str = "positive_data_acceptance";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_is_met_that_is_not_described() {
    let stack = Stack::start().await;
    stack.others_spend();
    let examples = env::var("FAREGATE_SCHEMATHESIS_EXAMPLES").map_or(EXAMPLES, |text| text.parse().unwrap());
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(tests.join(".venv/bin/schemathesis"));
    command
        .arg("--config-file")
        .arg(tests.join("clients/python/schemathesis.toml"))
        .args([
            "run",
            &stack.url("/openapi.json"),
            "--checks",
            "all",
            "--exclude-checks",
            NOT_HELD,
            "--phases",
            "examples,coverage,fuzzing",
        ])
        .args(["--seed", "1", "--no-color", "--max-examples", &examples.to_string()])
        .current_dir(stack.data())
        .env("API_KEY", stack.key().await.secret)
        .env("MANAGEMENT_KEY", &stack.account.management_key);
    let patience = STARTING + PER_EXAMPLE * examples;
    let ran = timeout(patience, spawn_blocking(move || command.output())).await;
    let ran = ran.expect("it ends in time").unwrap();
    let ran =
        ran.unwrap_or_else(|e| panic!("cannot run schemathesis ({e}); tests/tools/install.sh installs it"));
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(!said.contains("Authentication failed"), "a door stayed closed: {said}");
    assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
}
