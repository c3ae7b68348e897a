//! The operator reloads a catalogue. This happens completely or not at all. Each request is billed at the prices that
//! were in force when it began.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Instant,
};

use futures_util::future::join_all;
use shared::money::NanoUsd;
use tests::{
    harness::{ApiKey, Http, Models, Options, PATIENCE, Server, Stack},
    upstream::{Script, Upstream},
};
use tokio::time::{Duration, sleep};

use crate::{
    operation::{certificates::Signed, tls},
    services::from_environment,
};

/// Line in the log after a reload.
pub(crate) const RELOADED: &str = "catalogue and certificates were reloaded";
pub(crate) const NOT_RELOADED: &str = "nothing was reloaded";

/// A model that is offered only after a reload.
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

#[apply(fact)]
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
    logged(stack.server(), RELOADED, 1).await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.cost(), cost_of(12, 5, 800));
    assert_eq!(stream.rest().await.assert_done().cost(), cost_of(12, 100, 400));
    let offered = offered(&stack, &key).await;
    assert!(offered.contains(&"Model Later".to_owned()), "{offered:?}");

    // The second model has a negative price, so nothing of this catalogue is used.
    fs::write(&file, first.replace("output = \"4.00\"", "output = \"-4.00\"")).unwrap();
    stack.server().reload();
    logged(stack.server(), NOT_RELOADED, 1).await;
    assert!(stack.server().log().contains("models.toml"), "the log names the file");
    assert_eq!(self::offered(&stack, &key).await, offered);
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.cost(), cost_of(12, 5, 800));
}

#[apply(fact)]
async fn servers_that_have_less_than_the_catalogue_promises_are_named_at_start_at_a_reload_and_when_asked() {
    for kind in ["vllm", "llama_cpp"] {
        let upstream = Upstream::start();
        upstream.set_window(8_192);
        let options = Options { kind, models: Models::At(upstream.url()), ..Options::default() };
        let stack = Stack::with(options).await;
        let too_much = |window: u64| format!("context_window is 1048576 here and {window} at the server");
        // For each of the two models, the catalogue promises more than the server has.
        logged(stack.server(), &too_much(8_192), 2).await;
        upstream.set_window(4_096);
        stack.server().reload();
        logged(stack.server(), &too_much(4_096), 2).await;

        let (status, printed, error) = stack.operator().try_cli(&["catalogue", "check", "--ask"]);
        assert!(!status.success() && error.contains("promises: 4"), "{printed}{error}");
        assert_eq!(printed.matches(&too_much(4_096)).count(), 2, "{printed}");
        assert_eq!(printed.matches("max_output_tokens is 131072").count(), 2, "{printed}");
        upstream.set_window(1 << 20);
        let printed = stack.cli(&["catalogue", "check", "--ask"]);
        assert!(!printed.contains("at the server"), "{printed}");
        let address = upstream.url();
        drop(upstream);
        // If a server is unavailable, this is no fault of the catalogue.
        let printed = stack.cli(&["catalogue", "check", "--ask"]);
        assert!(printed.contains("cannot be reached"), "{address}: {printed}");
    }
}

/// Number of reloads, unless `FAREGATE_TEST_RELOADS` sets another. Good and bad files are reloaded in turn.
const RELOADS: u64 = 20;
/// Number of clients, each of which sends one request after the other.
const CLIENTS: usize = 8;

#[apply(fact)]
async fn reloads_under_load_fail_no_request_and_charge_the_price_of_one_catalogue() {
    let reloads = from_environment("FAREGATE_TEST_RELOADS", RELOADS);
    let signed = Signed::new();
    let mut stack = Stack::with(tls::options(&signed)).await;
    stack.http = Http::trusting(&signed.text("ca.pem"), false);
    let key = stack.key().await;
    let file = stack.data().join("models.toml");
    let cheap = fs::read_to_string(&file).unwrap();
    let dear = cheap.replace("output = \"0.40\"", "output = \"0.80\"");
    let certificate = signed.text("cert.pem");
    let (over, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let client = async || {
        let prices = [400, 800].map(|output| NanoUsd::from_nanos(12 * 100 + 5 * output));
        while !over.load(Ordering::Relaxed) {
            let answer = stack.call(&key, Script::tokens(12, 5)).send().await;
            assert!(answer.status == 200 && prices.contains(&answer.cost()), "{answer}");
            sent.fetch_add(1, Ordering::Relaxed);
        }
    };
    let reloading = async {
        let (mut good, mut bad) = (0, 0);
        for round in 0..reloads {
            fs::write(&file, if round % 2 == 0 { &dear } else { &cheap }).unwrap();
            match round % 4 {
                1 => signed.write("cert.pem", "-----BEGIN nothing"),
                2 => fs::write(&file, "no catalogue").unwrap(),
                _ => {}
            }
            stack.server().reload();
            if matches!(round % 4, 1 | 2) {
                bad += 1;
                logged(stack.server(), NOT_RELOADED, bad).await;
            } else {
                good += 1;
                logged(stack.server(), RELOADED, good).await;
            }
            signed.write("cert.pem", &certificate);
        }
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(reloading, join_all((0..CLIENTS).map(|_| client())));
    println!("{reloads} reloads, {} requests, none failed", sent.into_inner());
}

/// Waits until the log contains these words as often as this.
pub(crate) async fn logged(server: &Server, words: &str, times: usize) {
    let deadline = Instant::now() + PATIENCE;
    while server.log().matches(words).count() < times {
        assert!(Instant::now() < deadline, "{}", server.last_words());
        sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the names of the models that are offered.
async fn offered(stack: &Stack, key: &ApiKey) -> Vec<String> {
    let models = stack.get(key, "/v1/models").await.json();
    let ids = models["data"].as_array().unwrap().iter().filter_map(|model| model["id"].as_str());
    ids.map(str::to_owned).collect()
}
