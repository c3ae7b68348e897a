//! What `docker-compose.yml` and the `Dockerfile` rely on, without an engine to run them.

use std::time::Instant;

use futures_util::future::join_all;
use serde_json::Value;
use tests::harness::{ACCOUNT, Form, LOOK_EVERY, PATIENCE, Redis, Server, Settings};
use tokio::time::sleep;

/// Key-services that start at once.
const MANY: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn key_services_that_start_at_once_have_one_first_run() {
    let data = tempfile::TempDir::new().unwrap();
    let redis = Redis::start(Form::Alone, &data.path().join("redis")).await;
    let store = data.path().join("store");
    std::fs::write(&store, redis.url()).unwrap();
    let settings: Vec<_> = (0..MANY)
        .map(|number| {
            let data = data.path().join(format!("key-service-{number}"));
            std::fs::create_dir(&data).unwrap();
            let env = vec![
                ("FAREGATE_STORE_FILE", store.display().to_string()),
                ("FAREGATE_PEPPER", "5eed".repeat(16)),
                ("FAREGATE_INTERNAL_TOKEN", "between-the-services".to_owned()),
                ("FAREGATE_FIRST_RUN", "true".to_owned()),
                ("FAREGATE_PUBLIC_URL", "https://models.example.com".to_owned()),
            ];
            Settings { program: "key-service", data, env }
        })
        .collect();
    let servers = join_all(settings.iter().map(Server::start)).await;

    let listed = settings[0].cli(&["management-keys", "list", "--account", ACCOUNT, "--json"]);
    let keys: Vec<Value> = serde_json::from_str(&listed).unwrap();
    assert_eq!(keys.len(), 1, "{listed}");
    let deadline = Instant::now() + PATIENCE;
    let to_paste = "curl https://models.example.com/v1/chat/completions";
    while !servers.iter().any(|server| server.stdout().contains(to_paste)) {
        assert!(Instant::now() < deadline, "nobody prints what to paste");
        sleep(LOOK_EVERY).await;
    }
    let printed = servers.iter().filter(|server| server.stdout().contains("fg_mgmt_")).count();
    assert_eq!(printed, 1, "the one who made the key shows it, and nobody else");
    assert!(servers.iter().all(|server| !server.log().contains("fg_mgmt_")), "no log tells it");
}
