//! The Responses and Messages APIs: the same charges as in chat, in each API's own format.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, Call, Deployment, Dialect, Form, Models, Options, PATIENCE, Stack, cost_of, raw},
    upstream::{End, Fault, Script},
};

/// Maximum time until a revocation ends a stream.
const REVOCATION: Duration = Duration::from_secs(5);
/// Number of concurrent agents.
const AGENTS: u64 = 40;

#[apply(fact)]
async fn an_answer_costs_the_same_in_every_dialect() {
    let stack = Stack::start().await;
    for dialect in Dialect::ALL {
        let key = stack.key().await;
        let script = || Script { reasoning_tokens: 5, ..Script::tokens(12, 20) };
        let answer = stack.call(&key, script()).speaking(dialect).send().await;
        assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 20)), "{dialect:?}: {answer}");
        let ended = stack.call(&key, script()).speaking(dialect).stream().await.rest().await;
        assert_eq!((ended.assert_done().cost(), ended.tokens()), (cost_of(12, 20), 20), "{dialect:?}");
        assert_eq!(stack.used(&key).await.nanos(), 2 * cost_of(12, 20).nanos(), "billed before done");
    }
}

#[apply(fact)]
async fn a_stream_goes_on_to_the_last_token_that_can_be_paid_in_every_dialect() {
    let stack = Stack::start().await;
    for dialect in Dialect::ALL {
        let limit = cost_of(100, 3_000);
        let key = stack.key_limited(limit).await;
        let ended =
            stack.call(&key, Script::tokens(100, 50_000)).speaking(dialect).stream().await.rest().await;
        assert_eq!(ended.assert_done().finish_reasons(), ["length"], "{dialect:?}");
        assert_eq!(ended.usage().unwrap()["completion_tokens"], 3_000, "{dialect:?}");
        assert_eq!(stack.used(&key).await, limit, "{dialect:?}");
        let refused = stack.call(&key, Script::tokens(1, 1)).speaking(dialect).send().await;
        assert_eq!(refused.status, 402, "{dialect:?}: {refused}");
    }
}

#[apply(fact)]
async fn a_client_that_leaves_pays_for_what_it_got_in_every_dialect() {
    let stack = Stack::start().await;
    for dialect in Dialect::ALL {
        let key = stack.key().await;
        let call = stack.call(&key, Script::tokens(12, 100_000).pace(10)).speaking(dialect);
        let mut stream = call.stream().await;
        stream.read_tokens(20).await;
        let tag = stream.tag.clone();
        drop(stream);
        let served =
            stack.upstream.wait_for(&tag, "stop", |generation| generation.ended_by(End::ClientLeft)).await;
        stack.released(PATIENCE).await;
        let used = stack.used(&key).await;
        assert!(
            (cost_of(12, 20)..=cost_of(12, served.served.completion)).contains(&used),
            "{dialect:?}: {used}"
        );
    }
}

#[apply(fact)]
async fn a_client_that_leaves_before_a_stream_begins_pays_nothing_in_every_dialect() {
    let stack = Stack::start().await;
    for dialect in Dialect::ALL {
        let key = stack.key().await;
        let call = stack.call(&key, Script::default().fault(Fault::StallBeforeHead)).speaking(dialect);
        let tag = call.tag.clone();
        let opened = tokio::time::timeout(Duration::from_millis(500), call.try_stream()).await;
        assert!(opened.is_err(), "{dialect:?}: it began");
        stack.upstream.wait_for(&tag, "stop", |generation| generation.ended_by(End::ClientLeft)).await;
        stack.released(PATIENCE).await;
        assert_eq!(stack.used(&key).await, NanoUsd::ZERO, "{dialect:?}");
    }
}

#[apply(fact)]
async fn an_upstream_that_breaks_ends_a_stream_with_an_error_in_every_dialect() {
    let stack = Stack::start().await;
    for dialect in Dialect::ALL {
        for fault in [Fault::Cut { after: 4 }, Fault::End { after: 4 }, Fault::Nonsense { after: 4 }] {
            let key = stack.key().await;
            let call = stack.call(&key, Script::tokens(12, 9).fault(fault)).speaking(dialect);
            let ended = call.stream().await.rest().await;
            assert_eq!(
                ended.error_code(),
                dialect.error("upstream_error"),
                "{dialect:?} {fault:?}: {ended:?}"
            );
            assert!(!ended.done && ended.tokens() == 4, "{dialect:?} {fault:?}: {ended:?}");
            stack.released(PATIENCE).await;
            assert_eq!(stack.used(&key).await, cost_of(12, 4), "{dialect:?} {fault:?}");
        }
    }
}

#[apply(fact)]
async fn hidden_reasoning_is_paid_for_in_every_dialect() {
    let stack = Stack::with(Options { kind: "openai", ..Options::default() }).await;
    for dialect in Dialect::ALL {
        let key = stack.key().await;
        let script = Script { reasoning_tokens: 200, hidden_reasoning: true, ..Script::tokens(12, 210) };
        let ended = stack.call(&key, script).speaking(dialect).stream().await.rest().await;
        assert_eq!((ended.assert_done().cost(), ended.tokens()), (cost_of(12, 210), 10), "{dialect:?}");
    }
}

#[apply(fact)]
async fn a_revocation_ends_streams_in_every_dialect() {
    let stack = Stack::start().await;
    for dialect in Dialect::ALL {
        let key = stack.key().await;
        let call = stack.call(&key, Script::tokens(10, 5_000).pace(20)).speaking(dialect);
        let mut stream = call.stream().await;
        stream.read_tokens(5).await;
        stack.revoke(&key).await;
        let revoked = Instant::now();
        let ended = stream.rest().await;
        assert!(revoked.elapsed() < REVOCATION, "{dialect:?}: after {:?}", revoked.elapsed());
        assert_eq!(ended.error_code(), dialect.error("invalid_api_key"), "{dialect:?}: {ended:?}");
        stack.released(PATIENCE).await;
        assert!(stack.used(&key).await >= cost_of(10, ended.tokens() as u64), "{dialect:?}");
    }
}

/// Sends Responses and Messages requests with tool calls as streams, half of them left midway, with keys that cannot
/// pay for all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_agents_over_two_gateways_overspend_nothing_and_leave_nothing() {
    let deployment = Deployment::services(2, 1, Form::Alone);
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    let limit = cost_of(200, 2_000);
    let keys = join_all((0..4).map(|_| stack.key_limited(limit))).await;
    let agents = (0..AGENTS).zip(keys.iter().cycle()).map(|(number, key)| {
        let dialect = if number % 2 == 0 { Dialect::Responses } else { Dialect::Messages };
        let script = Script { tool_calls: 3, ..Script::tokens(20, 200).pace(2) };
        let tools: Vec<Value> = (0..3).map(|tool| tool_of(dialect, &format!("tool_{tool}"))).collect();
        let call = stack.call(key, script).with("tools", tools).speaking(dialect);
        async move {
            let Ok(mut stream) = call.try_stream().await else { return };
            if number % 4 < 2 {
                stream.read_tokens(10).await;
            } else {
                let ended = stream.rest().await;
                ended.assert_done();
            }
        }
    });
    join_all(agents).await;
    stack.released(PATIENCE).await;
    for key in &keys {
        let used = stack.used(key).await;
        assert!(used > NanoUsd::ZERO && used <= limit, "{used} of {limit}");
    }
}

/// Returns a tool in a dialect's own format.
fn tool_of(dialect: Dialect, name: &str) -> Value {
    match dialect {
        Dialect::Chat => json!({"type": "function", "function": {"name": name}}),
        Dialect::Responses => json!({"type": "function", "name": name}),
        Dialect::Messages => json!({"name": name, "input_schema": {"type": "object"}}),
    }
}

/// Asserts that an answer is an error of the Messages API.
#[track_caller]
fn assert_message_error(answer: &Answer, status: u16, kind: &str) {
    assert_eq!(answer.status, status, "{answer}");
    let body = answer.json();
    assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!(kind)), "{answer}");
    assert_eq!(body["request_id"], answer.header("request-id"), "{answer}");
    assert_eq!(answer.header("request-id"), answer.header("x-request-id"));
}

#[apply(fact)]
async fn errors_of_the_messages_api_have_its_form_whatever_finds_them() {
    let env = vec![("FAREGATE_MAX_BODY_MIB", "1".to_owned())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let key = stack.key().await;
    let call = |script: Script| stack.call(&key, script).speaking(Dialect::Messages);
    let send = |method: Method, body: Option<Value>| {
        let url = stack.url("/v1/messages");
        let (http, secret) = (stack.http.clone(), key.secret.clone());
        async move { http.send_as(&secret, method, &url, body).await }
    };
    assert_message_error(&send(Method::GET, None).await, 405, "invalid_request_error");
    assert_message_error(&send(Method::POST, Some(json!({}))).await, 400, "invalid_request_error");
    let large = json!({"x": "x".repeat(2 << 20)});
    assert_message_error(&send(Method::POST, Some(large)).await, 413, "request_too_large");
    let unknown = call(Script::default()).with("model", "none").send().await;
    assert_message_error(&unknown, 404, "not_found_error");
    let poor = stack.key_limited(cost_of(1, 1)).await;
    let poor = stack.call(&poor, Script::tokens(100, 1)).speaking(Dialect::Messages).send().await;
    assert_message_error(&poor, 402, "billing_error");
    let stranger =
        stack.http.send_as("fg_api_x", Method::POST, &stack.url("/v1/messages"), Some(json!({}))).await;
    assert_message_error(&stranger, 401, "authentication_error");
    assert_eq!(stranger.header("x-should-retry"), "false");
    let long = call(Script { context: Some(10), ..Script::tokens(100, 1) }).send().await;
    assert_message_error(&long, 400, "invalid_request_error");
    let message = long.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("prompt is too long: ") && message.contains(" tokens > "), "{message}");
}

#[apply(fact)]
async fn an_agent_that_asks_for_a_websocket_is_sent_back_to_http() {
    let stack = Stack::start().await;
    let open = |path: &str, protocol: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: f\r\nconnection: Upgrade, close\r\nupgrade: {protocol}\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        let base = stack.server().public().to_owned();
        async move { raw(&base, &request).await.to_lowercase() }
    };
    for protocol in ["websocket", "WebSocket", "h2c, websocket"] {
        let answer = open("/v1/responses", protocol).await;
        assert!(answer.starts_with("http/1.1 426 "), "{answer}");
        assert!(answer.contains("\r\nupgrade: http/2.0, http/1.1\r\n"), "{answer}");
        assert!(answer.contains("\r\nconnection: upgrade"), "{answer}");
        assert!(answer.contains("\"code\":\"upgrade_required\""), "{answer}");
    }
    for (path, protocol) in [("/v1/responses", "h2c"), ("/v1/messages", "websocket")] {
        let answer = open(path, protocol).await;
        assert!(answer.starts_with("http/1.1 405 "), "{answer}");
    }
}

#[apply(fact)]
async fn a_credential_comes_in_either_header_and_must_not_differ() {
    let stack = Stack::start().await;
    let (key, other) = (stack.key().await, stack.key().await);
    for dialect in Dialect::ALL {
        let call = |x: &str| stack.call(&key, Script::tokens(1, 1)).speaking(dialect).header("x-api-key", x);
        assert_eq!(call(&key.secret).send().await.status, 200, "{dialect:?}");
        assert_eq!(call(&other.secret).send().await.status, 401, "{dialect:?}");
    }
}

#[apply(fact)]
async fn prompts_are_counted_without_a_hold_and_without_a_charge() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let count = |script: Script| {
        let body =
            json!({"model": "Model Flash", "messages": [{"role": "user", "content": script.message()}]});
        let (http, secret, url) =
            (stack.http.clone(), key.secret.clone(), stack.url("/v1/messages/count_tokens"));
        async move { http.send_as(&secret, Method::POST, &url, Some(body)).await }
    };
    let counted = count(Script { prompt_tokens: Some(321), ..Script::default() }).await;
    assert_eq!((counted.status, counted.json()), (200, json!({"input_tokens": 321})), "{counted}");
    assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
    stack.revoke(&key).await;
    assert_message_error(&count(Script::default()).await, 401, "authentication_error");
}

#[apply(fact)]
async fn hosted_tools_are_dropped_and_named() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    for (dialect, hosted) in [(Dialect::Responses, "web_search"), (Dialect::Messages, "web_search_20250305")]
    {
        let call =
            stack.call(&key, Script::tokens(1, 1)).with("tools", json!([{"type": hosted, "name": "x"}]));
        let tag = call.tag.clone();
        let answer = call.speaking(dialect).send().await;
        assert_eq!((answer.status, answer.header("x-dropped-tools")), (200, hosted), "{answer}");
        assert!(stack.upstream.tagged(&tag)[0].json().get("tools").is_none());
    }
}

#[apply(fact)]
async fn calls_of_a_conversation_have_different_ids_where_the_upstream_repeats_them() {
    let stack = Stack::start().await;
    stack.others_spend();
    let key = stack.key().await;
    for (dialect, input, output, [call_type, id_member]) in [
        (Dialect::Messages, "messages", "content", ["tool_use", "id"]),
        (Dialect::Responses, "input", "output", ["function_call", "call_id"]),
    ] {
        let round = |then| Script { tool_calls: 2, then: Some(Box::new(then)), ..Script::tokens(9, 1) };
        let script = round(round(round(Script::tokens(9, 1))));
        let tag = script.tag.clone();
        let mut conversation = vec![json!({"role": "user", "content": script.message()})];
        let mut ids: Vec<Value> = Vec::new();
        for _ in 0..3 {
            let path = if dialect == Dialect::Messages { "/v1/messages" } else { "/v1/responses" };
            let body = json!({"model": "Model Flash", "max_tokens": 99, input: conversation});
            let answer = stack.http.send_as(&key.secret, Method::POST, &stack.url(path), Some(body)).await;
            assert_eq!(answer.status, 200, "{answer}");
            let items = answer.json()[output].as_array().unwrap().clone();
            let calls = items.iter().filter(|item| item["type"] == call_type);
            let new: Vec<Value> = calls.map(|item| item[id_member].clone()).collect();
            assert_eq!(new.len(), 2, "{answer}");
            if dialect == Dialect::Messages {
                let result = |id: &Value| json!({"type": "tool_result", "tool_use_id": id, "content": "42"});
                let results: Vec<Value> = new.iter().map(result).collect();
                conversation.push(json!({"role": "assistant", "content": items}));
                conversation.push(json!({"role": "user", "content": results}));
            } else {
                let told =
                    |id: &Value| json!({"type": "function_call_output", "call_id": id, "output": "42"});
                conversation.extend(items);
                conversation.extend(new.iter().map(told));
            }
            ids.extend(new);
        }
        assert_eq!(ids[..2], ["call_0", "call_1"], "the upstream's own, where no other call has them");
        let different: BTreeSet<&str> = ids.iter().filter_map(Value::as_str).collect();
        assert_eq!(different.len(), 6, "{dialect:?}: {ids:?}");
        let read = stack.upstream.tagged(&tag).last().unwrap().json();
        let told = read["messages"].as_array().unwrap().iter();
        let told: Vec<&Value> = told.filter_map(|message| message.get("tool_call_id")).collect();
        assert_eq!(told, ids.iter().take(4).collect::<Vec<_>>(), "{dialect:?}: the upstream reads the ids");
    }
}

#[apply(fact)]
async fn a_body_of_the_responses_api_on_the_chat_route_is_told_where_to_go() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let call: Call = stack.call(&key, Script::default()).without("messages").with("input", "Hi");
    let answer = call.send().await;
    answer.assert_error(400, "missing_required_parameter");
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("POST /v1/responses"), "{answer}");
}

#[apply(fact)]
async fn the_demo_model_calls_tools_in_both_dialects() {
    let stack = Stack::with(Options { models: Models::Builtin, ..Options::default() }).await;
    let key = stack.key().await;
    let question = json!([{"role": "user", "content": "What is 2 plus 3?"}]);
    let numbers =
        json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}});
    for dialect in [Dialect::Responses, Dialect::Messages] {
        let mut tool = tool_of(dialect, "add");
        tool["description"] = "Adds".into();
        tool[if dialect == Dialect::Responses { "parameters" } else { "input_schema" }] = numbers.clone();
        let call = stack.call(&key, Script::default()).with("messages", question.clone());
        let answer = call.with("tools", json!([tool])).speaking(dialect).send().await;
        assert_eq!(answer.status, 200, "{answer}");
        let items = answer.json();
        let call = if dialect == Dialect::Responses { &items["output"][0] } else { &items["content"][0] };
        assert_eq!(call["name"], "add", "{answer}");
    }
}

/// A chat model and an embedding model at the scripted upstream.
const WITH_EMBEDDINGS: &str = r#"
[service]
name = "n"
provider = "p"
docs = "d"
[[model]]
id = "Model Flash"
owned_by = "o"
context_window = 1048576
max_output_tokens = 131072
max_tokens_per_image = 16384
[model.price]
input = "0.10"
cached_input = "0.025"
output = "0.40"
[[model.upstream]]
kind = "vllm"
url = "{url}"
model = "scripted/flash"
[[model]]
id = "Embed"
owned_by = "o"
serves = ["embeddings"]
context_window = 8192
max_tokens_per_image = 1
[model.price]
input = "0.10"
cached_input = "0.10"
output = "0.10"
[[model.upstream]]
kind = "vllm"
url = "{url}"
model = "scripted/embed"
"#;

#[apply(fact)]
async fn embeddings_are_held_and_billed_by_their_prompts() {
    let stack = Stack::with(Options { models: Models::Text(WITH_EMBEDDINGS), ..Options::default() }).await;
    stack.others_spend();
    let key = stack.key().await;
    let ask = async |key: &str, body: Value| {
        stack.http.send_as(key, Method::POST, &stack.url("/v1/embeddings"), Some(body)).await
    };
    let two = json!({"model": "Embed", "input": ["a", "b"], "encoding_format": "float"});
    let answer = ask(&key.secret, two.clone()).await;
    assert_eq!((answer.status, answer.cost()), (200, cost_of(20, 0)), "{answer}");
    assert_eq!(answer.json()["model"], "Embed");
    assert!(answer.text().contains("[1.0e-3, -0.50]"), "vectors are passed on as they are: {answer}");
    assert_eq!(stack.used(&key).await, cost_of(20, 0));
    ask(&key.secret, json!({"model": "Model Flash", "input": "a"}))
        .await
        .assert_error(400, "unsupported_value");
    let chat = stack.call(&key, Script::default()).with("model", "Embed").send().await;
    chat.assert_error(400, "unsupported_value");
    let poor = stack.key_limited(NanoUsd::from_nanos(1)).await;
    ask(&poor.secret, two).await.assert_error(402, "key_limit_reached");
    assert_eq!(stack.used(&poor).await, NanoUsd::ZERO);
}
