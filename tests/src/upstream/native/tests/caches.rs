use serde_json::{Value, json};

use super::{Client, user};
use crate::upstream::{record::Api, script::Script};

fn script() -> Script {
    Script { caches: true, prompt_tokens: None, ..Script::tokens(0, 1) }
}

fn marked(text: &str) -> Value {
    json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}})
}

fn told(usage: &Value) -> [u64; 3] {
    ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"]
        .map(|name| usage[name].as_u64().unwrap())
}

#[tokio::test]
async fn messages_are_cached_up_to_their_breakpoints_over_turns() {
    let client = Client::of(Api::Messages);
    let (system, question) = (marked(&"s".repeat(4000)), marked(&script().message()));
    let first = json!({"role": "user", "content": [question]});
    let body = json!({"system": [system], "messages": [first]});
    let before = client.whole(&script(), body.clone()).await["usage"].clone();
    let [input, written, read] = told(&before);
    assert!(written > 1000 && read == 0 && input < 20, "{before}");
    assert_eq!(
        before["cache_creation"],
        json!({"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0})
    );

    // In the next turn, the breakpoint moves to the end of the conversation.
    let asked = json!({"type": "text", "text": script().message()});
    let second = json!({"role": "user", "content": [marked(&script().message())]});
    let turns =
        json!([{"role": "user", "content": [asked]}, {"role": "assistant", "content": " the"}, second]);
    let after =
        client.whole(&script(), json!({"system": [system], "messages": turns})).await["usage"].clone();
    assert_eq!(told(&after)[2], written, "{after}");
    assert!(told(&after)[1] > 0, "{after}");
    assert_eq!(client.upstream.generations().pop().unwrap().served.cached, written);

    // This request has another system message, and no breakpoint.
    let other = client.whole(&script(), json!({"system": [marked("other")], "messages": turns})).await;
    assert_eq!(told(&other["usage"])[2], 0, "{other}");
    let plain = json!([user(&script().message())]);
    let unmarked = client.whole(&script(), json!({"messages": plain})).await;
    assert_eq!(told(&unmarked["usage"])[1..], [0, 0], "{unmarked}");
}

#[tokio::test]
async fn a_breakpoint_of_the_body_is_its_last_block_and_may_last_an_hour() {
    let client = Client::of(Api::Messages);
    let body = json!({"system": "s".repeat(4000), "cache_control": {"type": "ephemeral", "ttl": "1h"}});
    let [first, second] = [client.whole(&script(), body.clone()).await, client.whole(&script(), body).await];
    let written = told(&first["usage"])[1];
    assert_eq!(first["usage"]["cache_creation"]["ephemeral_1h_input_tokens"], written);
    assert_eq!(told(&second["usage"])[1..], [0, written]);
}

#[tokio::test]
async fn short_prefixes_are_not_cached() {
    let client = Client::of(Api::Messages);
    let script = Script { cache_minimum: 1024, ..script() };
    let body = json!({"system": "s".repeat(2000), "cache_control": {"type": "ephemeral"}});
    for _ in 0..2 {
        let answer = client.whole(&script, body.clone()).await;
        assert_eq!(told(&answer["usage"])[1..], [0, 0], "{answer}");
    }
}

#[tokio::test]
async fn responses_are_cached_by_themselves_and_by_key() {
    let client = Client::of(Api::Responses);
    let asked = |key: &str, more: usize| {
        let turns = vec![user(&script().message()); more];
        json!({"instructions": "i".repeat(4000), "prompt_cache_key": key, "input": turns})
    };
    let cached = async |body: Value| {
        let usage = client.whole(&script(), body).await["usage"].clone();
        usage["input_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(cached(asked("one", 1)).await, 0);
    assert!(cached(asked("one", 2)).await >= 1000);
    assert_eq!(cached(asked("two", 2)).await, 0);
}
