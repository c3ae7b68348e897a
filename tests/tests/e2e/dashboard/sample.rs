//! The console on two months of data, in a real browser. `tests/clients/node/sample.js` describes what the console
//! shows there.

use std::{process::Command, time::Duration};

use serde_json::Value;
use shared::clock::{Clock, System};
use tempfile::TempDir;
use tests::harness::{Server, Settings, binary, run_to_end};

use crate::apis::clients::{client, succeeds};

/// How long a slow machine may take to view every page at every width.
const EVERY_PAGE: Duration = Duration::from_mins(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runaway_key_among_hundreds_is_found_from_the_first_page() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    let until = System.now().to_string();
    let filled = run_to_end(Command::new(binary("sample-data")).arg(&data).args(["--until", &until]));
    assert!(filled.status.success(), "{}", String::from_utf8_lossy(&filled.stderr));
    let models = data.join("models.toml").display().to_string();
    let settings = Settings::all_in_one(folder.path(), vec![("FAREGATE_MODELS", models)]);
    let audited = settings.cli(&["audit"]);
    assert!(audited.contains("the books balance (accounts: 14, keys: 301,"), "{audited}");
    let server = Server::start(&settings).await;
    let management_key =
        settings.cli(&["management-keys", "create", "--account", "default", "--name", "test"]);
    let link = settings.cli(&["sign-in-link", "--account", "default"]);
    let link = link.lines().find(|line| line.contains("/sign-in/link#")).unwrap().trim().to_owned();
    let keys = settings.cli(&["keys", "list", "--account", "default", "--json"]);
    let keys: Vec<Value> = serde_json::from_str(&keys).unwrap();
    let runaway = keys.iter().find(|key| key["label"] == "runaway-agent").unwrap();
    let mut command = client("node/sample.js");
    command
        .env("BASE_URL", format!("{}/v1", server.public()))
        .env("MANAGEMENT_KEY", management_key.trim())
        .env("RUNAWAY", runaway["id"].as_str().unwrap())
        .env("OWNER_LINK", link);
    succeeds("node/sample.js", command, EVERY_PAGE).await;
    let audited = settings.cli(&["audit"]);
    assert!(audited.contains("the books balance"), "{audited}");
}
