//! Clients that leave at a chosen event.

use std::collections::BTreeSet;

use tests::{harness::Call, upstream::ScriptedCall};

use super::*;

/// Kinds of events that OpenAI sends when an answer contains reasoning, text or a refusal, and calls a function and a
/// tool that takes text. The last one has an unknown type.
const RESPONSES: &[&str] = &[
    "response.created",
    "response.in_progress",
    "response.output_item.added reasoning",
    "response.output_item.added message",
    "response.output_item.added function_call",
    "response.output_item.added custom_tool_call",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "response.reasoning_summary_part.done",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.refusal.delta",
    "response.refusal.done",
    "response.content_part.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.custom_tool_call_input.delta",
    "response.custom_tool_call_input.done",
    "response.output_item.done reasoning",
    "response.output_item.done message",
    "response.output_item.done function_call",
    "response.output_item.done custom_tool_call",
    "response.completed",
    "response.scripted_note",
];

/// Kinds of events that Anthropic sends for the same.
const MESSAGES: &[&str] = &[
    "message_start",
    "ping",
    "content_block_start thinking",
    "content_block_start text",
    "content_block_start tool_use",
    "content_block_delta thinking_delta",
    "content_block_delta signature_delta",
    "content_block_delta text_delta",
    "content_block_delta input_json_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "scripted_note",
];

/// Returns the type of an event, and the type of the object that it begins, changes or ends.
fn kind(event: &Value) -> String {
    let parts = ["delta", "content_block", "item"];
    let part = parts.iter().find_map(|part| event[part]["type"].as_str()).unwrap_or_default();
    format!("{} {part}", event["type"].as_str().unwrap()).trim().to_owned()
}

/// Returns a call whose answer contains every kind of token, or refuses.
fn call(stack: &Stack, key: &ApiKey, native: Native, refuses: bool) -> Call {
    let dialect = native.own();
    let custom = (native == Native::Responses).then(|| json!({"type": "custom", "name": "patch"}));
    let tools: Vec<_> = [function(dialect, "lookup")].into_iter().chain(custom).collect();
    let calls = tools.iter().map(|tool| ScriptedCall {
        name: tool["name"].as_str().unwrap().to_owned(),
        arguments: r#"{"q":"x"}"#.to_owned(),
    });
    let script = Script {
        reasoning_tokens: 3,
        tool_calls: if refuses { 0 } else { tools.len() as u64 },
        calls: calls.collect(),
        refuses,
        unknown_events: true,
        ..Script::tokens(12, 8).pace(10)
    };
    let call = stack.call(key, script).speaking(dialect).with("tools", tools);
    match native {
        Native::Responses => call.with("reasoning", json!({"summary": "auto"})),
        Native::Messages => call,
    }
}

/// Returns the kinds of all events in a call's stream.
async fn kinds(call: Call) -> BTreeSet<String> {
    let (mut stream, mut kinds) = (call.stream().await, BTreeSet::new());
    let to_the_end = |event: &Value| {
        kinds.insert(kind(event));
        false
    };
    assert!(!stream.read_until(to_the_end).await);
    kinds
}

#[apply(fact)]
async fn a_client_that_leaves_at_any_kind_of_event_pays_what_the_vendor_counts_at_the_end() {
    for native in Native::BOTH {
        let stack = native.stack().await;
        let mut seen = BTreeSet::new();
        for refuses in [false, true] {
            let key = stack.key().await;
            let all = kinds(call(&stack, &key, native, refuses)).await;
            let leave = async |wanted: &String| {
                let mut stream = call(&stack, &key, native, refuses).stream().await;
                assert!(stream.read_until(|event| kind(event) == *wanted).await, "{wanted}");
                let tag = stream.tag.clone();
                drop(stream);
                stack.upstream.wait_for(&tag, "end", |generation| generation.ended_by(End::Finished)).await;
            };
            join_all(all.iter().map(leave)).await;
            stack.released(PATIENCE).await;
            let served = stack.served(&key);
            let tokens = served[0].served;
            assert_eq!(served.len(), all.len() + 1, "{native:?}");
            assert!(served.iter().all(|generation| generation.served == tokens), "{native:?}: {served:?}");
            assert_eq!(stack.used(&key).await, stack.cost_of_served(&key), "{native:?}: {all:?}");
            seen.extend(all);
        }
        let expected = if native == Native::Responses { RESPONSES } else { MESSAGES };
        assert_eq!(seen, expected.iter().map(|kind| (*kind).to_owned()).collect(), "{native:?}");
    }
}
