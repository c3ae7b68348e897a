use serde_json::{Value, json};

use super::{Client, user};
use crate::upstream::{calls::ScriptedCall, record::Api, script::Script};

/// Returns the message and the code that refuse a request with these members.
async fn refusal(client: &Client, more: Value) -> (String, Value) {
    let answer = client.send(&client.body(&Script::tokens(10, 2), more)).await;
    let body = answer.json();
    assert!(answer.status == 400 && body["error"]["type"] == "invalid_request_error", "{body}");
    (body["error"]["message"].as_str().unwrap().to_owned(), body["error"]["code"].clone())
}

#[tokio::test]
async fn members_are_as_the_api_has_them() {
    let client = Client::of(Api::Responses);
    for (more, words, code) in [
        (json!({"seed": 1}), "Unknown parameter: 'seed'.", "unknown_parameter"),
        (
            json!({"max_output_tokens": 10}),
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 10 instead.",
            "integer_below_min_value",
        ),
        (
            json!({"temperature": 3}),
            "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 instead.",
            "decimal_above_max_value",
        ),
        (
            json!({"store": "no"}),
            "Invalid type for 'store': expected a boolean, but got a string instead.",
            "invalid_type",
        ),
        (
            json!({"include": ["x"]}),
            "Invalid value: 'x'. Supported values are: 'file_search_call.results',",
            "invalid_value",
        ),
        (
            json!({"reasoning": {"effort": "most"}}),
            "Invalid value: 'most'. Supported values are: 'none', 'minimal',",
            "invalid_value",
        ),
        (
            json!({"tools": [{"type": "function", "function": {"name": "f"}}]}),
            "Missing required parameter: 'tools[0].name'.",
            "missing_required_parameter",
        ),
        (
            json!({"tool_choice": "required"}),
            "Tool choice 'required' must be specified with 'tools' parameter.",
            "invalid_value",
        ),
        (
            json!({"prompt_cache_key": "k".repeat(65)}),
            "Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64, but got a string with length 65 instead.",
            "string_above_max_length",
        ),
        (
            json!({"previous_response_id": "resp_1"}),
            "Previous response with id 'resp_1' not found.",
            "previous_response_not_found",
        ),
        (
            json!({"stream": true, "stream_options": {"include_usage": true}}),
            "Unknown parameter: 'stream_options.include_usage'.",
            "unknown_parameter",
        ),
        (
            json!({"text": {"format": {"type": "json_schema", "name": "n", "strict": true, "schema": {"type": "object"}}}}),
            "Invalid schema for response_format 'n': In context=(), 'additionalProperties' is required to be supplied and to be false.",
            "invalid_json_schema",
        ),
    ] {
        let (message, told) = refusal(&client, more).await;
        assert!(message.starts_with(words) && told == code, "{message} {told}");
    }
    for member in ["model", "input"] {
        let mut without = client.body(&Script::tokens(10, 2), json!({}));
        without.as_object_mut().unwrap().remove(member);
        let message = format!("Missing required parameter: '{member}'.");
        assert_eq!(client.send(&without).await.json()["error"]["message"], message);
    }
}

#[tokio::test]
async fn items_are_as_the_api_has_them() {
    let client = Client::of(Api::Responses);
    let call = json!({"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "call_1", "output": "ok"});
    let custom = json!({"type": "custom_tool_call_output", "call_id": "call_1", "output": "ok"});
    let foreign =
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAforeign"});
    let answer = json!({"role": "assistant", "content": "so"});
    for (items, words) in [
        (
            json!([{"role": "tool", "content": "x"}]),
            "Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and 'user'.",
        ),
        (
            json!([{"role": "user", "content": null}]),
            "Invalid type for 'input[0].content': expected one of an array of objects or string, but got null instead.",
        ),
        (
            json!([{"role": "assistant", "content": [{"type": "input_text", "text": "a"}]}]),
            "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
        ),
        (
            json!([{"role": "user", "content": [{"type": "text", "text": "a"}]}]),
            "Invalid value: 'text'. Supported values are: 'input_text', 'input_image', and 'input_file'.",
        ),
        (json!([{"role": "user", "content": "a", "name": "b"}]), "Unknown parameter: 'input[0].name'."),
        (json!([output]), "No tool call found for function call output with call_id call_1."),
        (json!([call, user("so")]), "No tool output found for function call call_1."),
        (
            json!([call, output, custom]),
            "No tool call found for custom tool call output with call_id call_1.",
        ),
        (
            json!([{"type": "function_call", "id": "x", "call_id": "c", "name": "f", "arguments": "{}"}]),
            "Invalid 'input[0].id': 'x'. Expected an ID that begins with 'fc'.",
        ),
        (
            json!([{"type": "function_call", "call_id": "c".repeat(65), "name": "f", "arguments": "{}"}]),
            "Invalid 'input[0].call_id': string too long. Expected a string with maximum length 64, but got a string with length 65 instead.",
        ),
        (
            json!([foreign, answer]),
            "The encrypted content for item rs_1 could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
        ),
        (json!([{"type": "thinking"}]), "Invalid value: 'thinking'. Supported values are:"),
    ] {
        let (message, _) = refusal(&client, json!({"input": items})).await;
        assert!(message.starts_with(words), "{message}");
    }
    let unstored = json!([{"type": "reasoning", "id": "rs_1", "summary": []}, answer]);
    let body = client.body(&Script::tokens(10, 2), json!({"input": unstored, "store": false}));
    let answer = client.send(&body).await;
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        answer.status == 404 && message.starts_with("Item with id 'rs_1' not found. Items are not persisted"),
        "{message}"
    );
}

#[tokio::test]
async fn reasoning_comes_back_as_it_was_given() {
    let client = Client::of(Api::Responses);
    let script = Script { reasoning_tokens: 3, tool_calls: 1, ..Script::tokens(10, 3) };
    let include = json!({"include": ["reasoning.encrypted_content"], "store": false});
    let given = client.whole(&script, include).await["output"].as_array().unwrap().clone();
    assert_eq!(given[0]["summary"], json!([]));
    let call = given.last().unwrap();
    let output = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "ok"});
    let input = [vec![user(&script.message())], given.clone(), vec![output]].concat();
    assert_eq!(client.whole(&script, json!({"input": input, "store": false})).await["object"], "response");
    let alone = json!([user("hi"), given[0], user("so")]);
    let (message, _) = refusal(&client, json!({"input": alone})).await;
    assert!(
        message.ends_with("of type 'reasoning' was provided without its required following item."),
        "{message}"
    );
}

#[tokio::test]
async fn custom_tools_are_called_with_text() {
    let client = Client::of(Api::Responses);
    let script = Script { tool_calls: 1, ..Script::tokens(10, 0) };
    let tools = json!([{"type": "custom", "name": "apply_patch", "format": {"type": "text"}}]);
    let (events, _) = client.stream(&script, json!({"tools": tools})).await;
    assert_eq!(super::joined(&events, "response.custom_tool_call_input.delta", "/delta"), r#"{"q":"x"}"#);
    let item = &events.last().unwrap()["response"]["output"][0];
    assert_eq!((&item["type"], &item["name"]), (&json!("custom_tool_call"), &json!("apply_patch")));
    let calls = vec![ScriptedCall { name: "apply_patch".into(), arguments: "*** Begin Patch".into() }];
    let answer = client.whole(&Script { calls, ..script }, json!({"tools": tools})).await;
    assert_eq!(answer["output"][0]["input"], "*** Begin Patch");
}

#[tokio::test]
async fn the_counter_takes_the_prompt_alone() {
    let client = Client::of(Api::Responses);
    for member in ["max_output_tokens", "stream", "store", "prompt_cache_key", "include"] {
        let body = client.body(&Script::tokens(10, 2), json!({member: 1}));
        let answer = client.http.send(client.request("responses/input_tokens", &body)).await;
        let message = format!("Unknown parameter: '{member}'.");
        assert_eq!((answer.status, &answer.json()["error"]["message"]), (400, &json!(message)));
    }
}
