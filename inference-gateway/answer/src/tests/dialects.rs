//! Streams and whole answers of the dialects with blocks.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use reply::{ToolName, ToolNames};

use super::*;

/// An event that a client has received: name and data.
pub(super) type Received = (String, Value);

pub(super) fn responses() -> Reply {
    let mut names = ToolNames::default();
    names.add(ToolName { flat: "patch".into(), namespace: None, name: "\"patch\"".into(), is_custom: true });
    names.add(ToolName {
        flat: "space__look".into(),
        namespace: Some("\"space\"".into()),
        name: "\"look\"".into(),
        is_custom: false,
    });
    let echo = r#","tools":[]"#.to_owned();
    Reply::Responses(Arc::new(ResponsesReply { echo, names, summary: true, earlier_calls: Arc::default() }))
}

pub(super) fn messages() -> Reply {
    Reply::Messages(Arc::new(MessagesReply {
        thinking: true,
        stops: vec!["END".into(), "é".into()],
        earlier_calls: Arc::default(),
    }))
}

/// Parses the events in a stream of bytes. Each has a name.
fn received(out: &BytesMut) -> Vec<Received> {
    let text = std::str::from_utf8(out).unwrap();
    let event = |event: &str| {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        let name = name.strip_prefix("event: ").unwrap();
        assert_eq!(name, data["type"], "the name and the type agree");
        (name.to_owned(), data)
    };
    text.split_terminator("\n\n").map(event).collect()
}

/// Writes a stream of these chunks to its end: a success if a finish reason came, otherwise a cut or a failure.
pub(super) fn streamed(reply: &Reply, chunks: &[Value], is_cut: bool) -> Vec<Received> {
    let mut writer = StreamWriter::new(generation(), reply, 99, false);
    let mut out = BytesMut::new();
    let mut written = Ok(());
    for chunk in chunks {
        let chunk = chunk.to_string();
        match Event::read(chunk.as_bytes()).unwrap() {
            Event::Chunk(chunk) => written = written.and_then(|()| writer.chunk(&chunk, &mut out)),
            Event::Failed(..) | Event::Done => panic!("{chunk}"),
        }
    }
    if written.is_ok() && (is_cut || writer.is_finished()) {
        writer.cut(&mut out);
        writer.done(SETTLED, &mut out);
    } else {
        writer.fail(&ApiError::new(Code::UpstreamError, "It failed."), Some(SETTLED), &mut out);
    }
    received(&out)
}

fn names(events: &[Received]) -> Vec<&str> {
    events.iter().map(|(name, _)| name.as_str()).collect()
}

/// Returns the data of the only event with this name.
fn only<'a>(events: &'a [Received], name: &str) -> &'a Value {
    let mut found = events.iter().filter(|(known, _)| known == name);
    let (_, data) = found.next().unwrap_or_else(|| panic!("no {name} in {events:?}"));
    assert!(found.next().is_none(), "{name} twice");
    data
}

pub(super) fn call(index: u64, id: Option<&str>, name: Option<&str>, arguments: &str) -> Value {
    delta(
        &json!({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]}),
    )
}

#[test]
fn a_response_streams_its_items_one_after_another() {
    let chunks = [
        delta(&json!({"role": "assistant", "content": ""})),
        delta(&json!({"reasoning": "hm"})),
        delta(&json!({"content": "Hi"})),
        delta(&json!({"content": "\n."})),
        call(0, Some("call_1"), Some("look"), ""),
        call(0, None, None, "{\"q\":1}"),
        finish("tool_calls"),
    ];
    let events = streamed(&responses(), &chunks, false);
    assert_eq!(
        names(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.reasoning_summary_part.added",
            "response.reasoning_text.delta",
            "response.reasoning_summary_text.delta",
            "response.reasoning_text.done",
            "response.content_part.done",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let hex = &generation().id.to_string()[4..];
    let response = &events.last().unwrap().1["response"];
    assert_eq!(
        *response,
        json!({
            "id": format!("resp_{hex}"), "object": "response", "created_at": 1_795_140_665, "status": "completed",
            "completed_at": 1_795_140_700, "error": null, "incomplete_details": null, "model": "Model \"Flash\"",
            "output": [
                {"id": format!("rs_{hex}0000"), "type": "reasoning", "status": "completed",
                 "summary": [{"type": "summary_text", "text": "hm"}],
                 "content": [{"type": "reasoning_text", "text": "hm"}], "encrypted_content": null},
                {"id": format!("msg_{hex}0001"), "type": "message", "role": "assistant", "status": "completed",
                 "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "Hi\n."}]},
                {"id": format!("fc_{hex}0002"), "type": "function_call", "status": "completed", "call_id": "call_1",
                 "name": "look", "arguments": "{\"q\":1}"},
            ],
            "usage": {"input_tokens": 12, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
                "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 17,
                "cost": 0.000_003_2},
            "tools": [],
        })
    );
    let created = &only(&events, "response.created")["response"];
    assert_eq!(
        (&created["status"], &created["output"], &created["usage"]),
        (&json!("in_progress"), &json!([]), &json!(null))
    );
}

#[test]
fn a_message_streams_its_blocks_one_after_another() {
    let chunks = [
        json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "usage": {"prompt_tokens": 7}}),
        delta(&json!({"reasoning_content": "hm"})),
        delta(&json!({"content": "Hi"})),
        call(0, Some("call_1"), Some("look"), "{\"q\""),
        call(0, None, None, ":1}"),
        finish("tool_calls"),
    ];
    let events = streamed(&messages(), &chunks, false);
    let hex = &generation().id.to_string()[4..];
    let signature = reply::carried::carry(ServerId::default(), &[]);
    let usage = json!({"input_tokens": 5, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4,
        "output_tokens": 5, "cost": 0.000_003_2});
    let expected = [
        json!({"type": "message_start", "message": {"id": format!("msg_{hex}"), "type": "message", "role": "assistant",
            "model": "Model \"Flash\"", "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 7, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": signature}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "content_block_start", "index": 2,
            "content_block": {"type": "tool_use", "id": "call_1", "name": "look", "input": {}}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\"q\""}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ":1}"}}),
        json!({"type": "content_block_stop", "index": 2}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": usage}),
        json!({"type": "message_stop"}),
    ];
    let data: Vec<Value> = events.into_iter().map(|(_, data)| data).collect();
    assert_eq!(data, expected);
}

#[test]
fn a_call_has_its_id_from_the_first_event_to_the_last() {
    let events = streamed(&responses(), &[call(0, None, Some("f"), "{}"), finish("tool_calls")], false);
    let added = &only(&events, "response.output_item.added")["item"];
    let done = &only(&events, "response.output_item.done")["item"];
    let id = added["call_id"].as_str().unwrap();
    assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    assert_eq!(done["call_id"], id);
    assert_eq!(only(&events, "response.completed")["response"]["output"][0]["call_id"], id);
}

#[test]
fn every_item_is_added_before_its_deltas_and_done_after_them() {
    let text = |member: &str| delta(&json!({ member: "ab" }));
    for pieces in [
        vec![text("reasoning_content"), text("content"), call(0, None, Some("f"), "{}")],
        vec![text("refusal")],
        vec![call(0, None, Some("f"), ""), call(0, None, None, "{"), call(1, None, Some("patch"), "{}")],
    ] {
        for end in [finish("stop"), finish("length")] {
            let events = streamed(&responses(), &[&pieces[..], &[end]].concat(), false);
            let count = |name| names(&events).iter().filter(|known| **known == name).count();
            assert_eq!(folded(&responses(), &events).len(), count("response.output_item.done"), "{events:?}");
        }
    }
}

#[test]
fn a_completed_response_repeats_every_item() {
    let chunks = [delta(&json!({"content": "Hi."})), call(0, Some("c"), Some("f"), "{}"), finish("stop")];
    let events = streamed(&responses(), &chunks, false);
    let done = events.iter().filter(|(name, _)| name == "response.output_item.done");
    let done: Vec<_> = done.map(|(_, data)| data["item"].clone()).collect();
    assert_eq!(done.len(), 2);
    assert_eq!(only(&events, "response.completed")["response"]["output"], json!(done));
}

#[test]
fn a_failure_ends_in_a_terminal_event_with_what_came_before() {
    let events = streamed(&responses(), &[delta(&json!({"content": "Hi"}))], false);
    let failed = &events.last().unwrap().1["response"];
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["error"], json!({"code": "upstream_error", "message": "It failed."}));
    assert_eq!(failed["usage"]["output_tokens"], 5);
    let nothing = streamed(&responses(), &[], false);
    assert_eq!(names(&nothing), ["response.created", "response.in_progress", "response.failed"]);
    let events = streamed(&messages(), &[delta(&json!({"content": "Hi"}))], false);
    let (name, error) = events.last().unwrap();
    assert_eq!(name, "error");
    assert_eq!(error["error"], json!({"type": "api_error", "message": "It failed."}));
}

#[test]
fn a_cut_is_told_as_such() {
    let chunks = [delta(&json!({"content": "Hi"}))];
    let events = streamed(&responses(), &chunks, true);
    let response = &only(&events, "response.incomplete")["response"];
    assert_eq!((&response["status"], &response["completed_at"]), (&json!("incomplete"), &json!(null)));
    assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(response["output"][0]["status"], "incomplete");
    let events = streamed(&messages(), &chunks, true);
    assert_eq!(only(&events, "message_delta")["delta"]["stop_reason"], "max_tokens");
    for reply in [responses(), messages()] {
        assert!(
            streamed(&reply, &[], true).len() >= 3,
            "a stream that is cut before anything came begins and ends"
        );
    }
}

/// Returns why a message ended, and its stop sequence, both streamed and whole.
fn stop(text: &str, finish: &str, stop_reason: &Value) -> Value {
    let last =
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish, "stop_reason": stop_reason}]});
    let events = streamed(&messages(), &[delta(&json!({"content": text})), last], false);
    let stop = only(&events, "message_delta")["delta"].clone();
    let upstream = json!({"choices": [{"index": 0, "message": {"content": text}, "finish_reason": finish, "stop_reason": stop_reason}]});
    let whole = whole_of(&messages(), &upstream);
    assert_eq!(json!({"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]}), stop);
    json!([stop["stop_reason"], stop["stop_sequence"]])
}

#[test]
fn the_sequence_that_ended_a_message_is_told() {
    assert_eq!(stop("Hi", "stop", &json!("END")), json!(["stop_sequence", "END"]));
    assert_eq!(stop("Hi END", "stop", &json!(null)), json!(["stop_sequence", "END"]), "the text shows it");
    assert_eq!(stop("Hi é", "stop", &json!(7)), json!(["stop_sequence", "é"]));
    assert_eq!(stop("Hi", "stop", &json!("other")), json!(["end_turn", null]));
    assert_eq!(stop("END", "length", &json!(null)), json!(["max_tokens", null]));
    assert_eq!(stop("Hi", "content_filter", &json!(null)), json!(["refusal", null]));
}

#[test]
fn sglangs_word_for_the_sequence_is_understood() {
    let last =
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "matched_stop": "END"}]});
    let events = streamed(&messages(), &[delta(&json!({"content": "Hi"})), last], false);
    assert_eq!(only(&events, "message_delta")["delta"]["stop_sequence"], "END");
}

#[test]
fn calls_are_told_even_where_the_upstream_says_stop() {
    let events = streamed(&messages(), &[call(0, Some("c"), Some("f"), "{}"), finish("stop")], false);
    assert_eq!(only(&events, "message_delta")["delta"]["stop_reason"], "tool_use");
}

#[test]
fn a_refusal_is_one_in_both_dialects() {
    let chunks = [delta(&json!({"refusal": "No."})), finish("stop")];
    let events = streamed(&responses(), &chunks, false);
    assert_eq!(only(&events, "response.refusal.done")["refusal"], "No.");
    let content = &only(&events, "response.completed")["response"]["output"][0]["content"];
    assert_eq!(*content, json!([{"type": "refusal", "refusal": "No."}]));
    let events = streamed(&messages(), &chunks, false);
    assert_eq!(only(&events, "message_delta")["delta"]["stop_reason"], "refusal");
}

#[test]
fn reasoning_is_left_out_of_a_message_that_did_not_ask_for_it() {
    let earlier_calls = Arc::default();
    let plain =
        Reply::Messages(Arc::new(MessagesReply { thinking: false, stops: Vec::new(), earlier_calls }));
    let chunks = [delta(&json!({"reasoning": "hm"})), delta(&json!({"content": "Hi"})), finish("stop")];
    let events = streamed(&plain, &chunks, false);
    assert_eq!(only(&events, "content_block_start")["content_block"]["type"], "text");
    let upstream =
        json!({"choices": [{"message": {"content": "Hi", "reasoning": "hm"}, "finish_reason": "stop"}]});
    assert_eq!(whole_of(&plain, &upstream)["content"], json!([{"type": "text", "text": "Hi"}]));
}

#[test]
fn parallel_calls_are_put_in_order() {
    let chunks = [
        call(0, Some("a"), Some("f"), "{\"x\":"),
        call(1, Some("b"), Some("g"), "{\"y\":"),
        call(0, None, None, "1}"),
        call(1, None, None, "2}"),
        finish("tool_calls"),
    ];
    for reply in [responses(), messages()] {
        let blocks = folded(&reply, &streamed(&reply, &chunks, false));
        let arguments: Vec<&str> = blocks.iter().map(|block| block.text.as_str()).collect();
        assert_eq!(arguments, ["{\"x\":1}", "{\"y\":2}"]);
    }
}

#[test]
fn a_call_that_goes_on_after_its_end_is_a_failure_rather_than_another_call() {
    let begun = [call(0, Some("a"), Some("f"), "{}"), call(1, Some("b"), Some("g"), "{}")];
    let goes_on = |arguments: &str| {
        let chunks = [&begun[..], &[call(0, None, None, arguments), finish("tool_calls")]].concat();
        streamed(&responses(), &chunks, false).last().unwrap().0.clone()
    };
    assert_eq!(goes_on("{\"x\":1}"), "response.failed");
    assert_eq!(goes_on(" \n"), "response.completed");
}

#[test]
fn a_name_in_pieces_is_whole_before_the_call_opens() {
    let chunks = [
        call(0, Some("a"), Some("look"), ""),
        call(0, None, Some("_up"), ""),
        call(0, None, None, "{}"),
        finish("tool_calls"),
    ];
    let events = streamed(&responses(), &chunks, false);
    assert_eq!(only(&events, "response.output_item.added")["item"]["name"], "look_up");
}

#[test]
fn a_custom_tool_is_called_with_its_text() {
    let chunks = [
        call(0, Some("a"), Some("patch"), "{\"input\": \"*** Begin\\n"),
        call(0, None, None, "\\\"é\\\"\"}"),
        finish("tool_calls"),
    ];
    let events = streamed(&responses(), &chunks, false);
    let input = "*** Begin\n\"é\"";
    assert_eq!(only(&events, "response.custom_tool_call_input.delta")["delta"], input);
    assert_eq!(only(&events, "response.custom_tool_call_input.done")["input"], input);
    let item = &only(&events, "response.output_item.done")["item"];
    assert_eq!(
        (&item["type"], &item["input"], &item["name"]),
        (&json!("custom_tool_call"), &json!(input), &json!("patch"))
    );
    assert!(item.get("arguments").is_none());
    let bare =
        streamed(&responses(), &[call(0, Some("a"), Some("patch"), "plain \\\\"), finish("stop")], false);
    assert_eq!(
        only(&bare, "response.output_item.done")["item"]["input"],
        "plain \\\\",
        "no object: as it came"
    );
}

#[test]
fn a_tool_of_a_namespace_is_called_by_its_own_name() {
    let events =
        streamed(&responses(), &[call(0, Some("a"), Some("space__look"), "{}"), finish("stop")], false);
    for name in ["response.output_item.added", "response.output_item.done"] {
        let item = &only(&events, name)["item"];
        assert_eq!((&item["name"], &item["namespace"]), (&json!("look"), &json!("space")));
    }
    assert_eq!(only(&events, "response.function_call_arguments.done")["name"], "look");
}

#[test]
fn log_probabilities_belong_to_the_text() {
    let with = |text: &str, finish: Value| {
        json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish,
            "logprobs": {"content": [{"token": text, "logprob": -0.5, "bytes": null, "top_logprobs": []}]}}]})
    };
    let events = streamed(&responses(), &[with("a", json!(null)), with("b", json!("stop"))], false);
    let deltas: Vec<_> = events.iter().filter(|(name, _)| name == "response.output_text.delta").collect();
    assert_eq!(deltas[1].1["logprobs"][0]["token"], "b");
    let tokens = |logprobs: &Value| -> Vec<Value> {
        logprobs.as_array().unwrap().iter().map(|token| token["token"].clone()).collect()
    };
    assert_eq!(tokens(&only(&events, "response.output_text.done")["logprobs"]), ["a", "b"]);
}

#[test]
fn arguments_that_are_no_object_are_handed_over_as_text() {
    let input = |arguments: &str| {
        let message = json!({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]});
        let upstream = json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]});
        whole_of(&messages(), &upstream)["content"][0]["input"].clone()
    };
    assert_eq!(input("{\"a\": [1]}"), json!({"a": [1]}));
    assert_eq!((input(""), input("null")), (json!({}), json!({})));
    assert_eq!(input("{\"a\": "), json!({"invalid_arguments": "{\"a\": "}));
    assert_eq!(input("[1]"), json!({"invalid_arguments": "[1]"}));
    for refused in
        [r#"{"a":"\ud800"}"#, r#"{"a":1e400}"#, &format!("{{\"a\":{}{}}}", "[".repeat(500), "]".repeat(500))]
    {
        assert_eq!(input(refused), json!({"invalid_arguments": refused}), "by strict readers");
    }
}

#[test]
fn silence_is_bridged_in_the_dialects_own_way() {
    for (reply, expected) in [
        (CHAT, ": keep-alive\n\n"),
        (responses(), ": keep-alive\n\n"),
        (messages(), "event: ping\ndata: {\"type\":\"ping\"}\n\n"),
    ] {
        let mut out = BytesMut::new();
        StreamWriter::new(generation(), &reply, 1, false).keep_alive(&mut out);
        assert_eq!(out, expected);
    }
}

#[test]
fn what_the_last_event_repeats_counts_as_memory() {
    let mut writer = StreamWriter::new(generation(), &responses(), 1, false);
    let chunk = delta(&json!({"content": "x".repeat(1000)})).to_string();
    let Event::Chunk(chunk) = Event::read(chunk.as_bytes()).unwrap() else { panic!() };
    let before = writer.held_bytes();
    writer.chunk(&chunk, &mut BytesMut::new()).unwrap();
    assert!(writer.held_bytes() >= before + 1000);
}

/// Writes a whole answer in a dialect.
pub(crate) fn whole_of(reply: &Reply, upstream: &Value) -> Value {
    let body = upstream.to_string();
    let completion = Completion::read(&Reply::Chat { include_usage: false }, body.as_bytes()).unwrap();
    serde_json::from_slice(&completion.write(generation(), reply, SETTLED)).unwrap()
}

/// A block as a client joins it.
#[derive(Debug, Default, PartialEq)]
struct Joined {
    kind: String,
    text: String,
}

/// Joins the blocks of a stream from their events. Panics if the stream is not well-formed.
fn folded(reply: &Reply, events: &[Received]) -> Vec<Joined> {
    match reply {
        Reply::Responses(_) => folded_response(events),
        Reply::Messages(_) => folded_message(events),
        Reply::Chat { .. } | Reply::Embeddings => panic!("no blocks"),
    }
}

fn folded_response(events: &[Received]) -> Vec<Joined> {
    let (mut items, mut open, mut done): (Vec<Joined>, Option<Value>, Vec<Value>) =
        (Vec::new(), None, Vec::new());
    assert_eq!(names(&events[..2]), ["response.created", "response.in_progress"]);
    for (number, (name, data)) in events.iter().enumerate() {
        assert_eq!(data["sequence_number"], number as u64);
        let is_last = number + 1 == events.len();
        let terminal =
            ["response.completed", "response.incomplete", "response.failed"].contains(&name.as_str());
        assert_eq!(terminal, is_last, "{name} at {number}");
        if number < 2 {
            continue;
        }
        if terminal {
            assert!(open.is_none() || name == "response.failed");
            assert_eq!(data["response"]["output"], json!(done), "{name}");
            continue;
        }
        match name.as_str() {
            "response.output_item.added" => {
                assert!(open.is_none(), "one item is open at a time");
                assert_eq!(data["output_index"], items.len() as u64);
                open = Some(data["item"].clone());
                items.push(Joined {
                    kind: data["item"]["type"].as_str().unwrap().to_owned(),
                    text: String::new(),
                });
            }
            "response.output_item.done" => {
                let added = open.take().expect("an item is open");
                assert_eq!(added["id"], data["item"]["id"]);
                assert_eq!(added["call_id"], data["item"]["call_id"]);
                done.push(data["item"].clone());
            }
            _ => {
                let added = open.as_ref().expect("an item is open");
                assert_eq!(data["item_id"], added["id"], "{name}");
                assert_eq!(data["output_index"], items.len() as u64 - 1);
                let joined = &mut items.last_mut().unwrap().text;
                if name.contains("summary") {
                    continue;
                }
                if let Some(delta) = data["delta"].as_str() {
                    joined.push_str(delta);
                }
                for member in ["text", "refusal", "arguments", "input"] {
                    if let Some(text) = data[member].as_str() {
                        assert_eq!(text, joined, "{name}");
                    }
                }
            }
        }
    }
    items
}

fn folded_message(events: &[Received]) -> Vec<Joined> {
    let (mut blocks, mut open): (Vec<Joined>, bool) = (Vec::new(), false);
    let (last, body) = events.split_last().unwrap();
    for (number, (name, data)) in body.iter().enumerate() {
        assert_eq!(name == "message_start", number == 0, "{name}");
        match name.as_str() {
            "message_start" => {}
            "message_delta" => assert!(!open && number + 2 == events.len() && last.0 == "message_stop"),
            "content_block_start" => {
                assert!(!open, "one block is open at a time");
                assert_eq!(data["index"], blocks.len() as u64);
                open = true;
                let kind = data["content_block"]["type"].as_str().unwrap().to_owned();
                blocks.push(Joined { kind, text: String::new() });
            }
            "content_block_delta" | "content_block_stop" => {
                assert!(open);
                assert_eq!(data["index"], blocks.len() as u64 - 1);
                open = name != "content_block_stop";
                for member in ["text", "thinking", "partial_json"] {
                    blocks.last_mut().unwrap().text.push_str(data["delta"][member].as_str().unwrap_or(""));
                }
            }
            other => panic!("{other}"),
        }
    }
    assert!(last.0 == "error" || (last.0 == "message_stop" && !open), "{events:?}");
    blocks
}

/// Generates pieces of an answer that an upstream may send.
fn piece() -> impl Strategy<Value = Value> {
    let text = "[a-z \"\\\\\n{}é]{0,4}";
    let id = prop::option::of("[ab]{0,1}");
    let name = prop::option::of("f|g|patch|space__look|");
    let arguments = prop::sample::select(vec!["", "{", "}", "{}", "\"a\":1", " ", "\"", "[", "]"]);
    prop_oneof![
        (prop::sample::select(vec!["content", "reasoning", "refusal"]), text)
            .prop_map(|(member, text)| delta(&json!({member: text}))),
        (0..3_u64, id, name, arguments).prop_map(|(index, id, name, arguments)| {
            call(index, id.as_deref(), name.as_deref(), arguments)
        }),
        (0..2_usize, prop::sample::select(vec!["stop", "length", "tool_calls", "content_filter", "odd"])).prop_map(
            |(index, reason)| json!({"choices": [{"index": index, "delta": {"content": "."}, "finish_reason": reason}]})
        ),
        Just(json!({"choices": [], "usage": {"prompt_tokens": 3}})),
    ]
}

/// Generates messages that an upstream sends whole.
fn message() -> impl Strategy<Value = Value> {
    let text = prop::option::of("[a-z \"\\\\\n{}é]{0,6}");
    let calls = prop::collection::vec(("f|patch|space__look", "[a-c]{0,3}", "[a-zé\"\\\\\n]{0,5}"), 0..4);
    (text.clone(), text.clone(), text, calls).prop_map(|(content, reasoning, refusal, calls)| {
        let call = |(place, (name, id, input)): (usize, (String, String, String))| {
            let arguments = json!({"input": input}).to_string();
            json!({"index": place, "id": format!("{id}{place}"), "function": {"name": name, "arguments": arguments}})
        };
        let calls: Vec<_> = calls.into_iter().enumerate().map(call).collect();
        json!({"content": content, "reasoning_content": reasoning, "refusal": refusal, "tool_calls": calls})
    })
}

/// Writes a message in chunks: each text in two halves, each call in pieces.
fn chunks(message: &Value, reason: &str) -> Vec<Value> {
    let halves = |text: &str| {
        let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
        [text[..middle].to_owned(), text[middle..].to_owned()]
    };
    let mut chunks = Vec::new();
    for member in ["reasoning_content", "content", "refusal"] {
        if let Some(text) = message[member].as_str() {
            chunks.extend(halves(text).map(|half| delta(&json!({member: half}))));
        }
    }
    for piece in message["tool_calls"].as_array().unwrap() {
        let function = &piece["function"];
        let index = piece["index"].as_u64().unwrap();
        chunks.push(call(index, piece["id"].as_str(), function["name"].as_str(), ""));
        chunks.extend(
            halves(function["arguments"].as_str().unwrap()).map(|half| call(index, None, None, &half)),
        );
    }
    chunks.push(finish(reason));
    chunks
}

proptest! {
    #[test]
    fn any_events_of_an_upstream_become_a_well_formed_stream(
        chunks in prop::collection::vec(piece(), 0..12), is_cut in any::<bool>(),
    ) {
        for reply in [responses(), messages()] {
            folded(&reply, &streamed(&reply, &chunks, is_cut));
        }
    }

    #[test]
    fn no_text_of_an_upstream_is_lost_or_made_up(chunks in prop::collection::vec(piece(), 0..12)) {
        let mut sent: BTreeMap<&str, String> = BTreeMap::new();
        for chunk in &chunks {
            let choice = &chunk["choices"][0];
            if choice["index"] == 0 {
                for (kind, member) in [("thinking", "reasoning"), ("text", "content"), ("text", "refusal")] {
                    let text = choice["delta"][member].as_str().unwrap_or("");
                    sent.entry(kind).or_default().push_str(text);
                }
            }
        }
        let events = streamed(&messages(), &chunks, true);
        if events.last().unwrap().0 == "message_stop" {
            for (kind, sent) in sent {
                let joined = folded_message(&events).into_iter().filter(|block| block.kind == kind);
                // A text that waits for a call to end may come after a refusal that arrived later.
                let sorted = |text: String| { let mut chars: Vec<char> = text.chars().collect(); chars.sort_unstable(); chars };
                prop_assert_eq!(sorted(joined.map(|block| block.text).collect()), sorted(sent));
            }
        }
    }

    #[test]
    fn a_whole_answer_is_its_stream_joined(
        message in message(), reason in prop::sample::select(vec!["stop", "length", "tool_calls"]),
    ) {
        let upstream = json!({"choices": [{"index": 0, "message": message, "finish_reason": reason}]});
        let chunks = chunks(&message, reason);
        let (whole, events) = (whole_of(&responses(), &upstream), streamed(&responses(), &chunks, false));
        folded_response(&events);
        prop_assert_eq!(&events.last().unwrap().1["response"], &whole);
        let (whole, events) = (whole_of(&messages(), &upstream), streamed(&messages(), &chunks, false));
        let content: Vec<_> = folded_message(&events).into_iter().map(|Joined { kind, text }| {
            let input = || serde_json::from_str::<Value>(&text).unwrap();
            if kind == "tool_use" { json!([kind, input()]) } else { json!([kind, text]) }
        }).collect();
        let of_whole = |block: &Value| {
            let text = ["text", "thinking", "input"].iter().find_map(|member| block.get(member)).unwrap();
            json!([block["type"], text])
        };
        let expected: Vec<_> = whole["content"].as_array().unwrap().iter().map(of_whole).collect();
        prop_assert_eq!(content, expected);
        prop_assert_eq!(&only(&events, "message_delta")["delta"]["stop_reason"], &whole["stop_reason"]);
        prop_assert_eq!(&only(&events, "message_delta")["usage"], &whole["usage"]);
    }
}

#[test]
fn every_error_has_a_type_that_agents_know() {
    let kind = |code: Code| {
        let error: Value =
            serde_json::from_str(&message_error(&ApiError::new(code, "m"), Some("req_1"))).unwrap();
        assert_eq!(
            (&error["type"], &error["request_id"], &error["error"]["message"]),
            (&json!("error"), &json!("req_1"), &json!("m"))
        );
        error["error"]["type"].as_str().unwrap().to_owned()
    };
    for code in Code::ALL {
        let expected = match code.status().as_u16() {
            400 | 405 | 409 | 415 | 426 => "invalid_request_error",
            401 => "authentication_error",
            402 => "billing_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            500 | 502 | 504 => "api_error",
            503 => "overloaded_error",
            other => panic!("{other} of {}", code.as_str()),
        };
        assert_eq!(kind(*code), expected, "{}", code.as_str());
    }
}

#[test]
fn vectors_are_passed_on_as_they_were_spelled() {
    let body = br#"{"object":"list","data": [{"index":0,"embedding":[1.0e-3, 0.10]}],"model":"secret","usage":{"prompt_tokens":7,"total_tokens":7}}"#;
    let completion = Completion::read(&Reply::Embeddings, body).unwrap();
    assert_eq!((completion.usage.prompt, completion.usage.completion), (Some(7), Some(0)));
    let settled = Settled { usage: Usage::of(7, 0, 0), ..SETTLED };
    let written = completion.write(generation(), &Reply::Embeddings, settled);
    let expected = r#"{"object":"list","data":[{"index":0,"embedding":[1.0e-3, 0.10]}],"model":"Model \"Flash\"","usage":{"prompt_tokens":7,"total_tokens":7,"cost":0.0000032}}"#;
    assert_eq!(written, expected);
    for nonsense in [&br#"{"error":{"message":"m"}}"#[..], br#"{"data":{}}"#, b"[]"] {
        assert!(Completion::read(&Reply::Embeddings, nonsense).is_err());
    }
}

#[test]
fn cached_tokens_are_counted_once() {
    let upstream = json!({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]});
    let usage = &whole_of(&messages(), &upstream)["usage"];
    let sum = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]
        .map(|name| usage[name].as_u64().unwrap());
    assert_eq!((sum, sum.iter().sum::<u64>()), ([5, 4, 3], USAGE.prompt));
    let usage = &whole_of(&responses(), &upstream)["usage"];
    assert_eq!(
        (&usage["input_tokens"], &usage["input_tokens_details"]["cached_tokens"]),
        (&json!(12), &json!(4))
    );
}
