//! Stand-ins for vendors. Each refuses what its vendor refuses. It first answers with two tool calls, and then with a
//! text.

use serde_json::{Value, json};
use tests::harness::{AskedOf, Given};

/// Names of the tools, in the order in which they are called.
pub(super) const CALLS: [&str; 2] = ["first", "second"];
pub(super) const TEXT: &str = "Both are read.";

/// Number of tokens of each prompt that were cached at the vendor. A prompt has twenty tokens.
pub(super) const CACHED: u64 = 8;

/// What vendors must receive back of earlier reasoning: a thought, or a signed or encrypted thought.
pub(super) const SIGNED: [&str; 4] = ["\"hm\"", "\"c2ln\"", "\"c2lnbmVk\"", "\"ZW5j\""];

/// Text that Google would use as a signature.
const SIGNATURE: &str = "c2lnbmVk";

/// Answers a request as the vendor of this preset does.
pub(super) fn vendor(preset: &str, asked: &AskedOf) -> Given {
    let path = asked.path.split('?').next().unwrap();
    let known = ["/chat/completions", "/responses", "/messages"];
    if !known.iter().any(|known| path.ends_with(known)) {
        return (404, r#"{"error":{"message":"no such path"}}"#.to_owned());
    }
    let body = asked.json();
    let answered = match path.rsplit('/').next().unwrap() {
        "completions" => refusal(preset, &body).map_or_else(|| Ok(chat(preset, &body)), Err),
        "responses" => responses(&body),
        _ => messages(&body),
    };
    match answered {
        Ok(answer) if body["stream"] == true && path.ends_with("completions") => (200, streamed(&answer)),
        Ok(answer) => (200, answer.to_string()),
        Err(words) => {
            (400, json!({"error": {"message": words, "type": "invalid_request_error"}}).to_string())
        }
    }
}

/// Returns why the vendor refuses a chat, if it does.
fn refusal(preset: &str, body: &Value) -> Option<String> {
    let unknown = |name: &str| Some(format!("property '{name}' is unsupported"));
    let earlier =
        || body["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "assistant");
    let calls = || earlier().filter(|message| message["tool_calls"].is_array());
    let has = |name: &str| earlier().any(|message| message.get(name).is_some());
    match preset {
        "deepseek" | "moonshot" | "zai"
            if calls().any(|message| !message["reasoning_content"].is_string()) =>
        {
            Some("thinking is enabled but reasoning_content is missing in assistant tool call message".into())
        }
        "groq" | "cerebras" if has("reasoning_content") => unknown("reasoning_content"),
        "mistral" | "gemini" if has("reasoning_content") || has("reasoning") => {
            Some("Extra inputs are not permitted".into())
        }
        "xai" | "deepinfra" | "fireworks" if has("reasoning") => {
            Some("Extra inputs are not permitted".into())
        }
        "mistral" if calls().any(|message| message["tool_calls"][0]["id"].as_str().unwrap().len() != 9) => {
            Some("Tool call id was x but must be a-z, A-Z, 0-9, with a length of 9.".into())
        }
        "gemini"
            if calls().any(|message| {
                message["tool_calls"][0]["extra_content"]["google"]["thought_signature"] != SIGNATURE
            }) =>
        {
            Some("Function call is missing a thought_signature in functionCall parts".into())
        }
        "openrouter" if calls().any(|message| message["reasoning_details"] != details()) => {
            Some("the signed reasoning is missing".into())
        }
        "openrouter" if body.get("max_completion_tokens").is_some() => unknown("max_completion_tokens"),
        "fireworks" if body["max_tokens"].as_u64() > Some(4096) && body["stream"] != true => {
            Some("Requests with max_tokens > 4096 must have stream=true".into())
        }
        "dashscope" if body["stream"] != true => Some("This model only support stream mode".into()),
        "together" if body.get("stream_options").is_some() => {
            Some("Unrecognized request argument supplied: stream_options".into())
        }
        "ollama" | "vllm" | "sglang" | "llama_cpp" if has("signature") => unknown("signature"),
        _ => None,
    }
}

fn details() -> Value {
    json!([{"type": "reasoning.text", "text": "hm", "signature": "c2ln", "format": "x", "index": 0}])
}

/// Returns the name of the next call, and its position among all calls.
fn next(calls: usize) -> Option<(usize, &'static str)> {
    CALLS.get(calls).map(|name| (calls, *name))
}

fn chat(preset: &str, body: &Value) -> Value {
    let messages = body["messages"].as_array().unwrap();
    let called = messages.iter().filter(|message| message["role"] == "tool").count();
    let mut message = json!({"role": "assistant", "content": ""});
    let name = match preset {
        "deepseek" | "moonshot" | "zai" | "xai" | "deepinfra" | "fireworks" | "dashscope" => {
            "reasoning_content"
        }
        _ => "reasoning",
    };
    message[name] = json!("hm");
    let finish = if let Some((place, name)) = next(called) {
        let id = match preset {
            "moonshot" => format!("functions.{name}:{place}"),
            "mistral" => format!("abcdefgh{place}"),
            "gemini" => format!("call_{place}"),
            _ => format!("chatcmpl-tool-{place}"),
        };
        let mut call =
            json!({"index": 0, "id": id, "type": "function", "function": {"name": name, "arguments": "{}"}});
        match preset {
            "gemini" => call["extra_content"] = json!({"google": {"thought_signature": SIGNATURE}}),
            "openrouter" => message["reasoning_details"] = details(),
            _ => {}
        }
        message["tool_calls"] = json!([call]);
        "tool_calls"
    } else {
        message["content"] = json!(TEXT);
        "stop"
    };
    json!({"id": "c", "object": "chat.completion", "created": 1, "model": "up",
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {"prompt_tokens": 20, "prompt_tokens_details": {"cached_tokens": CACHED}, "completion_tokens": 5,
            "total_tokens": 25}})
}

/// Returns the same answer in the form of a stream.
fn streamed(answer: &Value) -> String {
    let choice = &answer["choices"][0];
    let chunk = |delta: &Value, finish: &Value, usage: &Value| {
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up", "usage": usage,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        format!("data: {chunk}\n\n")
    };
    let begin = chunk(&choice["message"], &Value::Null, &Value::Null);
    let end = chunk(&json!({}), &choice["finish_reason"], &answer["usage"]);
    format!("{begin}{end}data: [DONE]\n\n")
}

/// Answers in the Responses API. Encrypted reasoning must come back together with the calls that followed it.
fn responses(body: &Value) -> Result<Value, String> {
    let input = body["input"].as_array().unwrap();
    let called = input.iter().filter(|item| item["type"] == "function_call").count();
    let returned = input.iter().filter(|item| item["encrypted_content"] == "ZW5j").count();
    if called != returned {
        return Err(
            "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item".into()
        );
    }
    let output = match next(called) {
        Some((place, name)) => json!([
            {"type": "reasoning", "id": format!("rs_{place}"), "summary": [], "encrypted_content": "ZW5j"},
            {"type": "function_call", "id": format!("fc_{place}"), "call_id": format!("call_{place}"), "name": name,
                "arguments": "{}", "status": "completed"},
        ]),
        None => json!([{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": TEXT, "annotations": []}]}]),
    };
    Ok(
        json!({"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "up", "error": null,
        "incomplete_details": null, "output": output,
        "usage": {"input_tokens": 20, "input_tokens_details": {"cached_tokens": CACHED}, "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 25}}),
    )
}

/// Answers in the Messages API. A signed thought must come back before the call that followed it.
fn messages(body: &Value) -> Result<Value, String> {
    let blocks = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|message| message["content"].as_array().cloned().unwrap_or_default());
    let blocks: Vec<Value> = blocks.collect();
    let called = blocks.iter().filter(|block| block["type"] == "tool_use").count();
    let signed = |block: &&Value| block["signature"] == "c2ln" && block["thinking"] == "hm";
    if called != blocks.iter().filter(signed).count() {
        return Err("Expected `thinking` or `redacted_thinking`, but found `tool_use`".into());
    }
    let content = match next(called) {
        Some((place, name)) => json!([
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "tool_use", "id": format!("toolu_{place}"), "name": name, "input": {}},
        ]),
        None => json!([{"type": "text", "text": TEXT}]),
    };
    let stop = if content[0]["type"] == "text" { "end_turn" } else { "tool_use" };
    Ok(json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "up", "content": content,
        "stop_reason": stop, "stop_sequence": null, "usage": {"input_tokens": 20 - CACHED, "cache_read_input_tokens": CACHED, "output_tokens": 5}}))
}
