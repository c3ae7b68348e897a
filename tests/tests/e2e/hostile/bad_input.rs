//! Invalid requests get the documented error and change nothing.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, ApiKey, Http, Options, Stack},
    upstream::Script,
};

/// Body of a request, and the code and the `param` of the expected error.
type Case = (Value, &'static str, &'static str);

#[expect(clippy::needless_pass_by_value, reason = "reads like the other cases")]
fn user(content: Value) -> Value {
    json!({"messages": [{"role": "user", "content": content}]})
}

fn image(url: &str) -> Value {
    user(json!([{"type": "image_url", "image_url": {"url": url}}]))
}

fn function(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
}

/// Returns members to set in an otherwise valid request; null removes a member.
fn members() -> Vec<Case> {
    let string = |length| "x".repeat(length);
    vec![
        (json!({"model": null}), "missing_required_parameter", "model"),
        (json!({"model": 5}), "invalid_type", "model"),
        (json!({"stream": "yes"}), "invalid_type", "stream"),
        (json!({"stream_options": {"include_usage": true}}), "invalid_value", "stream_options"),
        (
            json!({"stream": true, "stream_options": {"include_usage": 1}}),
            "invalid_type",
            "stream_options.include_usage",
        ),
        (json!({"max_tokens": 0}), "integer_below_min_value", "max_tokens"),
        (json!({"max_tokens": -99_999_999_999_999_999_999_999_f64}), "invalid_type", "max_tokens"),
        (json!({"max_tokens": 131_073}), "integer_above_max_value", "max_tokens"),
        (json!({"max_tokens": "5"}), "invalid_type", "max_tokens"),
        (json!({"max_tokens": 1.5}), "invalid_type", "max_tokens"),
        (json!({"max_completion_tokens": 0}), "integer_below_min_value", "max_completion_tokens"),
        (json!({"max_tokens": 5, "max_completion_tokens": 6}), "invalid_value", "max_completion_tokens"),
        (json!({"reasoning_effort": "medium"}), "invalid_value", "reasoning_effort"),
        (json!({"reasoning_effort": 1}), "invalid_type", "reasoning_effort"),
        (json!({"temperature": 2.1}), "decimal_above_max_value", "temperature"),
        (json!({"temperature": -0.1}), "decimal_below_min_value", "temperature"),
        (json!({"temperature": "hot"}), "invalid_type", "temperature"),
        (json!({"top_p": 1.1}), "decimal_above_max_value", "top_p"),
        (json!({"top_p": -1}), "decimal_below_min_value", "top_p"),
        (json!({"frequency_penalty": 2.5}), "decimal_above_max_value", "frequency_penalty"),
        (json!({"presence_penalty": -2.5}), "decimal_below_min_value", "presence_penalty"),
        (json!({"stop": ""}), "empty_string", "stop"),
        (json!({"stop": []}), "empty_array", "stop"),
        (json!({"stop": ["a", ""]}), "empty_string", "stop[1]"),
        (json!({"stop": ["a", "b", "c", "d", "e"]}), "array_above_max_length", "stop"),
        (json!({"stop": 5}), "invalid_type", "stop"),
        (json!({"seed": 1.5}), "invalid_type", "seed"),
        (json!({"n": 0}), "integer_below_min_value", "n"),
        (json!({"n": 9}), "integer_above_max_value", "n"),
        (json!({"logprobs": 1}), "invalid_type", "logprobs"),
        (json!({"logprobs": true, "top_logprobs": 21}), "integer_above_max_value", "top_logprobs"),
        (json!({"logit_bias": []}), "invalid_type", "logit_bias"),
        (json!({"tools": []}), "empty_array", "tools"),
        (json!({"tools": vec![function("f"); 513]}), "array_above_max_length", "tools"),
        (json!({"tools": [{"type": "web_search"}]}), "invalid_value", "tools[0].type"),
        (json!({"tools": [{"type": "function"}]}), "missing_required_parameter", "tools[0].function"),
        (json!({"tools": [function("no spaces")]}), "invalid_value", "tools[0].function.name"),
        (json!({"tools": [function(&string(129))]}), "string_above_max_length", "tools[0].function.name"),
        (json!({"tools": [function("f")], "tool_choice": "maybe"}), "invalid_value", "tool_choice"),
        (json!({"response_format": {"type": "xml"}}), "invalid_value", "response_format.type"),
        (
            json!({"response_format": {"type": "json_schema"}}),
            "missing_required_parameter",
            "response_format.json_schema",
        ),
        (json!({"functions": [{"name": "f"}]}), "unsupported_parameter", "functions"),
        (json!({"function_call": "auto"}), "unsupported_parameter", "function_call"),
        (json!({"audio": {"voice": "x"}}), "unsupported_parameter", "audio"),
        (json!({"modalities": ["text", "audio"]}), "unsupported_value", "modalities[1]"),
    ]
}

fn messages() -> Vec<Case> {
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    vec![
        (json!({"messages": null}), "missing_required_parameter", "messages"),
        (json!({"messages": "hi"}), "invalid_type", "messages"),
        (json!({"messages": []}), "empty_array", "messages"),
        (json!({"messages": [5]}), "invalid_type", "messages[0]"),
        (json!({"messages": [{"content": "x"}]}), "missing_required_parameter", "messages[0].role"),
        (json!({"messages": [{"role": "robot", "content": "x"}]}), "invalid_value", "messages[0].role"),
        (json!({"messages": [{"role": "user"}]}), "missing_required_parameter", "messages[0].content"),
        (user(json!(5)), "invalid_type", "messages[0].content"),
        (user(json!([])), "empty_array", "messages[0].content"),
        (user(json!([{"type": "video"}])), "invalid_value", "messages[0].content[0].type"),
        (user(json!([{"type": "text"}])), "missing_required_parameter", "messages[0].content[0].text"),
        (user(json!([{"type": "input_audio"}])), "unsupported_value", "messages[0].content[0].type"),
        (
            user(json!([{"type": "image_url"}])),
            "missing_required_parameter",
            "messages[0].content[0].image_url",
        ),
        (image("ftp://x/y.png"), "invalid_value", "messages[0].content[0].image_url.url"),
        (image("file:///etc/passwd"), "invalid_value", "messages[0].content[0].image_url.url"),
        (image("data:text/html;base64,AAAA"), "invalid_value", "messages[0].content[0].image_url.url"),
        (image("data:image/png;base64,%%%"), "invalid_value", "messages[0].content[0].image_url.url"),
        (
            json!({"messages": [{"role": "user", "content": "x"}, {"role": "tool", "content": "y"}]}),
            "missing_required_parameter",
            "messages[1].tool_call_id",
        ),
        (
            json!({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "x"}]}]}),
            "invalid_value",
            "messages[0].tool_calls[0].type",
        ),
        (
            json!({"messages": [{"role": "assistant", "content": [5], "tool_calls": [call]}]}),
            "invalid_type",
            "messages[0].content[0]",
        ),
    ]
}

#[apply(fact)]
async fn every_fault_of_a_chat_request_is_named_with_its_place() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    for (over, code, param) in members().into_iter().chain(messages()) {
        let mut call = stack.call(&key, Script::default());
        for (name, value) in over.as_object().unwrap() {
            call = if value.is_null() { call.without(name) } else { call.with(name, value.clone()) };
        }
        let shown: String = call.body.to_string().chars().take(300).collect();
        let answer = call.send().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, code), "{shown}\n{answer}");
        answer.assert_error(400, code).assert_param(Some(param));
    }
    let effort = stack.call(&key, Script::default()).with("reasoning_effort", "medium").send().await;
    let message = effort.json()["error"]["message"].to_string();
    assert!(message.contains("low") && message.contains("high"), "{message}");
    assert_unchanged(&stack, &key).await;
}

/// Asserts that nothing was billed, nothing is held, and nothing reached the upstream.
async fn assert_unchanged(stack: &Stack, key: &ApiKey) {
    let shown = stack.show(key).await;
    assert_eq!((&shown["used"], &shown["last_used_at"]), (&json!(0), &Value::Null));
    assert_eq!(stack.balance(&stack.account).held, NanoUsd::ZERO);
    assert!(stack.upstream.generations().is_empty());
}

async fn post(stack: &Stack, key: &ApiKey, content_type: Option<&str>, body: impl Into<Bytes>) -> Answer {
    let mut request = Request::post(stack.url("/v1/chat/completions"));
    request = request.header("authorization", format!("Bearer {}", key.secret));
    if let Some(content_type) = content_type {
        request = request.header("content-type", content_type);
    }
    // Each request has its own connection: the server closes a connection whose body it has not read to the end.
    Http::new().send(request.body(Full::new(body.into())).unwrap()).await
}

#[apply(fact)]
async fn what_is_no_json_object_is_refused_whole() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let json = Some("application/json");
    let good = stack.call(&key, Script::default()).body.to_string();
    let mut bad_utf8 = good.clone().into_bytes();
    let inside = good.find("script").unwrap();
    bad_utf8[inside] = 0xff;
    let bodies: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"{".to_vec(),
        b"null".to_vec(),
        b"[]".to_vec(),
        b"hello".to_vec(),
        b"\xef\xbb\xbf{}".to_vec(),
        bad_utf8,
        good.replacen('{', "{\"model\":\"x\",", 1).into_bytes(),
        format!("{good} {{}}").into_bytes(),
        good.replacen("\"messages\"", "\"seed\":01,\"messages\"", 1).into_bytes(),
    ];
    for body in bodies {
        let shown = String::from_utf8_lossy(&body).into_owned();
        let answer = post(&stack, &key, json, body).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_json"), "{shown}\n{answer}");
        answer.assert_error(400, "invalid_json").assert_param(None);
    }
    assert_unchanged(&stack, &key).await;
}

#[apply(fact)]
async fn an_error_repeats_little_of_a_long_name() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let name = "n".repeat(2 << 20);
    let twice = format!(r#"{{"{name}":1,"{name}":2}}"#);
    let answer = post(&stack, &key, Some("application/json"), twice).await;
    answer.assert_error(400, "invalid_json");
    assert!(answer.body.len() < 4_096, "{} bytes", answer.body.len());
    let unknown = json!({"n".repeat(60_000): 1});
    let answer = stack.manage(Method::POST, "", Some(unknown)).await;
    answer.assert_error(400, "unknown_parameter");
    assert!(answer.body.len() < 4_096, "{} bytes", answer.body.len());
}

#[apply(fact)]
async fn bodies_are_json_of_a_bounded_size() {
    let env = vec![("FAREGATE_MAX_BODY_MIB", "1".to_owned())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let key = stack.key().await;
    let good = stack.call(&key, Script::default()).body.to_string();
    for wrong in ["text/plain", "application/x-www-form-urlencoded", "application/merge-patch+json"] {
        post(&stack, &key, Some(wrong), good.clone()).await.assert_error(415, "unsupported_media_type");
    }
    let compressed = stack.call(&key, Script::default()).header("content-encoding", "gzip").send().await;
    compressed.assert_error(415, "unsupported_media_type");
    assert!(compressed.text().contains("'gzip'"), "{compressed}");
    let large = post(&stack, &key, None, vec![b' '; (1 << 20) + 1]).await;
    large.assert_error(413, "request_too_large");
    assert_unchanged(&stack, &key).await;

    // Unusual but valid content types are accepted. The upstream counts bytes, so the response determines the cost.
    for usual in [None, Some("application/json; charset=utf-8"), Some("APPLICATION/JSON")] {
        let call = stack.call(&key, Script::tokens(1, 1));
        assert_eq!(call.header("content-type", usual.unwrap_or("application/json")).send().await.status, 200);
    }
    let plain = stack.call(&key, Script::tokens(1, 1)).header("content-encoding", "identity");
    assert_eq!(plain.send().await.status, 200);
}

#[apply(fact)]
async fn a_missing_content_type_is_read_as_json() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let wrong =
        post(&stack, &key, None, r#"{"model":"nothing","messages":[{"role":"user","content":"x"}]}"#).await;
    wrong.assert_error(404, "model_not_found");
}

#[apply(fact)]
async fn an_unknown_model_is_answered_with_those_there_are() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    for model in ["model flash", "Model Flash ", "", "scripted/model-flash"] {
        let answer = stack.call(&key, Script::default()).with("model", model).send().await;
        answer.assert_error(404, "model_not_found").assert_param(Some("model"));
        assert_eq!(answer.json()["error"]["valid_models"], json!(["Model Flash", "Model Max"]));
    }
    assert_unchanged(&stack, &key).await;
}

#[apply(fact)]
async fn the_management_api_names_faults_the_same_way() {
    let stack = Stack::start().await;
    let cases: Vec<Case> = vec![
        (json!({"label": 5}), "invalid_type", "label"),
        (json!({"label": null}), "invalid_type", "label"),
        (json!({"label": "x".repeat(81)}), "string_above_max_length", "label"),
        (json!({"label": "a\nb"}), "invalid_value", "label"),
        (json!({"limit": "5"}), "invalid_type", "limit"),
        (json!({"limit": -1}), "decimal_below_min_value", "limit"),
        (json!({"limit": 1_000_001}), "decimal_above_max_value", "limit"),
        (json!({"limit": 1e-10}), "invalid_value", "limit"),
        (json!({"expires_at": 5}), "invalid_type", "expires_at"),
        (json!({"expires_at": "2027-12-31"}), "invalid_value", "expires_at"),
        (json!({"expires_at": "2027-02-30T00:00:00Z"}), "invalid_value", "expires_at"),
        (json!({"expires": "2027-12-31T00:00:00Z"}), "unknown_parameter", "expires"),
        (json!({"used": 0}), "unknown_parameter", "used"),
    ];
    let key = stack.key_with(json!({"label": "kept", "limit": 5})).await;
    let before = stack.show(&key).await;
    for (body, code, param) in cases {
        for (method, path) in [(Method::POST, String::new()), (Method::PATCH, format!("/{}", key.id))] {
            let answer = stack.manage(method, &path, Some(body.clone())).await;
            assert_eq!((answer.status, answer.code().as_str()), (400, code), "{body}\n{answer}");
            answer.assert_error(400, code).assert_param(Some(param));
        }
    }
    // The valid half of a change is not applied without the invalid half.
    let half = json!({"label": "changed", "limit": -1});
    stack
        .manage(Method::PATCH, &format!("/{}", key.id), Some(half))
        .await
        .assert_error(400, "decimal_below_min_value");
    assert_eq!(stack.show(&key).await, before);
    let listed = stack.manage(Method::GET, "", None).await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 1, "no key was made: {listed}");
}
