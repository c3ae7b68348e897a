//! Clients that are widely used: the official SDKs, frameworks and a command-line tool. The scripts in `tests/clients`
//! check what the clients see. The tests here check which requests reached the model.

use std::{
    io::{Read, Seek},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    harness::{
        ApiKey, Door, Exchange, FLASH, Models, Options, PATIENCE, Server, Settings, Stack, cost, nanos,
    },
    upstream::{Api, Generation, Script},
};
use tokio::time::{sleep, timeout};

mod agents;

/// Maximum time for checking everything about a client, even on a slow machine.
const ALL_FACTS: Duration = Duration::from_mins(3);

/// Pause between two checks of whether a client has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Number of keys that the tests of pagination need.
const KEYS: usize = 7;

/// How often the SDKs send a request if it may succeed later.
const ATTEMPTS: usize = 3;

/// Token between the services in the stack whose gateways cause errors.
const INTERNAL_TOKEN: &str = "between-the-services";

#[apply(fact)]
async fn the_python_sdk_finds_every_fact() {
    let stack = of(Models::Builtin).await;
    holds("python/sdk.py", &stack, &stack.key().await, &[]).await;
}

#[apply(fact)]
async fn the_node_sdk_finds_every_fact() {
    let stack = of(Models::Builtin).await;
    holds("node/sdk.js", &stack, &stack.key().await, &[]).await;
}

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn the_python_sdk_gets_all_that_the_demo_model_can_do() {
    let stack = of(Models::Builtin).await;
    holds("python/demo_model.py", &stack, &stack.key().await, &[]).await;
}

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn the_python_sdk_gets_all_that_a_model_can_do() {
    let stack = of(Models::Scripted).await;
    let key = many_keys(&stack).await;
    holds("python/scripted.py", &stack, &key, &[]).await;
    assert_forwarded(&stack);
}

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn the_node_sdk_gets_all_that_a_model_can_do() {
    let stack = of(Models::Scripted).await;
    let key = many_keys(&stack).await;
    holds("node/scripted.js", &stack, &key, &[]).await;
    assert_forwarded(&stack);
}

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn langchain_needs_nothing_but_the_address() {
    let stack = of(Models::Scripted).await;
    holds("python/with_langchain.py", &stack, &stack.key().await, &[]).await;
    for body in forwarded(&stack, "langchain images") {
        let parts = &body["messages"][0]["content"];
        assert!(parts[2]["image_url"]["url"].as_str().unwrap().starts_with("data:image/png;base64,"));
    }
    for body in forwarded(&stack, "langchain json_schema") {
        assert_eq!(body["response_format"]["json_schema"]["name"], "Town");
    }
}

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn the_vercel_ai_sdk_needs_nothing_but_the_address() {
    let stack = of(Models::Scripted).await;
    holds("node/ai.js", &stack, &stack.key().await, &[]).await;
    assert_eq!(forwarded(&stack, "ai effort")[0]["reasoning_effort"], "high");
    assert_eq!(forwarded(&stack, "ai 502").len(), 2, "tried again once");
    assert_eq!(forwarded(&stack, "ai shape")[0]["response_format"]["type"], "json_schema");
    let parts = &forwarded(&stack, "ai images")[0]["messages"][0]["content"];
    assert_eq!(parts[1]["image_url"]["url"], "https://images.example.com/cat.png");
    assert!(parts[2]["image_url"]["url"].as_str().unwrap().starts_with("data:image/png;base64,"));
}

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn the_llm_command_needs_nothing_but_the_address() {
    let stack = of(Models::Scripted).await;
    holds("python/command_line.py", &stack, &stack.key().await, &[]).await;
    assert_eq!(forwarded(&stack, "llm schema")[0]["messages"][0]["content"], "Be brief.");
    assert_eq!(forwarded(&stack, "llm schema")[0]["response_format"]["type"], "json_schema");
    let parts = &forwarded(&stack, "llm images")[0]["messages"][0]["content"];
    assert!(parts[1]["image_url"]["url"].as_str().unwrap().starts_with("data:image/png;base64,"));
}

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn the_openai_agents_sdk_converses_and_pays_exactly() {
    converses("python/with_agents.py", "agents").await;
}

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn pydantic_ai_converses_and_pays_exactly() {
    let stack = converses("python/with_pydantic_ai.py", "pydantic-ai").await;
    for body in forwarded(&stack, "pydantic-ai conversation") {
        let reasoning = &body["messages"][7]["reasoning"];
        assert_eq!(reasoning, " the quick brown fox", "{body}");
    }
}

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn langchain_for_node_converses_and_pays_exactly() {
    let stack = converses("node/langchain.js", "langchain js").await;
    assert_eq!(forwarded(&stack, "langchain js shape")[0]["response_format"]["type"], "json_schema");
}

#[apply(fact)]
async fn clients_of_other_dialects_need_nothing_but_address_and_key() {
    let stack = of(Models::Scripted).await;
    let key = stack.key().await;
    holds("python/with_dialects.py", &stack, &key, &[]).await;
    holds("node/dialects.js", &stack, &key, &[]).await;
    for tag in ["responses images", "messages images"] {
        let parts = &forwarded(&stack, tag)[0]["messages"][0]["content"];
        assert!(
            parts[1]["image_url"]["url"].as_str().unwrap().starts_with("data:image/png;base64,"),
            "{tag}"
        );
    }
    for tag in ["responses 503", "messages 503"] {
        assert_eq!(forwarded(&stack, tag).len(), 2, "{tag} is tried again once");
    }
    assert_eq!(forwarded(&stack, "messages thoughts")[0]["messages"][1]["reasoning"], " the quick brown fox");
}

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn clients_of_every_dialect_need_nothing_but_address_and_key_where_the_model_is_at_a_vendor() {
    for api in [Api::Responses, Api::Messages] {
        let stack = at(api).await;
        let key = stack.key().await;
        let spoken = [("SPEAKS", format!("{api:?}"))];
        let spoken = spoken.each_ref().map(|(name, value)| (*name, value.as_str()));
        for script in ["python/with_dialects.py", "node/dialects.js"] {
            holds(script, &stack, &key, &spoken).await;
        }
        assert!(stack.upstream.generations().iter().all(|generation| generation.api == api), "{api:?}");
    }
}

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn the_python_library_of_standard_webhooks_verifies_deliveries() {
    let stack = of(Models::Scripted).await;
    holds("python/with_webhooks.py", &stack, &stack.key().await, &[]).await;
}

#[apply(fact)]
async fn the_node_library_of_standard_webhooks_verifies_deliveries() {
    let stack = of(Models::Scripted).await;
    holds("node/webhooks.js", &stack, &stack.key().await, &[]).await;
}

/// Starts a stack whose upstream is called in this API. Clients that the harness does not know spend money in it.
async fn at(api: Api) -> Stack {
    let (kind, lines) = match api {
        Api::Chat => ("vllm", "image_urls = \"any\""),
        Api::Responses => ("openai", "speaks = [\"responses\"]"),
        Api::Messages => ("anthropic", ""),
    };
    let stack = Stack::with(Options { kind, models: Models::With(lines), ..Options::default() }).await;
    stack.others_spend();
    stack
}

/// Covers every documented error, except internal errors: no request can cause these.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: `make test-slow`"]
async fn the_sdks_make_of_every_error_what_it_is_and_try_again_where_they_should() {
    let env = vec![
        ("FAREGATE_MAX_BODY_MIB", "1".to_owned()),
        ("FAREGATE_INTERNAL_TOKEN", INTERNAL_TOKEN.to_owned()),
    ];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    stack.others_spend();
    let key = stack.key().await;
    let poor = stack.open_account("poor", NanoUsd::ZERO);
    let poor = stack.key_of(&poor, json!({})).await;
    let alone = gateway(&stack, "alone", "http://127.0.0.1:1", "4096").await;
    let full = gateway(&stack, "full", stack.server().address("key-grpc"), "1").await;
    let mut first = stack.call_at(&full, &key, Script::tokens(1, 100_000).pace(10)).stream().await;
    first.read_tokens(1).await;
    let [alone_url, full_url] = [&alone, &full].map(|server| format!("{}/v1", server.public()));
    let more =
        [("POOR_KEY", poor.secret.as_str()), ("ALONE_URL", alone_url.as_str()), ("FULL_URL", &full_url)];
    // Both run at the same time, because they wait most of the time.
    tokio::join!(
        holds("python/errors.py", &stack, &key, &more),
        holds("node/errors.js", &stack, &key, &more)
    );
    for fault in ["500 nested", "401 nested", "nonsense", "429 nested", "504 nested"] {
        let reached = |client: &str| stack.upstream.tagged(&format!("{client}: {fault}")).len();
        assert_eq!(reached("python"), 2 * ATTEMPTS, "{fault}: the sync client and the async one");
        assert_eq!(reached("node"), ATTEMPTS, "{fault}");
    }
    // The gateway of the first stack must run until the hold is settled.
    drop(first);
    stack.released(PATIENCE).await;
}

/// Runs the checks of a framework. Asserts which conversation reached the model, how often a failing request was sent,
/// and that the framework's keys were billed exactly for the generated tokens.
async fn converses(script: &str, client: &str) -> Stack {
    let stack = of(Models::Scripted).await;
    let exchanges = holds(script, &stack, &stack.key().await, &[]).await;
    for body in forwarded(&stack, &format!("{client} conversation")) {
        assert_conversation(&body);
    }
    let answered = |status: u16| exchanges.iter().filter(|exchange| exchange.status == status).count();
    assert_eq!([401, 402, 404].map(answered), [1, 1, 1], "not tried again");
    assert!((1..ATTEMPTS).contains(&answered(429)) && answered(503) == 1, "tried until it succeeds");
    assert_eq!(stack.upstream.tagged(&format!("{client} 429")).len(), 1, "billed once");
    assert_eq!(stack.upstream.tagged(&format!("{client} 503")).len(), 2, "the second of them was answered");
    assert_paid(&stack).await;
    stack
}

/// Asserts that the model received the right conversation. In it, the model has refused, has called a tool without an
/// id, and has reasoned.
fn assert_conversation(body: &Value) {
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    let turn = ["user", "assistant"];
    let expected = [&turn[..], &["user", "assistant", "tool", "assistant"], &turn, &["user"]].concat();
    assert_eq!(roles, expected, "{body}");
    let refused = &messages[1]["content"];
    assert!(*refused == "I cannot." || refused[0]["text"] == "I cannot.", "{body}");
    let id = messages[3]["tool_calls"][0]["id"].as_str().unwrap();
    assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{body}");
    assert_eq!(messages[4]["tool_call_id"], id, "{body}");
    assert_eq!(messages[5]["content"], "It is 42.", "{body}");
}

/// Asserts that all keys of a stack together were billed exactly for the tokens that its model generated.
async fn assert_paid(stack: &Stack) {
    stack.released(PATIENCE).await;
    let listed = stack.manage(Method::GET, "", None).await.json();
    let used: i64 = listed["data"].as_array().unwrap().iter().map(|key| nanos(&key["used"]).nanos()).sum();
    let generated = stack.upstream.generations();
    let costs: i64 = generated.iter().map(|generation| cost(FLASH, generation.served).nanos()).sum();
    assert_eq!(used, costs, "of {} generations", generated.len());
}

/// Starts a stack in which clients that the harness does not know spend money.
async fn of(models: Models) -> Stack {
    let stack = Stack::with(Options { models, ..Options::default() }).await;
    stack.others_spend();
    stack
}

/// Creates a key and, for the tests of pagination, as many others as these need.
async fn many_keys(stack: &Stack) -> ApiKey {
    for number in 1..KEYS {
        stack.key_with(json!({"label": number.to_string()})).await;
    }
    stack.key().await
}

/// Starts another gateway in front of the same upstream, which uses this key-service and has this limit on requests in
/// flight.
async fn gateway(stack: &Stack, name: &str, key_service: &str, most: &str) -> Server {
    let data = stack.data().join(name);
    std::fs::create_dir_all(&data).unwrap();
    let env = vec![
        ("FAREGATE_MODELS", stack.data().join("models.toml").display().to_string()),
        ("FAREGATE_INTERNAL_TOKEN", INTERNAL_TOKEN.to_owned()),
        ("FAREGATE_KEY_SERVICE_URL", key_service.to_owned()),
        ("FAREGATE_MAX_IN_FLIGHT", most.to_owned()),
    ];
    Server::start(&Settings::of("inference-gateway", &data, env)).await
}

/// Returns the requests with this tag, as the model received them.
fn forwarded(stack: &Stack, tag: &str) -> Vec<Value> {
    let sent = stack.upstream.tagged(tag);
    assert!(!sent.is_empty(), "nothing of `{tag}` reached the upstream");
    sent.iter().map(Generation::json).collect()
}

/// Asserts that the model received the requests of an official SDK as it should.
fn assert_forwarded(stack: &Stack) {
    let bodies = |tag: &str| forwarded(stack, tag);
    for body in bodies("images") {
        let parts = &body["messages"][0]["content"];
        assert_eq!(
            parts[1]["image_url"],
            json!({"url": "https://images.example.com/cat.png", "detail": "low"})
        );
        assert!(parts[2]["image_url"]["url"].as_str().unwrap().starts_with("data:image/png;base64,"));
    }
    for body in bodies("tools, answered") {
        let said = body["messages"].as_array().unwrap();
        assert_eq!(
            said[1]["tool_calls"][1]["function"],
            json!({"name": "lookup", "arguments": "{\"q\":\"x\"}"})
        );
        assert_eq!(
            (&said[2]["tool_call_id"], &said[3]["tool_call_id"]),
            (&json!("call_0"), &json!("call_1"))
        );
    }
    for body in bodies("strict tools") {
        assert_eq!(body["tools"][0]["function"]["strict"], true);
    }
    let efforts: Vec<Value> =
        bodies("reasoning").iter_mut().map(|body| body["reasoning_effort"].take()).collect();
    assert!(efforts.contains(&json!("low")) && efforts.contains(&json!("high")), "{efforts:?}");
    for body in bodies("thoughts") {
        assert_eq!(body["messages"][1]["reasoning"], " the quick brown fox");
    }
    for body in bodies("shape") {
        let format = &body["response_format"];
        assert_eq!(
            (&format["type"], &format["json_schema"]["strict"]),
            (&json!("json_schema"), &json!(true))
        );
        assert_eq!(format["json_schema"]["schema"]["required"], json!(["name", "people", "rivers"]));
    }
    for body in bodies("spellings") {
        assert_eq!((&body["messages"][0]["role"], &body["max_tokens"]), (&json!("system"), &json!(4)));
        for dropped in ["user", "metadata", "store", "service_tier", "verbosity", "unheard_of"] {
            assert_eq!(body.get(dropped), None, "{dropped}");
        }
    }
    let broken = ["cut", "no end", "error event", "abort"];
    for tag in broken.map(|name| format!("broken: {name}")) {
        assert!(bodies(&tag).len() <= 2, "{tag} is tried once by each client");
    }
}

/// Runs a script in `tests/clients`, which prints a line for each thing that it has checked. Then compares all recorded
/// requests and answers with the OpenAPI description.
async fn holds(script: &str, stack: &Stack, key: &ApiKey, more: &[(&str, &str)]) -> Vec<Exchange> {
    let door = Door::before(&stack.url("")).await;
    let mut command = client(script);
    command
        .env("BASE_URL", door.url() + "/v1")
        .env("API_KEY", &key.secret)
        .env("MANAGEMENT_KEY", &stack.account.management_key)
        .envs(more.iter().copied());
    succeeds(script, command, ALL_FACTS).await;
    let exchanges = door.exchanges();
    assert_described(stack, &exchanges).await;
    exchanges
}

/// Asserts that the OpenAPI description allows all requests that the service accepted, and the answers to them.
pub(crate) async fn assert_described(stack: &Stack, exchanges: &[Exchange]) {
    let written: Vec<Value> = exchanges.iter().map(Exchange::to_json).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    serde_json::to_writer(&file, &written).unwrap();
    let mut command = client("python/described.py");
    command.arg(file.path()).env("BASE_URL", stack.url("/v1"));
    succeeds("python/described.py", command, ALL_FACTS).await;
}

/// Asserts that another description, such as the operator API's, allows these exchanges.
pub(crate) async fn assert_described_by(description: &Value, exchanges: &[Exchange]) {
    let written: Vec<Value> = exchanges.iter().map(Exchange::to_json).collect();
    let [file, of_description] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    serde_json::to_writer(&file, &written).unwrap();
    serde_json::to_writer(&of_description, description).unwrap();
    let mut command = client("python/described.py");
    command.arg(file.path()).env("BASE_URL", "").env("DESCRIPTION", of_description.path());
    succeeds("python/described.py", command, ALL_FACTS).await;
}

/// Returns a command that runs a script in `tests/clients`.
pub(crate) fn client(script: &str) -> Command {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (folder, file) = script.split_once('/').unwrap();
    let program = match folder {
        "python" => tests.join(".venv/bin/python"),
        other => PathBuf::from(other),
    };
    let mut command = Command::new(program);
    command.arg(file).current_dir(tests.join("clients").join(folder));
    command
}

/// Runs a command until it ends, and asserts that it succeeds. If it fails or takes too long, shows everything that it
/// printed.
pub(crate) async fn succeeds(script: &str, mut command: Command, patience: Duration) {
    let mut printed = tempfile::tempfile().unwrap();
    let ran = command.stdout(printed.try_clone().unwrap()).stderr(printed.try_clone().unwrap()).spawn();
    let mut ran = ran.unwrap_or_else(|e| {
        panic!("cannot run {script} ({e}); tests/tools/install.sh installs what it needs")
    });
    let ended = timeout(patience, async {
        loop {
            match ran.try_wait().unwrap() {
                Some(status) => return status,
                None => sleep(LOOK_EVERY).await,
            }
        }
    });
    let status = ended.await.map_err(|_| "it does not end");
    if status.is_err() {
        ran.kill().unwrap();
    }
    let mut said = String::new();
    printed.rewind().unwrap();
    printed.read_to_string(&mut said).unwrap();
    assert!(status.is_ok_and(|status| status.success()), "{script}, {status:?}:\n{said}");
}
