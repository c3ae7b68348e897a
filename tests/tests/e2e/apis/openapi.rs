//! Conformance to the OpenAPI description: a property-based client generates requests from it and looks for deviations.

use std::{env, path::Path, process::Command, time::Duration};

use http::Method;
use serde_json::{Value, json};
use tests::{
    harness::{Door, FLASH, Stack, usd},
    upstream::Script,
};
use tokio::{task::spawn_blocking, time::timeout};

use crate::apis::clients::assert_described;

/// Number of examples per route, unless `FAREGATE_SCHEMATHESIS_EXAMPLES` sets it.
const EXAMPLES: u32 = 20;
/// Maximum time on a slow machine for one example, and for the client to start.
const PER_EXAMPLE: Duration = Duration::from_secs(1);
const STARTING: Duration = Duration::from_mins(10);

/// The check that is skipped. A description cannot express every rule, for instance that a model or a cursor exists, or
/// that a limit does not round to zero. So a request that matches the description may still be refused, with a
/// described error. All other checks run.
const NOT_HELD: &str = "positive_data_acceptance";

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn nothing_is_met_that_is_not_described() {
    let stack = Stack::start().await;
    stack.others_spend();
    // The management key rotates and revokes its account's keys, so the API key belongs to another account.
    let account = stack.open_account("callers", usd("10"));
    let examples = env::var("FAREGATE_SCHEMATHESIS_EXAMPLES").map_or(EXAMPLES, |text| text.parse().unwrap());
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(tests.join(".venv/bin/schemathesis"));
    command
        .arg("--config-file")
        .arg(tests.join("clients/python/schemathesis.toml"))
        .args([
            "run",
            &stack.url("/openapi.json"),
            "--checks",
            "all",
            "--exclude-checks",
            NOT_HELD,
            "--phases",
            "examples,coverage,fuzzing",
        ])
        .args(["--seed", "1", "--no-color", "--max-examples", &examples.to_string()])
        .current_dir(stack.data())
        .env("API_KEY", stack.key_of(&account, json!({})).await.secret)
        .env("MANAGEMENT_KEY", &stack.account.management_key);
    let patience = STARTING + PER_EXAMPLE * examples;
    let ran = timeout(patience, spawn_blocking(move || command.output())).await;
    let ran = ran.expect("it ends in time").unwrap();
    let ran =
        ran.unwrap_or_else(|e| panic!("cannot run schemathesis ({e}); tests/tools/install.sh installs it"));
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(!said.contains("Authentication failed"), "a credential was refused: {said}");
    assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
}

/// Tests the other direction: every accepted request matches the description. The tests that run the clients check
/// their requests in the same way.
#[apply(fact)]
async fn what_is_taken_is_described_however_unusual() {
    let stack = Stack::start().await;
    stack.others_spend();
    let key = stack.key().await;
    let door = Door::before(&stack.url("")).await;
    let url = door.url() + "/v1/chat/completions";
    for body in unusual() {
        let shown = body.to_string();
        let answer = stack.http.send_as(&key.secret, Method::POST, &url, Some(body)).await;
        assert_eq!(answer.status, 200, "{shown}\n{answer}");
    }
    assert_described(&stack, &door.exchanges()).await;
}

/// Tests the settings of keys and groups, and the defaults for keys, in the same way.
#[apply(fact)]
async fn settings_that_are_taken_are_described_however_unusual() {
    let stack = Stack::start().await;
    let door = Door::before(&stack.url("")).await;
    let send = async |method, path: &str, body: Value| {
        let (shown, url) = (body.to_string(), format!("{}/v1/management{path}", door.url()));
        let answer = stack.http.send_as(&stack.account.management_key, method, &url, Some(body)).await;
        assert!(matches!(answer.status, 200 | 201), "{shown}\n{answer}");
        answer.json()["id"].as_str().unwrap().to_owned()
    };
    let parent = send(Method::POST, "/groups", json!({})).await;
    let bounds = [
        json!({"limit": null, "limits": null, "models": null, "requests_per_minute": null, "metadata": null}),
        json!({"limit": 0, "limits": [], "models": ["\u{e9} b"], "tokens_per_minute": 1_000_000_000, "metadata": {}}),
        json!({
            "limits": [{"amount": 0, "per": "hour"}, {"amount": 1e-9, "per": "day"}, {"per": "week", "amount": 1e6},
                {"amount": 0.1, "per": "month"}],
            "max_in_flight": 1,
            "metadata": {"\n": "", "gone": null},
        }),
    ];
    for settings in bounds {
        let with = |more: Value| {
            let mut body = settings.clone();
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        let default = with(json!({"expires_in_seconds": 1}));
        let body = with(json!({"key_defaults": default, "parent_id": parent, "external_id": null}));
        let group = send(Method::POST, "/groups", body).await;
        let key = send(Method::POST, "/keys", with(json!({"group_id": group, "expires_at": null}))).await;
        send(Method::PATCH, &format!("/keys/{key}"), with(json!({"group_id": null}))).await;
        for terms in
            [json!({}), json!({"grace_seconds": 2_592_000}), json!({"grace_seconds": 0, "force": true})]
        {
            send(Method::POST, &format!("/keys/{key}/rotate"), terms).await;
        }
        send(Method::PATCH, &format!("/groups/{group}"), with(json!({"key_defaults": null, "name": ""})))
            .await;
    }
    assert_described(&stack, &door.exchanges()).await;
}

/// Returns unusual bodies, at the limits of what is accepted.
fn unusual() -> Vec<Value> {
    let user = json!({"role": "user", "content": Script::tokens(1, 1).message()});
    let chat = |messages: Value, more: Value| {
        let mut body = json!({"model": FLASH, "messages": messages});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let call = json!({"id": "c", "type": "function", "function": {"name": "f g", "arguments": ""}});
    let part = json!({"type": "refusal", "refusal": "I cannot."});
    let assistants = [
        json!({"refusal": "I cannot."}),
        json!({"content": null, "refusal": "I cannot."}),
        json!({"content": [part, {"type": "text", "text": ""}], "refusal": null, "tool_calls": null}),
        json!({"content": "", "refusal": "", "reasoning_content": null, "name": null}),
        json!({"content": null, "reasoning_content": ""}),
        json!({"tool_calls": [call], "reasoning_content": "hm", "refusal": "I cannot."}),
    ];
    let images = [
        "HTTPS://images.example.com:8443/cat-1.png?size=%20x&a=b#top",
        "http://example.com",
        "https://größer.example/ä.webp",
        "data:image/png;base64,QUI=",
        "DATA:Image/JPG;Base64,QQ==",
        "data:image/gif;base64,+/+/",
    ];
    let function = |name: &str| json!({"type": "function", "function": {"name": name}});
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": null, "strict": null}}, function("g")]);
    let choices = [
        json!("none"),
        json!(null),
        function("g"),
        json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function("f"), function("f")]}}),
    ];
    let mores = [
        json!({"stop": ["a"], "seed": i64::MIN, "logit_bias": {"0": -100}, "modalities": ["text"], "reasoning_effort": null}),
        json!({"stream": true, "stream_options": {"include_usage": null, "unheard_of": 1}, "stop": "x", "temperature": 2.0}),
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "description": null, "schema": {}}}}),
        json!({"logprobs": true, "top_logprobs": 20, "n": 8, "max_tokens": 1, "max_completion_tokens": 1, "user": 7}),
        json!({"logprobs": true, "stream": true, "response_format": {"type": "text", "json_schema": 7}}),
    ];
    let mut bodies: Vec<Value> = mores.into_iter().map(|more| chat(json!([user]), more)).collect();
    bodies.extend(assistants.map(|mut assistant| {
        assistant["role"] = "assistant".into();
        chat(json!([assistant, user]), json!({}))
    }));
    bodies.extend(images.map(|url| {
        let image = json!({"type": "image_url", "image_url": {"url": url, "detail": null}});
        chat(json!([{"role": "user", "content": [image]}, user]), json!({}))
    }));
    bodies.extend(choices.map(|choice| chat(json!([user]), json!({"tools": tools, "tool_choice": choice}))));
    bodies
}
