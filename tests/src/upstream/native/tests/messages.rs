use serde_json::json;

use super::{Client, joined, types, user};
use crate::upstream::{
    calls::ScriptedCall,
    record::Api,
    script::{Script, Usage, text},
};

#[tokio::test]
async fn a_stream_has_thinking_text_and_calls_in_blocks_of_their_own() {
    let client = Client::of(Api::Messages);
    let script = Script { reasoning_tokens: 2, tool_calls: 2, ..Script::tokens(100, 5) };
    let (events, broken) = client.stream(&script, json!({})).await;
    assert_eq!(broken, None);
    let block = ["content_block_start", "content_block_delta", "content_block_stop"];
    let blocks = block.repeat(4);
    let wanted = [&["message_start"], blocks.as_slice(), &["message_delta", "message_stop"]].concat();
    assert_eq!(types(&events), wanted);
    assert_eq!(joined(&events, "content_block_delta", "/delta/thinking"), text(2));
    assert_eq!(joined(&events, "content_block_delta", "/delta/text"), text(3));
    assert_eq!(joined(&events, "content_block_delta", "/delta/partial_json"), r#"{"q":"x"}{"q":"x"}"#);
    let start = &events[0]["message"]["usage"];
    assert_eq!((&start["input_tokens"], &start["output_tokens"]), (&json!(100), &json!(1)));
    let end = &events[events.len() - 2];
    assert_eq!(end["delta"], json!({"stop_reason": "tool_use", "stop_sequence": null}));
    assert_eq!((&end["usage"]["input_tokens"], &end["usage"]["output_tokens"]), (&json!(100), &json!(11)));
    assert_eq!(end["usage"]["output_tokens_details"], json!({"thinking_tokens": 2}));
    let record = client.upstream.generations().pop().unwrap();
    assert_eq!(record.served, Usage { prompt: 100, cached: 0, completion: 11 });
    assert_eq!((record.api, record.path.as_str()), (Api::Messages, "/v1/messages"));
}

#[tokio::test]
async fn a_whole_answer_says_what_its_stream_says() {
    let client = Client::of(Api::Messages);
    let script = Script { reasoning_tokens: 2, tool_calls: 1, ..Script::tokens(100, 5) };
    let answer = client.whole(&script, json!({})).await;
    let blocks = answer["content"].as_array().unwrap();
    assert_eq!(blocks[0]["thinking"], text(2));
    assert!(!blocks[0]["signature"].as_str().unwrap().is_empty(), "{answer}");
    assert_eq!(blocks[1], json!({"type": "text", "text": text(3)}));
    assert_eq!((&blocks[2]["name"], &blocks[2]["input"]), (&json!("lookup"), &json!({"q": "x"})));
    assert_eq!((&answer["stop_reason"], &answer["usage"]["output_tokens"]), (&json!("tool_use"), &json!(8)));
}

#[tokio::test]
async fn a_script_may_tell_the_calls() {
    let client = Client::of(Api::Messages);
    let calls = vec![ScriptedCall { name: "Bash".into(), arguments: r#"{"command":"echo é"}"#.into() }];
    let script = Script { tool_calls: 1, calls, ..Script::tokens(100, 0) };
    let (events, _) = client.stream(&script, json!({})).await;
    assert_eq!(joined(&events, "content_block_delta", "/delta/partial_json"), r#"{"command":"echo é"}"#);
    let block = client.whole(&script, json!({})).await["content"][0].clone();
    assert_eq!((&block["name"], &block["input"]), (&json!("Bash"), &json!({"command": "echo é"})));
}

#[tokio::test]
async fn a_limit_ends_an_answer() {
    let client = Client::of(Api::Messages);
    let answer = client.whole(&Script::tokens(100, 50), json!({"max_tokens": 7})).await;
    assert_eq!(
        (&answer["stop_reason"], &answer["usage"]["output_tokens"]),
        (&json!("max_tokens"), &json!(7))
    );
    assert_eq!(answer["content"][0]["text"], text(7));
}

#[tokio::test]
async fn the_next_script_takes_over_once_a_tool_has_answered() {
    let client = Client::of(Api::Messages);
    let last = Script::tokens(10, 3);
    let script = Script { tool_calls: 1, then: Some(Box::new(last)), ..Script::tokens(10, 0) };
    let answer = client.whole(&script, json!({})).await;
    let call = answer["content"][0]["id"].clone();
    let result =
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "ok"}]});
    let turns = json!([user(&script.message()), {"role": "assistant", "content": answer["content"]}, result]);
    let answer = client.whole(&script, json!({"messages": turns})).await;
    assert_eq!(
        (&answer["stop_reason"], &answer["content"][0]["text"]),
        (&json!("end_turn"), &json!(text(3)))
    );
}

#[tokio::test]
async fn a_counter_and_a_generation_agree() {
    let client = Client::of(Api::Messages);
    let mut script = Script::tokens(0, 1);
    script.prompt_tokens = None;
    let tool = json!({"name": "lookup", "description": "d".repeat(400), "input_schema": {"type": "object"}});
    let body = client.body(&script, json!({"system": "Be brief.", "tools": [tool]}));
    let told = client.send(&body).await.json()["usage"]["input_tokens"].clone();
    assert!(told.as_u64().unwrap() > 100, "{told}");
    let counted = client.count(&body, &["model", "messages", "system", "tools"]).await;
    assert_eq!(counted, json!({"input_tokens": told}));
    assert_eq!(client.upstream.token_counts(), 1);
}
