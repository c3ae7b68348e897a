use serde_json::{Value, json};

use super::{Client, user};
use crate::upstream::{
    record::Api,
    script::{Script, text},
};

/// Returns the message that refuses a request with these members.
async fn refusal(client: &Client, more: Value) -> String {
    let answer = client.send(&client.body(&Script::tokens(10, 2), more)).await;
    let body = answer.json();
    assert_eq!((answer.status, &body["error"]["type"]), (400, &json!("invalid_request_error")), "{body}");
    body["error"]["message"].as_str().unwrap().to_owned()
}

fn said(role: &str, blocks: Value) -> Value {
    let mut message = json!({ "role": role });
    message["content"] = blocks;
    message
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "lookup", "input": {}})
}

fn result(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": "ok"})
}

fn tools() -> Value {
    json!([{"name": "lookup", "input_schema": {"type": "object"}}])
}

#[tokio::test]
async fn members_are_as_the_api_has_them() {
    let client = Client::of(Api::Messages);
    let many: Vec<Value> = (0..5)
        .map(|n| json!({"type": "text", "text": format!("{n}"), "cache_control": {"type": "ephemeral"}}))
        .collect();
    let docs = "Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking";
    for (more, words) in [
        (json!({"stream_options": {}}), "stream_options: Extra inputs are not permitted".to_owned()),
        (json!({"context_management": {}}), "context_management: Extra inputs are not permitted".into()),
        (json!({"max_tokens": null}), "max_tokens: Input should be a valid integer".into()),
        (json!({"temperature": 1.5}), "temperature: Input should be less than or equal to 1".into()),
        (json!({"system": many}), "A maximum of 4 blocks with cache_control may be provided. Found 5.".into()),
        (json!({"tool_choice": {"type": "auto"}}), "tool_choice may only be specified while providing tools.".into()),
        (json!({"tools": [{"name": "a b", "input_schema": {"type": "object"}}]}), "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'".into()),
        (json!({"tools": [{"type": "function", "function": {"name": "a"}}]}), "tools.0: Input tag 'function' found using 'type' does not match any of the expected tags: 'custom', 'bash_20250124', 'web_search_20250305'".into()),
        (json!({"thinking": {"type": "enabled", "budget_tokens": 1000}}), "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024".into()),
        (json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}), format!("`max_tokens` must be greater than `thinking.budget_tokens`. {docs}#max-tokens-and-context-window-size")),
        (json!({"thinking": {"type": "adaptive"}, "temperature": 0.5}), format!("`temperature` may only be set to 1 when thinking is enabled or in adaptive mode. {docs}")),
        (json!({"thinking": {"type": "adaptive"}, "top_k": 5}), format!("`top_k` must be unset when thinking is enabled or in adaptive mode. {docs}")),
        (json!({"output_config": {"effort": "minimal"}}), "output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'".into()),
    ] {
        assert_eq!(refusal(&client, more).await, words);
    }
    let mut without = client.body(&Script::tokens(10, 2), json!({}));
    without.as_object_mut().unwrap().remove("max_tokens");
    assert_eq!(client.send(&without).await.json()["error"]["message"], "max_tokens: Field required");
    assert!(client.upstream.generations().is_empty(), "a refused request is no generation");
}

#[tokio::test]
async fn blocks_are_as_the_api_has_them() {
    let client = Client::of(Api::Messages);
    for (message, words) in [
        (
            said("tool", json!("x")),
            "messages: Unexpected role \"tool\". The Messages API accepts a top-level `system` parameter, not \"system\" as an input message role.",
        ),
        (
            said("user", json!("")),
            "messages.1: all messages must have non-empty content except for the optional final assistant message",
        ),
        (
            said("user", json!([{"type": "text", "text": ""}])),
            "messages: text content blocks must be non-empty",
        ),
        (
            said("user", json!([{"type": "text", "text": "a", "x": 1}])),
            "messages.1.content.0.text.x: Extra inputs are not permitted",
        ),
        (
            said("user", json!([call("toolu_1")])),
            "messages.1.content.0: `tool_use` blocks can only be in `assistant` messages",
        ),
        (
            said("assistant", json!([call("call.1")])),
            "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        ),
        (
            said("assistant", json!([{"type": "thinking", "thinking": "", "signature": "EqForeign"}])),
            "messages.1.content.0: Invalid `signature` in `thinking` block",
        ),
        (
            said(
                "user",
                json!([{"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": ""}}]),
            ),
            "messages.1.content.0.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'",
        ),
    ] {
        let messages = json!([user("hi"), message]);
        assert_eq!(refusal(&client, json!({"messages": messages})).await, words);
    }
    let unknown = json!([user("hi"), said("user", json!([{"type": "input_text", "text": "a"}]))]);
    let message = refusal(&client, json!({"messages": unknown})).await;
    assert!(
        message.starts_with("messages.1.content.0: Input tag 'input_text' found using 'type'"),
        "{message}"
    );
}

#[tokio::test]
async fn results_follow_their_calls() {
    let client = Client::of(Api::Messages);
    let text = json!({"type": "text", "text": "so"});
    for (turns, words) in [
        (
            json!([said("user", json!([result("toolu_1")]))]),
            "messages.1.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1.",
        ),
        (
            json!([said("assistant", json!([call("toolu_1")])), user("no")]),
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1.",
        ),
        (
            json!([
                said("assistant", json!([call("toolu_1")])),
                said("user", json!([text, result("toolu_1")]))
            ]),
            "messages.1: `tool_use` ids were found without `tool_result` blocks",
        ),
        (
            json!([
                said("assistant", json!([call("toolu_1"), call("toolu_1")])),
                said("user", json!([result("toolu_1")]))
            ]),
            "messages.1: `tool_use` ids must be unique",
        ),
        (
            json!([
                said("assistant", json!([call("toolu_1")])),
                said("user", json!([result("toolu_1"), result("toolu_1")]))
            ]),
            "messages.2.content.1: each tool_use must have a single result.",
        ),
    ] {
        let turns: Vec<Value> = [vec![user("hi")], turns.as_array().unwrap().clone()].concat();
        let message = refusal(&client, json!({"messages": turns, "tools": tools()})).await;
        assert!(message.starts_with(words), "{message}");
    }
    // The results that belong to one turn may be in separate messages.
    let turns = json!([
        user(&Script::tokens(10, 2).message()),
        said("assistant", json!([call("toolu_1"), call("toolu_2")])),
        said("user", json!([result("toolu_1")])),
        said("user", json!([result("toolu_2"), text]))
    ]);
    assert_eq!(
        client.whole(&Script::tokens(10, 2), json!({"messages": turns, "tools": tools()})).await["type"],
        "message"
    );
}

#[tokio::test]
async fn thinking_comes_back_as_it_was_given() {
    let client = Client::of(Api::Messages);
    let script = Script { reasoning_tokens: 3, tool_calls: 1, ..Script::tokens(10, 3) };
    let thinking = json!({"type": "enabled", "budget_tokens": 1024});
    let asked = json!({"thinking": thinking, "max_tokens": 4000, "tools": tools()});
    let given = client.whole(&script, asked.clone()).await["content"].clone();
    let next = |content: &Value| {
        let turns = [
            user(&script.message()),
            said("assistant", content.clone()),
            said(
                "user",
                json!([result(content.as_array().unwrap().last().unwrap()["id"].as_str().unwrap())]),
            ),
        ];
        let mut more = asked.clone();
        more["messages"] = json!(turns);
        more
    };
    assert_eq!(given[0]["thinking"], text(3));
    assert_eq!(client.whole(&script, next(&given)).await["type"], "message");
    let mut changed = given.clone();
    changed[0]["thinking"] = "other".into();
    assert!(refusal(&client, next(&changed)).await.contains("cannot be modified"));
    let without: Value = given.as_array().unwrap()[1..].iter().cloned().collect();
    let message = refusal(&client, next(&without)).await;
    assert!(
        message.starts_with(
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."
        ),
        "{message}"
    );
}

#[tokio::test]
async fn a_version_and_a_credential_are_needed() {
    let client = Client::of(Api::Messages);
    let body = client.body(&Script::tokens(10, 2), json!({}));
    let mut request = client.request("messages", &body);
    request.headers_mut().remove("anthropic-version");
    let answer = client.http.send(request).await;
    assert_eq!(answer.json()["error"]["message"], "anthropic-version: header is required");
    let mut request = client.request("messages?beta=true", &body);
    request.headers_mut().remove("x-api-key");
    let answer = client.http.send(request).await;
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (401, &json!("authentication_error")));
    client.upstream.set_key("sk-rotated");
    let answer = client.send(&body).await;
    assert_eq!((answer.status, &answer.json()["error"]["message"]), (401, &json!("invalid x-api-key")));
    let mut request = client.request("messages?beta=true", &body);
    request.headers_mut().remove("x-api-key");
    request.headers_mut().insert("authorization", "Bearer sk-rotated".parse().unwrap());
    assert_eq!(client.http.send(request).await.status, 200);
    assert_eq!(client.upstream.generations()[0].path, "/v1/messages?beta=true");
}

#[tokio::test]
async fn the_counter_takes_the_prompt_alone() {
    let client = Client::of(Api::Messages);
    for member in ["max_tokens", "stream", "metadata", "stop_sequences", "temperature"] {
        let mut body = client.body(&Script::tokens(10, 2), json!({}));
        body.as_object_mut().unwrap().remove("max_tokens");
        body[member] = json!(1);
        let answer = client.http.send(client.request("messages/count_tokens", &body)).await;
        let message = format!("{member}: Extra inputs are not permitted");
        assert_eq!((answer.status, &answer.json()["error"]["message"]), (400, &json!(message)));
    }
}
