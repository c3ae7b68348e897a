//! Failures of `faregate init`. Each error says what to do next, and no file is left.

use std::fs;

use serde_json::json;
use tests::harness::{Settings, StandIn, free_port};

use super::{Folder, KEY, LIST, PRICE, answer, vendor};

const BEARER: &str = "Bearer sk-init-secret-0123456789";
/// Environment variable that OpenAI's preset names, and the credential that the stand-in accepts.
const VARIABLE: (&str, &str) = ("OPENAI_API_KEY", KEY);

/// A directory with price lists, in which commands are tried, and the vendor that the commands call.
struct Attempts {
    folder: Folder,
    vendor: StandIn,
}

impl Attempts {
    async fn begin() -> Self {
        let folder = Folder::new();
        fs::write(folder.path().join("prices.json"), LIST).unwrap();
        fs::write(folder.path().join("prices.csv"), LIST).unwrap();
        Self { folder, vendor: vendor("authorization", BEARER).await }
    }

    /// Returns the flags for the vendor. They contain neither a model nor a price.
    fn openai(&self) -> String {
        format!("--vendor openai --address {}", self.vendor.url("/v1"))
    }

    /// Asserts that the command fails with these words, and that it leaves no file.
    fn fails(&self, env: &[(&'static str, &str)], flags: &str, expected: &[&str]) {
        let words: Vec<&str> = flags.split_whitespace().collect();
        let Err(error) = self.folder.init(env, &words) else { panic!("{flags:?} does not fail") };
        for words in expected {
            assert!(error.contains(words), "{flags}: {words} is not in {error}");
        }
        assert!(!error.contains("sk-wrong-one"), "{error}");
        let mut files = self.folder.files();
        files.sort();
        assert_eq!(files, ["prices.csv", "prices.json"], "{flags}");
    }
}

#[apply(fact)]
async fn a_flag_that_is_missing_or_wrong_is_named_with_what_it_may_be() {
    let (attempts, price) = (Attempts::begin().await, PRICE.join(" "));
    let missing = ["--vendor or --address; --model; --prices, --price or --free", "--help"];
    attempts.fails(&[], "", &missing);
    attempts.fails(&[], "--vendor openai --free", &["flags: --model ("]);
    let flags = format!("--vendor opnai --model lark {price}");
    attempts.fails(&[], &flags, &["the vendors are openai, anthropic", "--address"]);
    let flags = format!("--address 127.0.0.1 --model lark {price}");
    attempts.fails(&[], &flags, &["http://127.0.0.1:8000/v1"]);
    let flags = format!("--vendor azure --model lark {price}");
    attempts.fails(&[("AZURE_OPENAI_API_KEY", KEY)], &flags, &["--address", "RESOURCE"]);
    let openai = attempts.openai();
    let flags = format!("{openai} --model lark {price} --context-window 10 --max-output-tokens 11");
    attempts.fails(&[VARIABLE], &flags, &["--max-output-tokens"]);
    let flags = format!("{openai} --model lark {price} --out nowhere/models.toml");
    attempts.fails(&[VARIABLE], &flags, &["no folder nowhere", "name another"]);
}

#[apply(fact)]
async fn a_credential_that_is_missing_or_wrong_is_named_by_its_variable() {
    let attempts = Attempts::begin().await;
    let flags = format!("{} --model lark {}", attempts.openai(), PRICE.join(" "));
    attempts.fails(&[], &flags, &["OPENAI_API_KEY is not set", "--api-key-env"]);
    attempts.fails(&[("OPENAI_API_KEY", " ")], &flags, &["OPENAI_API_KEY is not set"]);
    let wrong = ["(401)", "Incorrect API key provided: Bearer …", "Check the key in OPENAI_API_KEY"];
    attempts.fails(&[("OPENAI_API_KEY", "sk-wrong-one")], &flags, &wrong);
    let flags = flags.replace("--vendor openai", "--vendor vllm");
    attempts.fails(&[], &flags, &["needs a credential", "--api-key-env"]);
}

#[apply(fact)]
async fn an_address_without_a_list_of_models_is_named() {
    let attempts = Attempts::begin().await;
    // A server for something else. It answers every path with a web page.
    let pages = StandIn::start(|asked| {
        (if asked.path.starts_with("/v1") { 404 } else { 200 }, "<html></html>".into())
    })
    .await;
    let closed = format!("http://127.0.0.1:{}/v1", free_port());
    for (address, expected) in [
        (closed, &["cannot be reached", "--address"][..]),
        (pages.url("/v1"), &["nothing at", "(404). Check --address", "/v1"]),
        (pages.url(""), &["lists no models", "--address", "/v1"]),
    ] {
        let flags = format!("--vendor openai --address {address} --model lark {}", PRICE.join(" "));
        attempts.fails(&[VARIABLE], &flags, expected);
    }
}

#[apply(fact)]
async fn a_model_or_a_price_that_is_not_there_is_named_with_what_there_is() {
    let attempts = Attempts::begin().await;
    for (flags, expected) in [
        (
            "--model larch --price input=3,output=15",
            &["no model \"larch\"; its models are lark, lark-mini, wren"][..],
        ),
        (
            "--model wren --prices prices.json",
            &["no price for \"wren\" of OpenAI", "--price input", "--free"],
        ),
        ("--model lark --prices prices.csv", &["prices.csv", ".toml nor in .json"]),
        ("--model lark --prices none.json", &["none.json", "No such file"]),
        ("--model lark --price input=3", &["output is missing"]),
        ("--model lark --free --prices prices.json", &["cannot be used with"]),
    ] {
        attempts.fails(&[VARIABLE], &format!("{} {flags}", attempts.openai()), expected);
    }
}

#[apply(fact)]
async fn a_file_that_is_there_is_never_overwritten() {
    let folder = Folder::new();
    fs::write(folder.path().join("models.toml"), "mine").unwrap();
    let stand_in = vendor("authorization", BEARER).await;
    let address = stand_in.url("/v1");
    let flags = ["--vendor", "openai", "--address", &address, "--model", "lark"];
    let error = folder.init(&[("OPENAI_API_KEY", KEY)], &[&flags[..], &PRICE].concat()).unwrap_err();
    assert!(error.contains("models.toml exists already") && error.contains("--out"), "{error}");
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
        printed.as_ref().unwrap().contains("13 prompt tokens and 5 output tokens cost 0 USD"),
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
