//! What goes wrong, with what to do next, and without a file.

use std::fs;

use serde_json::json;
use tests::harness::{Settings, StandIn, free_port};

use super::{Folder, KEY, LIST, PRICE, answer, vendor};

const BEARER: &str = "Bearer sk-init-secret-0123456789";

#[apply(fact)]
async fn every_failure_says_what_to_do_next_and_leaves_no_file() {
    let folder = Folder::new();
    fs::write(folder.path().join("prices.json"), LIST).unwrap();
    fs::write(folder.path().join("prices.csv"), LIST).unwrap();
    let stand_in = vendor("authorization", BEARER).await;
    let address = stand_in.url("/v1");
    // A server of something else: a page wherever it has one.
    let pages = StandIn::start(|asked| {
        (if asked.path.starts_with("/v1") { 404 } else { 200 }, "<html></html>".into())
    })
    .await;
    let (missing, page) = (pages.url("/v1"), pages.url(""));
    let closed = format!("http://127.0.0.1:{}/v1", free_port());
    let openai = format!("--vendor openai --address {address}");
    let price = PRICE.join(" ");
    let key = ("OPENAI_API_KEY", KEY);
    for (env, flags, expected) in [
        // Without a terminal and without flags.
        (None, String::new(), &["--vendor or --address; --model; --prices, --price or --free", "--help"][..]),
        (None, "--vendor openai --free".into(), &["flags: --model ("]),
        (None, format!("--vendor opnai --model lark {price}"), &["there are openai, anthropic", "--address"]),
        (None, format!("--address 127.0.0.1 --model lark {price}"), &["http://127.0.0.1:8000/v1"]),
        (
            Some(("AZURE_OPENAI_API_KEY", KEY)),
            format!("--vendor azure --model lark {price}"),
            &["--address", "RESOURCE"],
        ),
        // Credentials.
        (None, format!("{openai} --model lark {price}"), &["OPENAI_API_KEY is not set", "--api-key-env"]),
        (
            Some(("OPENAI_API_KEY", " ")),
            format!("{openai} --model lark {price}"),
            &["OPENAI_API_KEY is not set"],
        ),
        (
            Some(("OPENAI_API_KEY", "sk-wrong-one")),
            format!("{openai} --model lark {price}"),
            &["(401)", "Incorrect API key provided: Bearer …", "Check the key in OPENAI_API_KEY"],
        ),
        (
            None,
            format!("--vendor vllm --address {address} --model lark {price}"),
            &["wants a credential", "--api-key-env"],
        ),
        // Addresses.
        (
            Some(key),
            format!("--vendor openai --address {closed} --model lark {price}"),
            &["cannot be reached", "--address"],
        ),
        (
            Some(key),
            format!("--vendor openai --address {missing} --model lark {price}"),
            &["nothing at", "(404). Check --address", "/v1"],
        ),
        (
            Some(key),
            format!("--vendor openai --address {page} --model lark {price}"),
            &["lists no models", "--address", "/v1"],
        ),
        // Models and prices.
        (
            Some(key),
            format!("{openai} --model larch {price}"),
            &["no model \"larch\"; it has lark, lark-mini, wren"],
        ),
        (
            Some(key),
            format!("{openai} --model wren --prices prices.json"),
            &["no price for \"wren\" of OpenAI", "--price input", "--free"],
        ),
        (
            Some(key),
            format!("{openai} --model lark --prices prices.csv"),
            &["prices.csv", ".toml nor in .json"],
        ),
        (Some(key), format!("{openai} --model lark --prices none.json"), &["none.json", "No such file"]),
        (Some(key), format!("{openai} --model lark --price input=3"), &["output is missing"]),
        (Some(key), format!("{openai} --model lark --free --prices prices.json"), &["cannot be used with"]),
        (
            Some(key),
            format!("{openai} --model lark {price} --context-window 10 --max-output-tokens 11"),
            &["--max-output-tokens"],
        ),
        (
            Some(key),
            format!("{openai} --model lark {price} --out nowhere/models.toml"),
            &["no folder nowhere", "name another"],
        ),
    ] {
        let words: Vec<&str> = flags.split_whitespace().collect();
        let env: Vec<_> = env.into_iter().collect();
        let error = folder.init(&env, &words).expect_err(&flags);
        for words in expected {
            assert!(error.contains(words), "{flags}: {words} is not in {error}");
        }
        assert!(!error.contains("sk-wrong-one"), "{error}");
    }
    let mut files = folder.files();
    files.sort();
    assert_eq!(files, ["prices.csv", "prices.json"]);
}

#[apply(fact)]
async fn a_file_that_is_there_is_never_overwritten() {
    let folder = Folder::new();
    fs::write(folder.path().join("models.toml"), "mine").unwrap();
    let stand_in = vendor("authorization", BEARER).await;
    let address = stand_in.url("/v1");
    let flags = ["--vendor", "openai", "--address", &address, "--model", "lark"];
    let error = folder.init(&[("OPENAI_API_KEY", KEY)], &[&flags[..], &PRICE].concat()).unwrap_err();
    assert!(error.contains("models.toml is there already") && error.contains("--out"), "{error}");
    assert_eq!(folder.file("models.toml").unwrap(), "mine");
    assert!(stand_in.asked().is_empty(), "no one is asked in vain");
}

#[apply(fact)]
async fn a_check_that_fails_leaves_no_file_and_a_free_model_costs_nothing() {
    let folder = Folder::new();
    let check = |answer: fn() -> (u16, String)| {
        StandIn::start(move |asked| if asked.path == "/v1/models" { self::answer(asked) } else { answer() })
    };
    for (answer, expected) in [
        ((|| (200, r#"{"choices":[]}"#.into())) as fn() -> (u16, String), "reports no usage"),
        (
            || (402, json!({"error": {"message": "credit balance is too low"}}).to_string()),
            "402: credit balance is too low",
        ),
        (|| (404, json!({"error": {"message": "model is gone"}}).to_string()), "model is gone"),
    ] {
        let stand_in = check(answer).await;
        let address = stand_in.url("/v1");
        let flags = ["--address", &address, "--model", "lark", "--check"];
        let error = folder.init(&[], &[&flags[..], &PRICE].concat()).unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("--check") && error.contains("othing was written"), "{error}");
        assert!(folder.files().is_empty());
    }
    let stand_in = vendor("authorization", "").await;
    let address = stand_in.url("/v1");
    let printed = folder
        .init(&[], &["--vendor", "vllm", "--address", &address, "--model", "lark", "--free", "--check"]);
    assert!(
        printed.as_ref().unwrap().contains("13 tokens of prompt and 5 of output cost 0 USD"),
        "{printed:?}"
    );
}

#[test]
fn help_names_where_the_lists_of_prices_are() {
    let folder = Folder::new();
    let printed = Settings::all_in_one(folder.path(), Vec::new()).cli(&["init", "--help"]);
    for address in [
        "https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json",
        "https://github.com/anomalyco/models.dev/tree/dev/providers",
    ] {
        assert!(printed.contains(address), "{printed}");
    }
}
