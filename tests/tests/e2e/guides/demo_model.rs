//! The built-in model behind the gateway: its answers are billed exactly, and unsupported requests get an error.

use serde_json::{Value, json};
use tests::{
    harness::{ApiKey, Call, Models, Options, Stack},
    upstream::Script,
};

async fn stack() -> Stack {
    Stack::with(Options { models: Models::Builtin, ..Options::default() }).await
}

fn ask(stack: &Stack, key: &ApiKey, content: &Value) -> Call {
    stack.call(key, Script::default()).with("messages", json!([{"role": "user", "content": content}]))
}

fn tools() -> Value {
    let parameters = json!({
        "type": "object",
        "properties": {"guests": {"type": "integer", "minimum": 1, "maximum": 9}, "inside": {"type": "boolean"}},
        "required": ["guests", "inside"],
    });
    json!([{"type": "function", "function": {"name": "book_table", "parameters": parameters}}])
}

fn assert_follows_schema(arguments: &str) {
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert!((1..=9).contains(&arguments["guests"].as_i64().unwrap()) && arguments["inside"].is_boolean());
}

#[apply(fact)]
async fn a_call_of_a_tool_follows_its_schema_and_is_billed() {
    let stack = stack().await;
    let key = stack.key().await;
    let call = ask(&stack, &key, &json!("Tell me a story."))
        .with("tools", tools())
        .with("tool_choice", "required")
        .with("parallel_tool_calls", false)
        .with("temperature", 1.5)
        .with("seed", 5)
        .with("max_tokens", 100);
    let whole = call.clone().send().await;
    let choice = &whole.json()["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{whole}");
    let function = &choice["message"]["tool_calls"][0]["function"];
    assert_follows_schema(function["arguments"].as_str().unwrap());

    let ended = call.stream().await.rest().await;
    let pieces: Vec<&Value> =
        ended.assert_done().deltas(0).filter_map(|delta| delta["tool_calls"].get(0)).collect();
    assert_eq!(pieces[0]["function"]["name"], "book_table");
    let arguments: String =
        pieces.iter().filter_map(|piece| piece["function"]["arguments"].as_str()).collect();
    assert_eq!(arguments, function["arguments"].as_str().unwrap(), "the same seed, the same call");
    assert_eq!(stack.used(&key).await.nanos(), whole.cost().nanos() + ended.cost().nanos());
}

#[apply(fact)]
async fn what_the_model_cannot_do_it_says_and_nothing_is_billed() {
    let stack = stack().await;
    let key = stack.key().await;
    let image = json!([
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
    ]);
    let answer = ask(&stack, &key, &image).send().await;
    assert_eq!(answer.status, 400, "{answer}");
    assert!(answer.text().contains("cannot read images"), "{answer}");
    assert!(answer.text().contains("invalid_request_error"), "{answer}");

    let unknown =
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {"type": "string"}}}});
    let answer = ask(&stack, &key, &json!("Hi")).with("response_format", unknown).send().await;
    assert_eq!(answer.status, 400, "{answer}");
    assert!(answer.text().contains("This schema cannot be followed"), "{answer}");
    assert_eq!(stack.used(&key).await.nanos(), 0);
}
