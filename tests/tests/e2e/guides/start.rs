//! The pages in `docs/start`: the commands on each page are run as printed, with a stand-in for the vendor or the model
//! server, and end with the bill.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::harness::{AskedOf, Given, Server, Settings, StandIn, run_to_end};

/// The command on each page that serves what the earlier commands have prepared.
const SERVES: &str = "faregate --models models.toml\n";
/// Addresses on the pages that the stand-in replaces.
const ADDRESSES: [&str; 4] = [
    "http://127.0.0.1:8000/v1",
    "http://127.0.0.1:11434/v1",
    "https://api.openai.com/v1",
    "https://api.anthropic.com/v1",
];
/// Address of the folder with the public price list.
const LIST: &str = "https://raw.githubusercontent.com/BerriAI/litellm/main";

/// Returns the stand-in's answers: a vendor's list of models and a model server's, the price list, and generations with
/// 13 prompt tokens and 5 output tokens.
fn answer(asked: &AskedOf) -> Given {
    let path = asked.path.split('?').next().unwrap();
    let usage = json!({"input_tokens": 13, "output_tokens": 5, "total_tokens": 18});
    let body = match path.rsplit('/').next().unwrap() {
        "models" => json!({"object": "list", "data": [
            {"id": "gpt-5.6", "object": "model"},
            {"id": "claude-sonnet-5-5", "object": "model"},
            {"id": "qwen3:4b", "object": "model", "owned_by": "library"},
            {"id": "Qwen/Qwen3-4B", "object": "model", "owned_by": "vllm", "max_model_len": 32_768},
        ]}),
        "model_prices_and_context_window.json" => json!({
            "gpt-5.6": {"litellm_provider": "openai", "input_cost_per_token": 4e-6, "output_cost_per_token": 2e-5,
                "max_input_tokens": 400_000, "max_output_tokens": 128_000, "mode": "chat"},
            "claude-sonnet-5-5": {"litellm_provider": "anthropic", "input_cost_per_token": 2e-6,
                "output_cost_per_token": 1e-5, "max_input_tokens": 200_000, "max_output_tokens": 64_000, "mode": "chat"},
        }),
        "completions" => json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "x",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "A key."}}],
            "usage": {"prompt_tokens": 13, "completion_tokens": 5, "total_tokens": 18},
        }),
        "responses" => json!({
            "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "x",
            "output": [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "A key.", "annotations": []}]}],
            "usage": usage,
        }),
        "messages" => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "x",
            "content": [{"type": "text", "text": "A key."}], "stop_reason": "end_turn", "stop_sequence": null,
            "usage": usage,
        }),
        _ => return (404, r#"{"detail":"Not Found"}"#.to_owned()),
    };
    (200, body.to_string())
}

/// Runs commands from a page in a folder, and returns what they print.
async fn shell(folder: &Path, commands: &str, env: &[(&str, String)]) -> String {
    // The environment already contains the keys that a page only asks for.
    let given = commands.lines().filter(|line| !line.starts_with("export FAREGATE="));
    let script = ["set -euo pipefail"].into_iter().chain(given).collect::<Vec<_>>().join("\n");
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(&script).current_dir(folder).envs(env.iter().map(|(name, value)| (name, value)));
    shell.env("PATH", format!("{}:{}", folder.display(), std::env::var("PATH").unwrap()));
    let Output { status, stdout, stderr } =
        tokio::task::spawn_blocking(move || run_to_end(&mut shell)).await.unwrap();
    let printed = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{script}\n{printed}\n{}", String::from_utf8_lossy(&stderr));
    printed
}

/// Runs all commands on a page. Returns the output of the commands that follow the start of the server.
async fn run(page: &str) -> String {
    let text = fs::read_to_string(crate::house::documents::root().join("docs/start").join(page)).unwrap();
    let blocks = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let blocks: Vec<&str> = blocks.collect();
    let start =
        blocks.iter().position(|block| *block == SERVES).unwrap_or_else(|| panic!("{page} serves nothing"));

    let (stand_in, folder) = (StandIn::start(answer).await, TempDir::new().unwrap());
    let (here, files) = (stand_in.url("/v1"), stand_in.url(""));
    let replaced = |text: &str| {
        let text =
            ADDRESSES.iter().fold(text.replace(LIST, &files), |text, address| text.replace(address, &here));
        // No page contains a vendor's address, since `init` knows it.
        text.replace("--vendor openai", &format!("--vendor openai --address {here}"))
            .replace("--vendor anthropic", &format!("--vendor anthropic --address {here}"))
    };
    let keys = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"].map(|name| (name, "sk-start-secret".to_owned()));
    Settings::all_in_one(folder.path(), keys.to_vec()).install(folder.path());
    shell(folder.path(), &replaced(&blocks[..start].concat()), &keys).await;
    let catalogue = folder.path().join("models.toml");
    fs::write(&catalogue, replaced(&fs::read_to_string(&catalogue).unwrap())).unwrap();

    let models = ("FAREGATE_MODELS", catalogue.display().to_string());
    let settings = Settings::all_in_one(folder.path(), [&keys[..], &[models]].concat());
    let server = Server::start(&settings).await;
    let printed = server.printed("export MANAGEMENT_KEY=").await;
    let (_, key) = printed.split_once("export MANAGEMENT_KEY=").unwrap();
    let management_key = key.lines().next().unwrap().to_owned();
    let env = [("FAREGATE", server.public().to_owned()), ("MANAGEMENT_KEY", management_key)];
    let printed = shell(folder.path(), &replaced(&blocks[start + 1..].concat()), &env).await;
    assert!(stand_in.asked().iter().any(|asked| asked.method == Method::POST), "{page}: {printed}");
    settings.cli(&["audit"]);
    printed
}

/// Returns the last line of a page's output, split into words.
fn last_words(printed: &str) -> Vec<&str> {
    printed.lines().last().unwrap().split_whitespace().collect()
}

/// Returns the last line of a page's output, which is JSON.
fn last_json(printed: &str) -> Value {
    serde_json::from_str(printed.lines().last().unwrap()).unwrap_or_else(|e| panic!("{e}: {printed}"))
}

#[apply(fact)]
async fn a_model_server_of_ones_own_has_keys_and_a_bill() {
    let bill = run("vllm.md").await;
    assert_eq!(last_words(&bill)[2..], ["Qwen/Qwen3-4B", "1", "13", "0", "5", "0.0000033"], "{bill}");
    let bill = run("ollama.md").await;
    assert_eq!(last_words(&bill)[2..], ["qwen3:4b", "1", "13", "0", "5", "0.00000165"], "{bill}");
}

#[apply(fact)]
async fn a_vendors_key_becomes_keys_of_ones_own_with_a_bill() {
    let bill = run("openai.md").await;
    assert_eq!(last_words(&bill)[2..], ["gpt-5.6", "2", "26", "0", "10", "0.000304"], "{bill}");
    let bill = run("anthropic.md").await;
    assert!(bill.contains("added payment november of 200 USD to default"), "{bill}");
    let last = last_json(&bill);
    assert_eq!((&last["requests"], &last["cost"]), (&json!(1), &json!(0.000_076)), "{bill}");
}

#[apply(fact)]
async fn a_faculty_reads_the_bill_of_its_courses() {
    let bill = run("university.md").await;
    let last = last_json(&bill);
    assert_eq!((&last["model"], &last["cost"]), (&json!("Qwen/Qwen3-4B"), &json!(0.000_003_3)), "{bill}");
}

#[apply(fact)]
async fn a_reseller_sees_the_margin_of_a_customer_who_prepaid_once() {
    let bill = run("reseller.md").await;
    let payments: Vec<&str> = bill.lines().filter(|line| line.starts_with("added payment")).collect();
    assert!(payments.len() == 2 && payments[0] == payments[1], "{bill}");
    assert_eq!(
        last_words(&bill)[2..],
        ["gpt-5.6", "1", "13", "0", "5", "0.0001824", "0.000152", "0.0000304"],
        "{bill}"
    );
}

#[apply(fact)]
async fn an_agents_run_ends_with_its_bill_and_a_revoked_key() {
    let bill = run("agent.md").await;
    let revoked = json!({"status": "revoked", "used": 0.000_076, "limit_remaining": 1.999_924});
    assert!(
        bill.lines().any(|line| serde_json::from_str::<Value>(line).ok() == Some(revoked.clone())),
        "{bill}"
    );
    assert_eq!(last_json(&bill)["cost"], json!(0.000_076), "{bill}");
}
