//! A catalogue that the operator reloads: whole or not at all, and requests end at the price at which they began.

use std::{fs, time::Instant};

use shared::money::NanoUsd;
use tests::{
    harness::{ApiKey, PATIENCE, Stack},
    upstream::Script,
};
use tokio::time::{Duration, sleep};

/// A model that is offered later.
const LATER: &str = r#"
[[model]]
id = "Model Later"
owned_by = "model-service"
context_window = 4096
max_output_tokens = 1024

[model.price]
input = "0.10"
cached_input = "0.10"
output = "0.10"

[[model.upstream]]
kind = "openai"
url = "{url}"
model = "scripted/later"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_reloaded_catalogue_holds_for_what_begins_and_a_wrong_one_changes_nothing() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let file = stack.data().join("models.toml");
    let first = fs::read_to_string(&file).unwrap();
    let cost_of =
        |prompt: i64, completion: i64, output: i64| NanoUsd::from_nanos(prompt * 100 + completion * output);
    let mut stream = stack.call(&key, Script::tokens(12, 100).pace(20)).stream().await;
    stream.read_tokens(5).await;

    let dearer = first.replace("output = \"0.40\"", "output = \"0.80\"");
    assert_ne!(dearer, first);
    fs::write(&file, dearer + &LATER.replace("{url}", &stack.upstream.url())).unwrap();
    stack.server().reload();
    logged(&stack, "the catalogue was reloaded").await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.cost(), cost_of(12, 5, 800));
    assert_eq!(stream.rest().await.assert_done().cost(), cost_of(12, 100, 400));
    let offered = offered(&stack, &key).await;
    assert!(offered.contains(&"Model Later".to_owned()), "{offered:?}");

    // The second model has a price below zero: nothing of this catalogue is used.
    fs::write(&file, first.replace("output = \"4.00\"", "output = \"-4.00\"")).unwrap();
    stack.server().reload();
    logged(&stack, "the catalogue was not reloaded").await;
    assert!(stack.server().log().contains("models.toml"), "the log names the file");
    assert_eq!(self::offered(&stack, &key).await, offered);
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.cost(), cost_of(12, 5, 800));
}

/// Waits until the log has these words.
async fn logged(stack: &Stack, words: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !stack.server().log().contains(words) {
        assert!(Instant::now() < deadline, "{}", stack.server().last_words());
        sleep(Duration::from_millis(50)).await;
    }
}

/// Names of the models on offer.
async fn offered(stack: &Stack, key: &ApiKey) -> Vec<String> {
    let models = stack.get(key, "/v1/models").await.json();
    let ids = models["data"].as_array().unwrap().iter().filter_map(|model| model["id"].as_str());
    ids.map(str::to_owned).collect()
}
