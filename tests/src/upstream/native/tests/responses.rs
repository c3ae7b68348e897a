use serde_json::{Value, json};

use super::{Client, joined, types, user};
use crate::upstream::{
    record::Api,
    script::{Script, Usage, text},
};

#[tokio::test]
async fn a_stream_has_reasoning_text_and_calls_in_items_of_their_own() {
    let client = Client::of(Api::Responses);
    let script = Script { reasoning_tokens: 2, tool_calls: 1, ..Script::tokens(100, 5) };
    let asked = json!({"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]});
    let (events, broken) = client.stream(&script, asked).await;
    assert_eq!(broken, None);
    let wanted = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(types(&events), wanted);
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    assert_eq!(joined(&events, "response.reasoning_summary_text.delta", "/delta"), text(2));
    assert_eq!(joined(&events, "response.output_text.delta", "/delta"), text(3));
    assert_eq!(joined(&events, "response.function_call_arguments.delta", "/delta"), r#"{"q":"x"}"#);
    let response = &events[events.len() - 1]["response"];
    let usage = json!({
        "input_tokens": 100, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 8, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 108,
    });
    assert_eq!((&response["status"], &response["usage"]), (&json!("completed"), &usage));
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
    assert_eq!(response["output"], done.map(|event| event["item"].clone()).collect::<Value>());
    assert!(response["output"][0]["encrypted_content"].is_string(), "{response}");
    let record = client.upstream.generations().pop().unwrap();
    assert_eq!(record.served, Usage { prompt: 100, cached: 0, completion: 8 });
    assert_eq!((record.api, record.path.as_str()), (Api::Responses, "/v1/responses"));
}

#[tokio::test]
async fn a_limit_makes_an_answer_incomplete() {
    let client = Client::of(Api::Responses);
    let answer = client.whole(&Script::tokens(100, 50), json!({"max_output_tokens": 17})).await;
    let ended = (&answer["status"], &answer["incomplete_details"], &answer["usage"]["output_tokens"]);
    assert_eq!(ended, (&json!("incomplete"), &json!({"reason": "max_output_tokens"}), &json!(17)));
    assert_eq!(answer["output"][0]["status"], "incomplete");
}

#[tokio::test]
async fn a_refusal_has_a_part_of_its_own() {
    let client = Client::of(Api::Responses);
    let script = Script { refuses: true, ..Script::tokens(100, 4) };
    let (events, _) = client.stream(&script, json!({})).await;
    assert_eq!(joined(&events, "response.refusal.delta", "/delta"), text(4));
    let part = &events[events.len() - 1]["response"]["output"][0]["content"][0];
    assert_eq!(*part, json!({"type": "refusal", "refusal": text(4)}));
}

#[tokio::test]
async fn the_next_script_takes_over_once_a_tool_has_answered() {
    let client = Client::of(Api::Responses);
    let last = Script::tokens(10, 3);
    let script = Script { tool_calls: 1, then: Some(Box::new(last)), ..Script::tokens(10, 0) };
    let call = client.whole(&script, json!({})).await["output"][0].clone();
    let output = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "ok"});
    let answer = client.whole(&script, json!({"input": [user(&script.message()), call, output]})).await;
    assert_eq!(answer["output"][0]["content"][0]["text"], text(3));
}

#[tokio::test]
async fn a_counter_and_a_generation_agree() {
    let client = Client::of(Api::Responses);
    let script = Script { prompt_tokens: None, ..Script::tokens(0, 1) };
    let body = client.body(&script, json!({"instructions": "i".repeat(400)}));
    let told = client.send(&body).await.json()["usage"]["input_tokens"].clone();
    let counted = client.count(&body, &["model", "input", "instructions"]).await;
    assert_eq!(counted, json!({"object": "response.input_tokens", "input_tokens": told}));
}
