//! Requests of every dialect, as upstreams of other APIs read them.

use bytes::Bytes;
use serde_json::{Value, json};
use shared::error::{ApiError, Code};

use crate::{
    chat,
    checked::Request,
    forward::Forward,
    messages,
    tests::{model_with, responses, text_for},
};

const RESPONSES: &str = r#"speaks = ["responses"]"#;
const MESSAGES: &str = r#"speaks = ["messages"]"#;

type Parse = fn(&Bytes) -> Result<Request, ApiError>;

fn forward(parse: Parse, body: &Value, lines: &str) -> Result<Forward, ApiError> {
    parse(&Bytes::from(body.to_string()))?.forward(&model_with(lines))
}

fn written(parse: Parse, body: &Value, lines: &str) -> Value {
    let forward = forward(parse, body, lines).unwrap_or_else(|error| panic!("{error:?}"));
    let mut json: Value = serde_json::from_str(&text_for(&forward, &model_with(lines))).unwrap();
    let members = json.as_object_mut().unwrap();
    for name in ["model", "store", "prompt_cache_key"] {
        members.remove(name);
    }
    json
}

fn chat(mut members: Value) -> Value {
    members["model"] = "m".into();
    if members.get("messages").is_none() {
        members["messages"] = json!([{"role": "user", "content": "Hi"}]);
    }
    members
}

fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "d", "parameters": {"type": "object"}}})
}

/// Returns a conversation with every kind of message.
fn conversation() -> Value {
    json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/jpg;base64,AA+/", "detail": "low"}},
        ]},
        {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"q\": \"a\\u00e9\"}"}},
            {"id": "call/2", "type": "function", "function": {"name": "g", "arguments": "{\"cut"}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": "A cat."},
        {"role": "tool", "tool_call_id": "call/2", "content": [{"type": "text", "text": "A dog."}]},
        {"role": "system", "content": "Be polite."},
        {"role": "user", "content": "So?"},
    ])
}

#[test]
fn a_chat_is_written_for_responses() {
    let body = chat(json!({"messages": conversation(), "tools": [tool("f"), tool("g")], "tool_choice":
        {"type": "function", "function": {"name": "g"}}, "parallel_tool_calls": false, "temperature": 0.5, "seed": 7,
        "presence_penalty": 1, "logprobs": true, "top_logprobs": 3, "reasoning_effort": "high", "stream": true,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1}, "strict": true}}}));
    let json = written(chat::parse, &body, RESPONSES);
    let odd = json["input"][4]["call_id"].as_str().unwrap();
    assert!(odd.starts_with("call_") && odd.len() == 37, "{odd}");
    let function = |name: &str| json!({"type": "function", "name": name, "description": "d", "parameters": {"type": "object"}, "strict": false});
    assert_eq!(
        json,
        json!({
            "stream": true,
            "temperature": 0.5,
            "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
            "top_logprobs": 3,
            "reasoning": {"effort": "high", "summary": "auto"},
            "tools": [function("f"), function("g")],
            "tool_choice": {"type": "function", "name": "g"},
            "parallel_tool_calls": false,
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"a": 1}, "strict": true}},
            "input": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [
                    {"type": "input_text", "text": "What is this?"},
                    {"type": "input_image", "image_url": "data:image/jpeg;base64,AA+/", "detail": "low"},
                ]},
                {"role": "assistant", "content": "I look."},
                {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{\"q\": \"a\\u00e9\"}"},
                {"type": "function_call", "call_id": odd, "name": "g", "arguments": "{\"cut"},
                {"type": "function_call_output", "call_id": "call_1", "output": "A cat."},
                {"type": "function_call_output", "call_id": odd, "output": [{"type": "input_text", "text": "A dog."}]},
                {"role": "system", "content": "Be polite."},
                {"role": "user", "content": "So?"},
            ],
        })
    );
    let forward = forward(chat::parse, &body, RESPONSES).unwrap();
    assert_eq!(forward.dropped_members.as_deref(), Some("seed, presence_penalty"));
    assert!(!forward.dropped_members.unwrap().contains("messages"));
}

#[test]
fn a_chat_is_written_for_messages() {
    let body = chat(
        json!({"messages": conversation(), "tools": [tool("f"), tool("g")], "tool_choice": "required",
        "parallel_tool_calls": false, "temperature": 1.5, "top_p": 0.9, "frequency_penalty": 1, "stop": "END", "stream": true,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1}}}}),
    );
    let json = written(chat::parse, &body, MESSAGES);
    let odd = json["messages"][1]["content"][2]["id"].as_str().unwrap();
    let cache = json!({"type": "ephemeral"});
    let mut last = json!({"name": "g", "description": "d", "input_schema": {"type": "object"}});
    last["cache_control"] = cache.clone();
    assert_eq!(
        json,
        json!({
            "stream": true,
            "temperature": 1,
            "top_p": 0.9,
            "output_config": {"format": {"type": "json_schema", "schema": {"a": 1}}},
            "stop_sequences": ["END"],
            "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}, last],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
            "system": [{"type": "text", "text": "Be brief.", "cache_control": cache}],
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AA+/"},
                     "cache_control": cache},
                ]},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "call_1", "name": "f", "input": {"q": "aé"}},
                    {"type": "tool_use", "id": odd, "name": "g", "input": {"invalid_arguments": "{\"cut"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "A cat."}]},
                    {"type": "tool_result", "tool_use_id": odd, "content": [{"type": "text", "text": "A dog."}]},
                    {"type": "text", "text": "Be polite."},
                    {"type": "text", "text": "So?", "cache_control": cache},
                ]},
            ],
        })
    );
    assert_eq!(
        forward(chat::parse, &body, MESSAGES).unwrap().dropped_members.as_deref(),
        Some("frequency_penalty")
    );
}

#[test]
fn an_operator_may_leave_breakpoints_to_others() {
    let lines = format!("{MESSAGES}\n        cache_breakpoints = false");
    let json = written(chat::parse, &chat(json!({"messages": conversation()})), &lines);
    assert!(!json.to_string().contains("cache_control"), "{json}");
    let json = written(chat::parse, &chat(json!({"messages": conversation()})), MESSAGES);
    assert_eq!(json.to_string().matches("cache_control").count(), 3, "{json}");
}

#[test]
fn effort_makes_a_model_think_unless_a_call_is_forced() {
    let ask = |members: Value| written(chat::parse, &chat(members), MESSAGES);
    let high = ask(json!({"reasoning_effort": "high", "temperature": 0.2, "stop": ["a", "b"]}));
    assert_eq!(high["thinking"], json!({"type": "adaptive", "display": "summarized"}));
    assert_eq!((&high["output_config"], high.get("temperature")), (&json!({"effort": "high"}), None));
    assert_eq!(high["stop_sequences"], json!(["a", "b"]));
    let forced = ask(json!({"reasoning_effort": "high", "tools": [tool("f")], "tool_choice": "required"}));
    assert_eq!((forced.get("thinking"), &forced["output_config"]), (None, &json!({"effort": "high"})));
    let client = json!({"model": "m", "input": "Hi", "reasoning": {"effort": "low"}});
    let quiet = written(responses, &client, MESSAGES);
    assert_eq!(quiet["thinking"], json!({"type": "adaptive", "display": "omitted"}));
    let off = json!({"model": "m", "max_tokens": 9, "thinking": {"type": "disabled"}, "messages": [{"role": "user", "content": "Hi"}]});
    let off = written(messages::parse, &off, RESPONSES);
    assert_eq!(off.get("reasoning"), Some(&json!({"effort": "low"})), "the nearest word of this model");
}

#[test]
fn responses_and_messages_are_written_for_each_other() {
    let body = json!({"model": "m", "instructions": "Be brief.", "max_output_tokens": 50, "stream": true,
        "store": false, "include": ["reasoning.encrypted_content"], "text": {"format": {"type": "text"}},
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
            {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** Begin"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
        ],
        "tools": [{"type": "custom", "name": "patch", "description": "Patches."}, {"type": "web_search"}]});
    let json = written(responses, &body, MESSAGES);
    assert_eq!(json["system"][0]["text"], "Be brief.");
    assert_eq!(json["messages"][1]["content"][0]["input"], json!({"input": "*** Begin"}));
    assert_eq!(json["messages"][2]["content"][0]["type"], "tool_result");
    assert!(!json.to_string().contains("gAAA"), "foreign reasoning is dropped: {json}");
    let asked = forward(responses, &body, MESSAGES).unwrap();
    assert_eq!(asked.dropped_tools.as_deref(), Some("web_search"));
    let mut dropped: Vec<_> = asked.dropped_members.as_deref().unwrap().split(", ").collect();
    dropped.sort_unstable();
    assert_eq!(dropped, ["include", "store"]);

    let body = json!({"model": "m", "max_tokens": 50, "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=1;"},
            {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}, "top_k": 5,
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "theirs"},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"q": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "is_error": true, "content": "no"}]},
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}]});
    let json = written(messages::parse, &body, RESPONSES);
    assert_eq!(
        json["input"],
        json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"type": "function_call", "call_id": "toolu_1", "name": "f", "arguments": "{\"q\":1}"},
            {"type": "function_call_output", "call_id": "toolu_1", "output": "Error:\n\nno"},
        ])
    );
    assert_eq!(json["reasoning"], json!({"effort": "high", "summary": "auto"}));
    assert_eq!(forward(messages::parse, &body, RESPONSES).unwrap().dropped_members.as_deref(), Some("top_k"));
}

#[test]
fn what_would_make_another_answer_is_refused_by_the_clients_name_for_it() {
    let refused = |parse: Parse, body: &Value, lines: &str| {
        let error = forward(parse, body, lines).err().unwrap_or_else(|| panic!("{body} was not refused"));
        assert_eq!(error.code, Code::UnsupportedParameter, "{error:?}");
        error.param.unwrap()
    };
    for (members, lines, param) in [
        (json!({"n": 2}), RESPONSES, "n"),
        (json!({"n": 2}), MESSAGES, "n"),
        (json!({"stop": "a"}), RESPONSES, "stop"),
        (json!({"logit_bias": {"1": 5}}), RESPONSES, "logit_bias"),
        (json!({"logit_bias": {"1": 5}}), MESSAGES, "logit_bias"),
        (json!({"logprobs": true}), MESSAGES, "logprobs"),
        (json!({"response_format": {"type": "json_object"}}), MESSAGES, "response_format"),
    ] {
        assert_eq!(refused(chat::parse, &chat(members), lines), param);
    }
    let hi = json!([{"role": "user", "content": "Hi"}]);
    let stops = json!({"model": "m", "max_tokens": 5, "stop_sequences": ["a"], "messages": hi});
    assert_eq!(refused(messages::parse, &stops, RESPONSES), "stop_sequences");
    let probable = json!({"model": "m", "input": "Hi", "top_logprobs": 2});
    assert_eq!(refused(responses, &probable, MESSAGES), "top_logprobs");
    // Members without an effect are accepted.
    assert!(forward(chat::parse, &chat(json!({"n": 1, "logprobs": false})), MESSAGES).is_ok());
}

#[test]
fn arguments_that_a_strict_reader_refuses_take_no_request_along() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(500), "]".repeat(500));
    for refused in [r#"{"a":"\ud800"}"#, r#"{"a":1e400}"#, &deep] {
        let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": refused}});
        let messages = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "a"}]);
        let json = written(chat::parse, &chat(json!({"messages": messages})), MESSAGES);
        assert_eq!(json["messages"][1]["content"][0]["input"], json!({"invalid_arguments": refused}));
    }
}

#[test]
fn a_limit_below_the_vendors_least_is_written_as_that() {
    let forward = |members: Value, lines: &str| forward(chat::parse, &chat(members), lines).unwrap();
    let asked = forward(json!({"max_tokens": 5}), RESPONSES);
    assert_eq!((asked.max_tokens, asked.least_output), (16, 16));
    let asked = forward(json!({"max_tokens": 5}), MESSAGES);
    assert_eq!((asked.max_tokens, asked.least_output), (5, 1));
}
