//! From an empty folder to a billed answer.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use http::Method;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use shared_catalog::Catalog;
use tests::{
    harness::{FLASH, MAX, Models, Options, Server, Settings, Stack, cost, cost_of, nanos, run_to_end, usd},
    upstream::{Script, Usage},
};

#[apply(fact)]
async fn a_whole_answer_costs_exactly_its_tokens() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    assert_eq!(stack.show(&key).await["last_used_at"], Value::Null);

    let answer = stack.call(&key, Script::tokens(12, 5)).send().await;

    assert_eq!(answer.status, 200, "{answer}");
    assert!(answer.text().contains(r#""cost":0.0000032"#), "written without an exponent: {answer}");
    let usage = &answer.json()["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(12), &json!(5)));
    assert_eq!(usage["total_tokens"], 17);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 0);
    let shown = stack.manage(Method::GET, &format!("/{}", key.id), None).await;
    assert!(shown.text().contains(r#""used":0.0000032"#), "{shown}");
    assert!(shown.json()["last_used_at"].is_string(), "{shown}");
    assert_eq!(stack.balance(&stack.account).credit, usd("9.9999968"));
}

#[apply(fact)]
async fn a_stream_is_billed_before_its_done() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let ended = stack.call(&key, Script::tokens(1_000, 50).pace(1)).stream().await.rest().await;
    assert_eq!(ended.assert_done().cost(), cost_of(1_000, 50));
    assert_eq!(stack.used(&key).await, cost_of(1_000, 50), "at the first look after [DONE]");
}

#[apply(fact)]
async fn a_stream_without_a_usage_chunk_costs_the_same() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    stack.call(&key, Script::tokens(1_000, 50)).stream_without_usage().await.rest().await.assert_done();
    assert_eq!(stack.used(&key).await, cost_of(1_000, 50));
}

#[apply(fact)]
async fn every_model_has_its_price_and_cached_tokens_theirs() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let script = Script { cached_tokens: 700, ..Script::tokens(1_001, 9) };
    let usage = Usage { prompt: 1_001, cached: 700, completion: 9 };
    let mut sum = 0;
    for model in [FLASH, MAX] {
        let answer = stack.call(&key, script.clone()).with("model", model).send().await;
        assert_eq!(answer.cost(), cost(model, usage), "{answer}");
        assert_eq!(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"], 700);
        sum += answer.cost().nanos();
    }
    assert_eq!(stack.used(&key).await, NanoUsd::from_nanos(sum));
}

#[apply(fact)]
async fn a_first_run_prints_what_to_paste_and_a_later_one_nothing_secret() {
    let stack = Stack::start().await;
    let printed = stack.server().printed("curl").await;
    let start = printed.find("fg_mgmt_").unwrap_or_else(|| panic!("no management key: {printed}"));
    let management_key: String =
        printed[start..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let url = stack.url("/v1/management/keys");
    let answer = stack.http.send_as(&management_key, Method::POST, &url, Some(json!({}))).await;
    assert_eq!(answer.status, 201, "{answer}");

    stack.server().kill();
    stack.server().restart().await;
    let printed = stack.server().stdout();
    assert!(!printed.contains("fg_mgmt_") && !printed.contains("fg_api_"), "{printed}");
}

#[apply(fact)]
async fn the_first_request_of_the_readme_is_answered_as_it_is_printed_and_says_which_key_it_wants() {
    let stack = Stack::with(Options { models: Models::Builtin, ..Options::default() }).await;
    // The script creates its own key and sends a request with it.
    stack.others_spend();
    let (_, section) = include_str!("../../../../README.md").split_once("\n## A first request\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let script = blocks.collect::<String>().replace("http://127.0.0.1:8080", &stack.url(""));
    let run = async |management_key: Option<&str>| {
        let mut shell = Command::new("bash");
        shell.arg("-c").arg(&script).env_remove("MANAGEMENT_KEY").env_remove("API_KEY");
        shell.envs(management_key.map(|key| ("MANAGEMENT_KEY", key)));
        let output = tokio::task::spawn_blocking(move || run_to_end(&mut shell)).await.unwrap();
        [output.stdout, output.stderr].map(|printed| String::from_utf8(printed).unwrap())
    };
    let [answer, said] = run(Some(&stack.account.management_key)).await;
    assert!(answer.contains("\"choices\""), "{answer}\n{said}");
    let [_, said] = run(None).await;
    assert!(said.contains("paste the line that the first run printed"), "{said}");
}

#[apply(fact)]
async fn secrets_are_their_owners_alone_and_no_plaintext_is_kept_or_logged() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    stack.call(&key, Script::tokens(12, 5)).send().await;
    stack.call(&key, Script::tokens(12, 5)).stream().await.rest().await;
    let wrong = format!("{}x", key.secret);
    stack
        .http
        .send_as(&wrong, Method::GET, &stack.url("/v1/models"), None)
        .await
        .assert_error(401, "invalid_api_key");

    let log = stack.server().log();
    for secret in [&key.secret, &stack.account.management_key, &wrong] {
        assert!(!log.contains(secret.as_str()), "the log contains a key");
        for file in files(&stack) {
            let bytes = fs::read(&file).unwrap();
            let kept = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!kept, "{} keeps a plaintext", file.display());
        }
    }
    assert!(
        !log.contains("quick brown") && !log.contains("\"script\""),
        "the log contains prompts or completions"
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&stack.data().join("data")), 0o700, "the folder is its owner's alone");
    let secrets = files(&stack).into_iter().filter(|file| !file.to_string_lossy().contains(".db"));
    for secret in secrets {
        assert_eq!(mode(&secret), 0o600, "{}", secret.display());
    }
}

fn files(stack: &Stack) -> Vec<PathBuf> {
    let listed = fs::read_dir(stack.data().join("data")).unwrap();
    let files: Vec<_> = listed.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    assert!(!files.is_empty(), "the data directory holds files");
    files
}

#[apply(fact)]
async fn without_a_catalogue_the_built_in_model_answers() {
    let stack = Stack::with(Options { models: Models::Builtin, ..Options::default() }).await;
    let key = stack.key().await;
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../config/models.toml")).unwrap();
    let price = Catalog::parse(&text, "models.toml").unwrap().model(FLASH).unwrap().price.base;
    let hello = json!([{"role": "user", "content": "Hello! Who are you?"}]);

    let call = stack.call(&key, Script::default()).with("messages", hello.clone()).with("max_tokens", 24);
    let whole = call.clone().with("seed", 7).send().await;
    assert_eq!(whole.status, 200, "{whole}");
    let said = whole.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    assert!(!said.is_empty(), "{whole}");
    let ended = call.with("seed", 7).stream().await.rest().await;
    assert_eq!(ended.assert_done().text(), said, "the same seed gives the same text, whole or streamed");

    let mut sum = 0;
    for usage in [&whole.json()["usage"], ended.usage().unwrap()] {
        let tokens = |name: &str| i64::try_from(usage[name].as_u64().unwrap()).unwrap();
        assert!(tokens("prompt_tokens") > 0 && (1..=24).contains(&tokens("completion_tokens")), "{usage}");
        let cached =
            i64::try_from(usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()).unwrap();
        let scaled = (tokens("prompt_tokens") - cached) * price.input.nanos()
            + cached * price.cached_input.nanos()
            + tokens("completion_tokens") * price.output.nanos();
        assert_eq!(nanos(&usage["cost"]).nanos(), (scaled + 999_999) / 1_000_000, "{usage}");
        sum += nanos(&usage["cost"]).nanos();
    }
    assert_eq!(stack.used(&key).await.nanos(), sum);
}

#[apply(fact)]
async fn a_wrong_setting_is_refused_at_start_with_its_name() {
    let data = tempfile::TempDir::new().unwrap();
    let catalogue = data.path().join("models.toml");
    fs::write(&catalogue, "[service]\nname = \"x\"\nprovider = \"x\"\ndocs = \"x\"\n").unwrap();
    let cases = [
        ("FAREGATE_MODELS", catalogue.display().to_string()),
        ("FAREGATE_MODELS", "/nothing/there.toml".into()),
        ("FAREGATE_LISTEN", "nowhere".into()),
        ("FAREGATE_LISTEN", "192.0.2.1:1".into()),
        ("FAREGATE_STORE", "carrier-pigeon:".into()),
        // Other processes over the same Redis would not know a pepper that this one generates.
        ("FAREGATE_STORE", "redis://127.0.0.1:1".into()),
        ("FAREGATE_PEPPER", "short".into()),
        ("FAREGATE_KEY_PREFIX", "no_good".into()),
        ("FAREGATE_HOLD_LEASE_SECONDS", "0".into()),
    ];
    for (name, value) in cases {
        let env = vec![(name, value.clone())];
        let said = Server::refuses(&Settings::all_in_one(data.path(), env)).await;
        let last = said.trim_end().rsplit("\n\n").next().unwrap();
        let named = said.contains(name) || said.contains(&flag_of(name)) || said.contains("models.toml");
        assert!(named, "{name}={value}: {last}");
        fs::remove_file(data.path().join("stderr.txt")).unwrap();
    }
}

/// Returns the flag for an environment variable: `--hold-lease-seconds` for `FAREGATE_HOLD_LEASE_SECONDS`.
fn flag_of(variable: &str) -> String {
    format!("--{}", variable.trim_start_matches("FAREGATE_").replace('_', "-").to_lowercase())
}
