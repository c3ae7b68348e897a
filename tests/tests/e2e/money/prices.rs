//! Prices in addition to the three that every model has. Everything that a hosted upstream charges for is billed, and
//! only owners see what the operator pays.

use http::Method;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, ApiKey, Models, Options, Server, Settings, Stack, nanos, usd},
    upstream::{Script, Told},
};

use crate::{dashboard::signed_in, money::budgets::manage};

/// Two models of a reseller. One model has every kind of price, and the other has a markup on the upstream's prices.
const CATALOGUE: &str = r#"
[service]
name = "Faregate"
provider = "Model"
docs = "https://docs.example.com"

[[model]]
id = "hosted"
aliases = ["hosted-latest"]
owned_by = "vendor"
context_window = 1000000
max_output_tokens = 64000
max_tokens_per_image = 1600

[model.price]
input = "3.00"
cached_input = "0.30"
cache_write = "3.75"
cache_write_long = "6.00"
output = "15.00"
reasoning = "20.00"
audio_input = "40.00"
image = "0.002"
request = "0.01"

[[model.price.above]]
prompt_tokens = 200000
input = "6.00"
cached_input = "0.60"
cache_write = "7.50"
output = "22.50"

[[model.upstream]]
kind = "openai"
url = "{url}"
model = "scripted/hosted"
image_urls = "any"

[model.upstream.cost]
input = "2.00"
cached_input = "0.20"
output = "10.00"

[[model]]
id = "marked-up"
owned_by = "vendor"
context_window = 1000000
max_output_tokens = 64000
max_tokens_per_image = 1600
markup = "1.2"

[[model.upstream]]
kind = "openai"
url = "{url}"
model = "scripted/marked-up"

[model.upstream.cost]
input = "0.10"
cached_input = "0.01"
output = "0.40"
"#;

async fn reseller() -> (Stack, ApiKey) {
    let stack = Stack::with(Options { models: Models::Text(CATALOGUE), ..Options::default() }).await;
    stack.others_spend();
    let key = stack.key().await;
    (stack, key)
}

async fn told(stack: &Stack, key: &ApiKey, model: &str, usage: &str) -> Answer {
    let script = Script { told: Told::json(usage), ..Script::tokens(100, 50) };
    let answer = stack.call(key, script).with("model", model).with("max_tokens", 1_000).send().await;
    assert_eq!(answer.status, 200, "{answer}");
    answer
}

/// Returns the cost of a request whose upstream reports this usage, and the usage in the answer.
async fn cost_of_told(usage: &str) -> (NanoUsd, Value) {
    let (stack, key) = reseller().await;
    let answer = told(&stack, &key, "hosted", usage).await;
    assert_eq!(stack.used(&key).await, answer.cost());
    (answer.cost(), answer.json()["usage"].clone())
}

#[apply(fact)]
async fn cache_writes_reasoning_and_requests_have_their_prices() {
    let usage = r#"{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100,
        "prompt_tokens_details":{"cached_tokens":400,"cache_write_tokens":300},
        "completion_tokens_details":{"reasoning_tokens":40}}"#;
    let (cost, shown) = cost_of_told(usage).await;
    // 300 × 3.00 + 400 × 0.30 + 300 × 3.75 + 60 × 15 + 40 × 20 = 3,845 USD per million requests; and 0.01 USD for each
    // request.
    assert_eq!(cost, usd("0.013845"));
    assert_eq!(shown["prompt_tokens_details"]["cached_tokens"], 400);
    assert_eq!(shown["prompt_tokens_details"]["cache_write_tokens"], 300);
    assert_eq!(shown["completion_tokens_details"]["reasoning_tokens"], 40);
}

#[apply(fact)]
async fn writes_of_five_minutes_and_of_an_hour_are_billed_apart() {
    let usage = r#"{"prompt_tokens":1000,"completion_tokens":10,"total_tokens":1010,
        "cache_read_input_tokens":200,"cache_creation_input_tokens":500,
        "cache_creation":{"ephemeral_5m_input_tokens":400,"ephemeral_1h_input_tokens":100}}"#;
    let (cost, _) = cost_of_told(usage).await;
    // 300 × 3.00 + 200 × 0.30 + 400 × 3.75 + 100 × 6.00 + 10 × 15 = 3,210 USD per million requests; and 0.01 USD for
    // each request.
    assert_eq!(cost, usd("0.01321"));
}

#[apply(fact)]
async fn parts_that_exceed_the_prompt_are_billed_within_it_and_counted() {
    let (stack, key) = reseller().await;
    let usage = r#"{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150,
        "prompt_tokens_details":{"cached_tokens":80,"cache_write_tokens":70}}"#;
    let answer = told(&stack, &key, "hosted", usage).await;
    // The most expensive division that is possible: 70 × 3.75 + 30 × 0.30 + 50 × 15 = 1,021.5 USD per million requests;
    // and 0.01 USD for each request.
    assert_eq!(answer.cost(), usd("0.0110215"));
    let metrics = stack.http.get(&format!("{}/metrics", stack.server().admin())).await;
    assert!(metrics.text().contains("faregate_usage_contradictions_total 1"), "{metrics}");
}

#[apply(fact)]
async fn a_prompt_above_a_tier_is_billed_by_its_table_whole() {
    let at = r#"{"prompt_tokens":200000,"completion_tokens":10,"total_tokens":200010}"#;
    let (cost, _) = cost_of_told(at).await;
    assert_eq!(cost, usd("0.61015"), "200,000 × 3.00 + 10 × 15.00, and 0.01");
    let above = r#"{"prompt_tokens":200001,"completion_tokens":10,"total_tokens":200011}"#;
    let (cost, _) = cost_of_told(above).await;
    assert_eq!(cost, usd("1.210231"), "200,001 × 6.00 + 10 × 22.50, and 0.01");
}

#[apply(fact)]
async fn each_image_has_its_price() {
    let (stack, key) = reseller().await;
    let script = Script {
        told: Told::json(r#"{"prompt_tokens":100,"completion_tokens":1,"total_tokens":101}"#),
        ..Script::tokens(100, 1)
    };
    let image = json!({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}});
    let content = json!([{"type": "text", "text": script.message()}, image, image]);
    let call = stack.call(&key, script).with("model", "hosted").with("max_tokens", 10);
    let answer = call.with("messages", json!([{"role": "user", "content": content}])).send().await;
    assert_eq!(answer.cost(), usd("0.014315"), "100 × 3.00 + 15 per million, 2 × 0.002, and 0.01: {answer}");
}

#[apply(fact)]
async fn a_markup_is_a_price_and_margins_are_shown_to_owners_alone() {
    let (stack, key) = reseller().await;
    let usage = r#"{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100}"#;
    let answer = told(&stack, &key, "marked-up", usage).await;
    assert_eq!(answer.cost(), usd("0.000168"), "1,000 × 0.12 + 100 × 0.48 per million");
    let entry = stack.journal(&stack.account).pop().unwrap();
    assert_eq!(nanos(&entry["upstream_cost"]), usd("0.00014"), "{entry}");
    let printed: Value =
        serde_json::from_str(&stack.cli(&["usage", "--account", "default", "--json"])).unwrap();
    let line = printed.as_array().unwrap().iter().find(|line| line["model"] == "marked-up").unwrap();
    assert_eq!((nanos(&line["upstream_cost"]), nanos(&line["margin"])), (usd("0.00014"), usd("0.000028")));
    let id = answer.header("x-generation-id");
    let shown = manage(&stack, Method::GET, &format!("/generations/{id}"), None).await;
    for text in [answer.text(), shown.text(), stack.get(&key, "/v1/key").await.text()] {
        assert!(!text.contains("upstream_cost") && !text.contains("margin"), "{text}");
    }
}

#[apply(fact)]
async fn owners_see_margins_by_model_key_and_group_and_viewers_see_nothing_of_them() {
    let (stack, _) = reseller().await;
    let team = manage(&stack, Method::POST, "/groups", Some(json!({"name": "Team A"}))).await.json();
    let key = stack.key_with(json!({"label": "Customer A", "group_id": team["id"]})).await;
    let usage = r#"{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100,
        "prompt_tokens_details":{"cached_tokens":400,"cache_write_tokens":300},
        "completion_tokens_details":{"reasoning_tokens":40}}"#;
    told(&stack, &key, "marked-up", usage).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    for (by, name) in [("model", "marked-up"), ("key", "Customer A"), ("group", "Team A")] {
        let page = owner.get(&format!("/dashboard/margin?by={by}")).await;
        // The cost is 600 × 0.10 + 400 × 0.01 + 100 × 0.40 = 104 USD per million requests. The price is 1.2 times the
        // cost.
        for shown in [name, "$0.000104", "$0.0001248", "$0.0000208", "16.6 %"] {
            assert!(page.text().contains(shown), "{by}, {shown}: {page}");
        }
    }
    assert_eq!(viewer.get("/dashboard/margin").await.status, 403);
    for path in ["/dashboard", "/dashboard/activity"] {
        assert!(owner.get(path).await.text().contains("/dashboard/margin"), "{path}");
        assert!(!viewer.get(path).await.text().contains("argin"), "{path}");
    }
    let files = |of: &Answer| of.text().lines().map(str::to_owned).collect::<Vec<_>>();
    let table = files(&owner.get("/dashboard/activity.csv").await);
    assert!(table[0].ends_with(",latency_ms,request_id,group,parent_group,upstream_cost"), "{table:?}");
    assert!(table[1].contains(",,300,0,0,0,40,0,chat,") && table[1].ends_with(",0.000104"), "{table:?}");
    let but_the_last = |line: &String| line.rsplit_once(',').unwrap().0.to_owned();
    let expected: Vec<_> = table.iter().map(but_the_last).collect();
    assert_eq!(files(&viewer.get("/dashboard/activity.csv").await), expected);
    let line = |of: &Answer| serde_json::from_str::<Value>(of.text()).unwrap();
    let entry = line(&owner.get("/dashboard/activity.jsonl").await);
    assert_eq!(nanos(&entry["upstream_cost"]), usd("0.000104"), "{entry}");
    let entry = line(&viewer.get("/dashboard/activity.jsonl").await);
    assert_eq!((&entry["reasoning_tokens"], &entry["group_id"]), (&json!(40), &team["id"]), "{entry}");
    assert!(entry.get("upstream_cost").is_none(), "{entry}");
}

#[apply(fact)]
async fn an_alias_is_served_listed_and_echoed_and_billed_as_its_model() {
    let (stack, key) = reseller().await;
    let usage = r#"{"prompt_tokens":100,"completion_tokens":0,"total_tokens":100}"#;
    let answer = told(&stack, &key, "hosted-latest", usage).await;
    assert_eq!(answer.json()["model"], "hosted-latest");
    assert_eq!(stack.journal(&stack.account).pop().unwrap()["model"], "hosted");
    let listed = stack.get(&key, "/v1/models").await.json();
    let listed: Vec<(&str, Option<&str>)> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| (model["id"].as_str().unwrap(), model["alias_of"].as_str()))
        .collect();
    assert_eq!(listed, [("hosted", None), ("marked-up", None), ("hosted-latest", Some("hosted"))]);
    assert_eq!(stack.get(&key, "/v1/models/hosted-latest").await.status, 200);
    let limited = stack.key_with(json!({"models": ["hosted-latest"]})).await;
    told(&stack, &limited, "hosted", usage).await;
    let create = ["keys", "create", "--account", &stack.account.name, "--label", "limited", "--models"];
    let made = stack.cli(&[&create[..], &[r#"["hosted-latest"]"#]].concat());
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(made["models"], json!(["hosted"]), "{made}");
}

#[apply(fact)]
async fn a_catalogue_that_would_lose_money_or_is_unclear_is_refused_at_start_by_name() {
    let wrong = [
        ("input = \"2.00\"", "input = \"3.50\"", &["input", "3.5", "3"][..]),
        ("markup = \"1.2\"", "markup = \"0.9\"", &["markup"][..]),
        (
            "markup = \"1.2\"",
            "markup = \"1.2\"\n[model.price]\ninput = \"1\"\ncached_input = \"1\"\noutput = \"1\"",
            &["markup"][..],
        ),
        ("[\"hosted-latest\"]", "[\"hosted-latest\", \"marked-up\"]", &["marked-up"][..]),
        ("prompt_tokens = 200000", "prompt_tokens = 0", &["prompt_tokens"][..]),
        ("cache_write = \"3.75\"", "cache_writes = \"3.75\"", &["cache_writes"][..]),
    ];
    for (right, wrong, named) in &wrong {
        assert!(CATALOGUE.contains(right), "{right}");
        let data = tempfile::TempDir::new().unwrap();
        let file = data.path().join("models.toml");
        let text = CATALOGUE.replacen(right, wrong, 1).replace("{url}", "http://127.0.0.1:1/v1");
        std::fs::write(&file, text).unwrap();
        let env = vec![("FAREGATE_MODELS", file.display().to_string())];
        let said = Server::refuses(&Settings::all_in_one(data.path(), env)).await;
        assert!(said.contains("models.toml:"), "{wrong}: {said}");
        for name in *named {
            assert!(said.contains(name), "{wrong}: {name} is not named: {said}");
        }
    }
}
