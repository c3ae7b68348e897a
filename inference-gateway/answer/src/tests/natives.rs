//! Answers of upstreams that were called through the Responses or Messages API, compared with the same answers from the
//! chat API.

use proptest::prelude::*;
use shared_catalog::UpstreamApi;

use super::{
    dialects::{messages, responses},
    *,
};

const APIS: [UpstreamApi; 2] = [UpstreamApi::Messages, UpstreamApi::Responses];

/// A step of an answer, in all three APIs.
enum Step {
    Thinks(&'static str),
    Says(&'static str),
    Refuses(&'static str),
    /// A call in pieces, with its index among the calls.
    Calls(u64, [&'static str; 2], &'static [&'static str]),
    Ends(&'static str),
}

/// Writes the events of these steps in an API.
fn script(api: UpstreamApi, steps: &[Step]) -> Vec<Value> {
    let mut events = match api {
        UpstreamApi::Chat => Vec::new(),
        UpstreamApi::Messages => {
            vec![
                json!({"type": "message_start", "message": {"id": "msg_1", "model": "m", "content": []}}),
                json!({"type": "ping"}),
            ]
        }
        UpstreamApi::Responses => {
            vec![json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}})]
        }
    };
    for (at, step) in steps.iter().enumerate() {
        match api {
            UpstreamApi::Chat => in_chat(step, &mut events),
            UpstreamApi::Messages => in_messages(at, step, &mut events),
            UpstreamApi::Responses => in_responses(at, step, &mut events),
        }
    }
    events
}

fn in_chat(step: &Step, events: &mut Vec<Value>) {
    match step {
        Step::Thinks(text) => events.push(delta(&json!({"reasoning": text}))),
        Step::Says(text) => events.push(delta(&json!({"content": text}))),
        Step::Refuses(text) => events.push(delta(&json!({"refusal": text}))),
        Step::Calls(place, [id, name], pieces) => {
            let first = json!({"index": place, "id": id, "function": {"name": name, "arguments": ""}});
            let piece = |piece: &&str| json!({"index": place, "function": {"arguments": piece}});
            let pieces = pieces.iter().map(piece);
            events
                .extend([first].into_iter().chain(pieces).map(|call| delta(&json!({"tool_calls": [call]}))));
        }
        Step::Ends(reason) => events.push(finish(reason)),
    }
}

fn in_messages(at: usize, step: &Step, events: &mut Vec<Value>) {
    let mut block = |block: Value, deltas: Vec<Value>| {
        events.push(json!({"type": "content_block_start", "index": at, "content_block": block}));
        let delta = |delta| json!({"type": "content_block_delta", "index": at, "delta": delta});
        events.extend(deltas.into_iter().map(delta));
        events.push(json!({"type": "content_block_stop", "index": at}));
    };
    match step {
        Step::Thinks(text) => block(
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            vec![
                json!({"type": "thinking_delta", "thinking": text}),
                json!({"type": "signature_delta", "signature": ""}),
            ],
        ),
        Step::Says(text) | Step::Refuses(text) => {
            block(json!({"type": "text", "text": ""}), vec![json!({"type": "text_delta", "text": text})]);
        }
        Step::Calls(_, [id, name], pieces) => {
            let pieces = if *pieces == ["{}"] { &[] } else { *pieces };
            let piece = |piece: &&str| json!({"type": "input_json_delta", "partial_json": piece});
            block(
                json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
                pieces.iter().map(piece).collect(),
            );
        }
        Step::Ends(reason) => {
            let reason = match *reason {
                "stop" => "end_turn",
                "length" => "max_tokens",
                "tool_calls" => "tool_use",
                _ => "refusal",
            };
            events.push(json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": 5}}));
            events.push(json!({"type": "message_stop"}));
        }
    }
}

fn in_responses(at: usize, step: &Step, events: &mut Vec<Value>) {
    let mut item = |item: Value, kind: &str, deltas: &[&str]| {
        events.push(json!({"type": "response.output_item.added", "output_index": at, "item": item}));
        let delta = |delta: &&str| json!({"type": format!("response.{kind}.delta"), "output_index": at, "delta": delta});
        events.extend(deltas.iter().map(delta));
        let whole = deltas.concat();
        events.push(json!({"type": format!("response.{kind}.done"), "output_index": at, "text": whole, "arguments": whole}));
        events.push(json!({"type": "response.output_item.done", "output_index": at, "item": item}));
    };
    let message = json!({"type": "message", "id": "msg_1", "content": [], "role": "assistant"});
    match step {
        Step::Thinks(text) => {
            item(json!({"type": "reasoning", "summary": []}), "reasoning_summary_text", &[text]);
        }
        Step::Says(text) => item(message, "output_text", &[text]),
        Step::Refuses(text) => item(message, "refusal", &[text]),
        Step::Calls(_, [id, name], pieces) => {
            let call =
                json!({"type": "function_call", "id": "fc_1", "call_id": id, "name": name, "arguments": ""});
            item(call, "function_call_arguments", pieces);
        }
        Step::Ends(reason) => {
            let (status, details) = match *reason {
                "stop" | "tool_calls" => ("completed", Value::Null),
                "length" => ("incomplete", json!({"reason": "max_output_tokens"})),
                reason => ("incomplete", json!({ "reason": reason })),
            };
            let response = json!({"id": "resp_1", "status": status, "incomplete_details": details, "usage": {"output_tokens": 5}});
            events.push(json!({"type": format!("response.{status}"), "response": response}));
        }
    }
}

/// Returns what a client reads when the upstream sends these events. The gateway reads each event twice, as it does if
/// the event has to wait for tokens.
fn read_by(reply: &Reply, api: UpstreamApi, events: &[Value]) -> String {
    let (mut reader, mut writer) =
        (AnswerReader::new(api), StreamWriter::new(generation(), reply, 99, false));
    let mut out = BytesMut::new();
    for event in events {
        let event = event.to_string();
        let _ = reader.event(event.as_bytes());
        reader.again();
        match reader.event(event.as_bytes()).unwrap() {
            Event::Chunk(chunk) => writer.chunk(&chunk, &mut out).unwrap(),
            Event::Done => break,
            Event::Failed(..) => panic!("{event}"),
        }
    }
    assert!(writer.is_finished());
    writer.done(SETTLED, &mut out);
    String::from_utf8(out.to_vec()).unwrap()
}

#[test]
fn every_client_reads_of_every_upstream_what_chat_would_have_told() {
    let calls = || {
        [Step::Calls(0, ["call_1", "f"], &["{\"q\":", "\"é\\n\"}"]), Step::Calls(1, ["call_2", "g"], &["{}"])]
    };
    let [first, second] = calls();
    let parallel =
        [Step::Thinks("hm\n"), Step::Says("Hi \"\u{1f600}\"."), first, second, Step::Ends("tool_calls")];
    let plain = [Step::Says("a"), Step::Says("b"), Step::Ends("stop")];
    let cut = [Step::Says("a"), Step::Ends("length")];
    let filtered = [Step::Says("I"), Step::Ends("content_filter")];
    let silent = [Step::Ends("stop")];
    for steps in [&parallel[..], &plain, &cut, &filtered, &silent] {
        for reply in [CHAT, responses(), messages()] {
            let expected = read_by(&reply, UpstreamApi::Chat, &script(UpstreamApi::Chat, steps));
            for api in APIS {
                assert_eq!(read_by(&reply, api, &script(api, steps)), expected, "{api:?}");
            }
        }
    }
    let refused = [Step::Refuses("No."), Step::Ends("stop")];
    for reply in [CHAT, responses(), messages()] {
        let expected = read_by(&reply, UpstreamApi::Chat, &script(UpstreamApi::Chat, &refused));
        assert_eq!(
            read_by(&reply, UpstreamApi::Responses, &script(UpstreamApi::Responses, &refused)),
            expected
        );
    }
}

/// Returns the chat deltas of these events, and the finish reason.
fn deltas(api: UpstreamApi, events: &[Value]) -> (Vec<Value>, Value) {
    let written = read_by(&CHAT, api, events);
    let chunks = written
        .split("\n\n")
        .filter_map(|event| serde_json::from_str::<Value>(event.strip_prefix("data: ")?).ok());
    let (mut deltas, mut finish) = (Vec::new(), Value::Null);
    for mut chunk in chunks {
        if let Some(choice) = chunk["choices"].get_mut(0) {
            deltas.push(choice["delta"].take());
            if !choice["finish_reason"].is_null() {
                finish = choice["finish_reason"].take();
            }
        }
    }
    (deltas, finish)
}

fn ended(api: UpstreamApi, mut events: Vec<Value>) -> (Vec<Value>, Value) {
    events.extend(script(api, &[Step::Ends("stop")]).split_off(1));
    deltas(api, &events)
}

#[test]
fn every_reason_of_a_message_has_its_reason_in_chat() {
    for (reason, expected) in [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("pause_turn", "stop"),
        ("a_reason_of_tomorrow", "stop"),
    ] {
        let end = json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}});
        assert_eq!(deltas(UpstreamApi::Messages, std::slice::from_ref(&end)).1, expected, "{reason}");
        let end = end.to_string();
        let Ok(Event::Chunk(chunk)) = AnswerReader::new(UpstreamApi::Messages).event(end.as_bytes()) else {
            panic!()
        };
        assert_eq!(chunk.unknown_finish.is_some(), reason == "a_reason_of_tomorrow");
    }
}

#[test]
fn the_sequence_that_ended_a_message_is_told() {
    let events =
        [json!({"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"}})];
    let written = read_by(&messages(), UpstreamApi::Messages, &events);
    assert!(written.contains(r#""stop_reason":"stop_sequence","stop_sequence":"END""#), "{written}");
}

#[test]
fn what_a_client_of_chat_cannot_read_is_left_out() {
    let block = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta =
        |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let (said, _) = ended(
        UpstreamApi::Messages,
        vec![
            block(1, json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
            delta(1, json!({"type": "input_json_delta", "partial_json": "{\"query\":1}"})),
            json!({"type": "content_block_stop", "index": 1}),
            block(2, json!({"type": "web_search_tool_result", "content": [{"text": 7}]})),
            delta(3, json!({"type": "citations_delta", "citation": {}})),
            delta(3, json!({"type": "compaction_delta", "content": "x"})),
            json!({"type": "an_event_of_tomorrow", "delta": 7, "index": "x", "message": []}),
            json!({"type": "message_delta", "delta": {"stop_reason": null}, "usage": {"output_tokens": 3}}),
        ],
    );
    assert_eq!(said, [json!({"role": "assistant", "content": ""})]);
    let (said, _) = ended(
        UpstreamApi::Responses,
        vec![
            json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "web_search_call", "action": 7}}),
            json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "x"}),
            json!({"type": "an_event_of_tomorrow", "delta": 7, "output_index": "x", "response": []}),
        ],
    );
    assert_eq!(said, [json!({"role": "assistant", "content": ""})]);
}

#[test]
fn thoughts_that_come_in_two_forms_are_read_once_and_parts_of_a_summary_stand_apart() {
    let of = |kind: &str, item: u64, delta: &str| json!({"type": format!("response.{kind}.delta"), "output_index": item, "delta": delta});
    let part = |item: u64, part: u64| json!({"type": "response.reasoning_summary_part.added", "output_index": item, "summary_index": part});
    let (said, _) = ended(
        UpstreamApi::Responses,
        vec![
            part(0, 0),
            of("reasoning_summary_text", 0, "a"),
            of("reasoning_text", 0, "A"),
            part(0, 1),
            of("reasoning_summary_text", 0, "b"),
            of("reasoning_text", 1, "C"),
            of("reasoning_summary_text", 1, "c"),
            part(1, 1),
        ],
    );
    let said: String = said.iter().filter_map(|delta| delta["reasoning_content"].as_str()).collect();
    assert_eq!(said, "a\n\nbC");
}

#[test]
fn arguments_that_come_at_the_end_alone_are_read_then() {
    let call = json!({"type": "function_call", "call_id": "call_1", "name": "f"});
    let (said, finish) = ended(
        UpstreamApi::Responses,
        vec![
            json!({"type": "response.output_item.added", "output_index": 4, "item": call}),
            json!({"type": "response.function_call_arguments.done", "output_index": 4, "arguments": "{\"q\":1}"}),
        ],
    );
    assert_eq!(said[1]["tool_calls"], json!([{"index": 0, "function": {"arguments": "{\"q\":1}"}}]));
    assert_eq!(finish, "tool_calls");
}

#[test]
fn log_probabilities_of_a_response_are_written_as_chats() {
    let tokens = json!([{"token": "a", "logprob": -1, "top_logprobs": [{"token": "b", "logprob": -2}]}]);
    let event =
        json!({"type": "response.output_text.delta", "output_index": 0, "delta": "a", "logprobs": tokens})
            .to_string();
    let Ok(Event::Chunk(chunk)) = AnswerReader::new(UpstreamApi::Responses).event(event.as_bytes()) else {
        panic!()
    };
    assert_eq!(chunk.outputs().next().unwrap().1, OutputSize { bytes: 1, listed_tokens: 1 });
    let mut out = BytesMut::new();
    Rewriter::new(generation(), false).chunk(&chunk, &mut out);
    let listed = &events(&mut out)[0]["choices"][0]["logprobs"]["content"][0];
    assert_eq!(listed["top_logprobs"], json!([{"token": "b", "logprob": -2, "bytes": null}]));
}

#[test]
fn usage_is_exact_over_the_beginning_and_the_end_of_a_message() {
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":3,"cache_read_input_tokens":100,"cache_creation_input_tokens":50,
        "cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":30},"output_tokens":1}}}"#;
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":3,"cache_read_input_tokens":100,
        "cache_creation_input_tokens":50,"output_tokens":40,"output_tokens_details":{"thinking_tokens":7}}}"#;
    let mut reader = AnswerReader::new(UpstreamApi::Messages);
    let mut usage = Reported::default();
    for event in [start, end] {
        let Ok(Event::Chunk(chunk)) = reader.event(event.as_bytes()) else { panic!("{event}") };
        usage = usage.max(chunk.usage().unwrap());
    }
    let expected = Reported {
        prompt: Some(153),
        cached: Some(100),
        written: Some(50),
        written_long: Some(30),
        completion: Some(40),
        reasoning: Some(7),
        ..Reported::default()
    };
    assert_eq!(usage, expected);
}

#[test]
fn errors_of_either_api_are_failures_and_the_usage_of_a_failed_response_counts() {
    for (api, event) in [
        (UpstreamApi::Messages, r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#),
        (UpstreamApi::Messages, r#"{"error":{"message":"m"}}"#),
        (UpstreamApi::Responses, r#"{"type":"error","code":"server_error","message":"m"}"#),
        (
            UpstreamApi::Responses,
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"m"}}}"#,
        ),
        (UpstreamApi::Responses, r#"{"error":{"message":"m"}}"#),
    ] {
        let Ok(Event::Failed(error, _)) = AnswerReader::new(api).event(event.as_bytes()) else {
            panic!("{event}")
        };
        assert_eq!(error.message, "m", "{event}");
    }
    let failed = br#"{"type":"response.failed","response":{"error":null,"usage":{"input_tokens":3,"output_tokens":2}}}"#;
    let Ok(Event::Failed(_, chunk)) = AnswerReader::new(UpstreamApi::Responses).event(failed) else {
        panic!()
    };
    assert_eq!(chunk.usage().unwrap().completion, Some(2));
    for api in APIS {
        assert!(matches!(AnswerReader::new(api).event(b" [DONE]"), Ok(Event::Done)));
    }
}

/// Reads a whole answer of an API as a chat client does.
fn whole_of_api(api: UpstreamApi, body: &Value) -> Result<Value, Nonsense> {
    let chat = whole_as_chat(AnswerReader::new(api), Bytes::from(body.to_string()));
    let chat = chat.map_err(|none| match none {
        NoAnswer::Complained(_) => Nonsense::Error,
        NoAnswer::Nonsense(nonsense) => nonsense,
    })?;
    let completion = Completion::read(&CHAT, &chat.body)?;
    let usage = chat.usage;
    let mut written: Value = serde_json::from_slice(&completion.write(generation(), &CHAT, SETTLED)).unwrap();
    let mut choice = written["choices"][0].take();
    choice["read"] = json!([usage.prompt, usage.cached, usage.completion]);
    Ok(choice)
}

#[test]
fn a_whole_message_is_read_as_an_answer_of_chat() {
    let mut message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "Hi \"", "citations": null},
        {"type": "text", "text": "\u{e9}."},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"q": "\"\n"}},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}},
    ], "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 5}});
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let expected = json!({"index": 0, "message": {"role": "assistant", "content": "Hi \"\u{e9}.", "refusal": null, "reasoning_content": "hm",
        "tool_calls": [call("toolu_1", "f", r#"{"q":"\"\n"}"#), call("toolu_2", "g", "{}")]},
        "logprobs": null, "finish_reason": "tool_calls", "read": [7, 4, 5]});
    // Without a finish reason, the calls show why the answer ended.
    for reason in [json!("tool_use"), Value::Null] {
        message["stop_reason"] = reason;
        let mut read = whole_of_api(UpstreamApi::Messages, &message).unwrap();
        let details = read["message"].as_object_mut().unwrap().remove("reasoning_details");
        assert!(details.is_some_and(|details| details[0]["type"] == "reasoning.encrypted"));
        assert_eq!(read, expected);
    }
    let error = json!({"type": "error", "error": {"type": "api_error", "message": "m"}});
    assert_eq!(whole_of_api(UpstreamApi::Messages, &error).unwrap_err(), Nonsense::Error);
    let nothing = json!({"content": [], "stop_reason": "end_turn"});
    assert_eq!(whole_of_api(UpstreamApi::Messages, &nothing).unwrap()["message"]["content"], Value::Null);
}

#[test]
fn a_whole_response_is_read_as_an_answer_of_chat() {
    let tokens = json!([{"token": "Hi", "logprob": -1, "bytes": [72, 105], "top_logprobs": []}]);
    let mut response = json!({"id": "resp_1", "object": "response", "status": "completed", "error": null, "incomplete_details": null, "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]},
        {"type": "reasoning", "id": "rs_2", "content": [{"type": "reasoning_text", "text": "C"}], "summary": [{"type": "summary_text", "text": "c"}]},
        {"type": "web_search_call", "id": "ws_1"},
        {"type": "message", "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": tokens},
            {"type": "refusal", "refusal": "No."}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{\"q\":1}"},
    ], "usage": {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5, "total_tokens": 12}});
    let expected = json!({"index": 0, "message": {"role": "assistant", "content": "Hi", "refusal": "No.", "reasoning_content": "a\n\nbC",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"q\":1}"}}]},
        "logprobs": {"content": tokens, "refusal": null}, "finish_reason": "tool_calls", "read": [7, 4, 5]});
    assert_eq!(whole_of_api(UpstreamApi::Responses, &response).unwrap(), expected);
    for (details, finish) in
        [(json!({"reason": "content_filter"}), "content_filter"), (Value::Null, "length")]
    {
        (response["status"], response["incomplete_details"]) = (json!("incomplete"), details);
        assert_eq!(whole_of_api(UpstreamApi::Responses, &response).unwrap()["finish_reason"], finish);
    }
    response["status"] = json!("in_progress");
    assert_eq!(whole_of_api(UpstreamApi::Responses, &response).unwrap()["finish_reason"], "tool_calls");
    (response["status"], response["error"]) =
        (json!("failed"), json!({"code": "server_error", "message": "m"}));
    assert_eq!(whole_of_api(UpstreamApi::Responses, &response).unwrap_err(), Nonsense::Error);
}

#[test]
fn what_is_kept_of_a_native_answer_has_a_bound() {
    let long = "n".repeat(100_000);
    for api in APIS {
        let call = |place: u64, name: &str| match script(api, &[Step::Calls(0, ["c", "f"], &[])])
            .swap_remove(api_start(api))
        {
            Value::Object(mut event) => {
                event.insert(
                    if api == UpstreamApi::Messages { "index" } else { "output_index" }.into(),
                    place.into(),
                );
                Value::Object(event).to_string().replace("\"f\"", &format!("\"{name}\""))
            }
            other => panic!("{other}"),
        };
        let mut reader = AnswerReader::new(api);
        let mut read = |event: &str| reader.event(event.as_bytes()).map(|_| ());
        assert!(read(&call(0, &long)).is_err());
        let errors = (0..1000).filter(|place| read(&call(*place, "f")).is_err()).count();
        assert_eq!(errors, 488);
    }
}

/// Counts the events before the first step.
fn api_start(api: UpstreamApi) -> usize {
    if api == UpstreamApi::Messages { 2 } else { 1 }
}

proptest! {
    #[test]
    fn whatever_a_native_upstream_says_is_survived(payload in prop::collection::vec(any::<u8>(), 0..100)) {
        for api in APIS {
            let _ = AnswerReader::new(api).event(&payload);
            let _ = whole_as_chat(AnswerReader::new(api), Bytes::from(payload.clone()));
            let _ = Completion::read_passed(api, &payload);
        }
    }

    #[test]
    fn damaged_events_are_refused_or_still_written_whole(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), prop::sample::select(&b"{}[]\":,\\0-1nt\x00\xff "[..]), any::<bool>()), 1..4),
    ) {
        let steps = [Step::Thinks("hm"), Step::Says("a\n"), Step::Calls(0, ["c", "f"], &["{}"]), Step::Ends("tool_calls")];
        for api in APIS {
            let mut payloads: Vec<Vec<u8>> = script(api, &steps).iter().map(|event| event.to_string().into_bytes()).collect();
            for (event, at, byte, truncates) in &damage {
                let event = event.index(payloads.len());
                let at = at.index(payloads[event].len());
                payloads[event][at] = *byte;
                if *truncates {
                    payloads[event].truncate(at + 1);
                }
            }
            let mut writers = [CHAT, responses(), messages()].map(|reply| StreamWriter::new(generation(), &reply, 99, false));
            let mut reader = AnswerReader::new(api);
            for payload in &payloads {
                if let Ok(Event::Chunk(chunk)) = reader.event(payload) {
                    for writer in &mut writers {
                        let mut out = BytesMut::new();
                        let _ = writer.chunk(&chunk, &mut out);
                        events(&mut out);
                    }
                }
            }
        }
    }
}
