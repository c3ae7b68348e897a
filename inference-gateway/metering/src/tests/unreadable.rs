//! Streams with events that cannot be kept or read.

use serde_json::Value;

use super::{
    fuzz::{counter, meter_for, replies},
    *,
};

/// A length in bytes that no event may have.
const LONG: usize = 17 << 20;

/// Tokens that the upstream reports for a prompt of blanks. The estimate differs from this.
const PROMPT: u64 = 440_000;

fn event(json: &Value) -> String {
    format!("data: {json}\n\n")
}

/// Returns a response whose instructions are this many blanks.
fn response(blanks: usize, usage: &Value) -> Value {
    let status = if usage.is_null() { "in_progress" } else { "completed" };
    json!({"id": "resp_v", "instructions": " ".repeat(blanks), "model": "v", "output": [], "status": status, "usage": usage})
}

/// Returns an event about the response, with its type first, as the vendor writes it, or last, as other servers do.
fn about(kind: &str, response: &Value, first: bool) -> String {
    let kind = json!(kind);
    let event = if first {
        format!(r#"{{"type":{kind},"sequence_number":0,"response":{response}}}"#)
    } else {
        format!(r#"{{"response":{response},"sequence_number":0,"type":{kind}}}"#)
    };
    format!("data: {event}\n\n")
}

fn text_of_response() -> String {
    let item = json!({"id": "msg_v", "type": "message", "role": "assistant", "content": []});
    let done = json!({"id": "msg_v", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "abc"}]});
    [
        event(&json!({"type": "response.output_item.added", "output_index": 0, "item": item})),
        event(&json!({"type": "response.output_text.delta", "output_index": 0, "item_id": "msg_v", "delta": "abc"})),
        event(&json!({"type": "response.output_item.done", "output_index": 0, "item": done})),
    ]
    .concat()
}

fn run(meter: &mut StreamMeter, body: &str) -> StreamEnd {
    let pieces: Vec<Bytes> = body.as_bytes().chunks(1 << 20).map(Bytes::copy_from_slice).collect();
    carry(meter, &pieces, 200)
}

/// Lists the types of the events that a client reads, once the stream is finished.
fn finished(mut meter: StreamMeter) -> (String, Vec<String>) {
    meter.cut();
    let usage = meter.usage();
    meter.finish(Settled { usage, cost: None, completed: 2 });
    let out = String::from_utf8(meter.output().take().to_vec()).unwrap();
    let kinds = out.lines().filter_map(|line| line.strip_prefix("event: ").map(str::to_owned)).collect();
    (out, kinds)
}

#[test]
fn a_response_whose_repetition_of_the_request_is_too_long_is_delivered_and_billed_as_reported() {
    let usage = json!({"input_tokens": PROMPT, "output_tokens": 3, "total_tokens": PROMPT + 3});
    for [first, last] in [[LONG, 9], [9, LONG]] {
        for type_first in [true, false] {
            let body = [
                about("response.created", &response(first, &Value::Null), type_first),
                about("response.in_progress", &response(first, &Value::Null), type_first),
                text_of_response(),
                about("response.completed", &response(last, &usage), type_first),
            ]
            .concat();
            for reply in replies() {
                let place = format!("{first} {last} {type_first} {:?}", reply.api());
                let mut meter = meter_for(UpstreamApi::Responses, &reply, true, UsageScope::Answer, 200);
                assert!(matches!(run(&mut meter, &body), StreamEnd::Complete), "{place}");
                assert_eq!(meter.usage(), Usage::of(PROMPT, 0, 3), "{place}");
                assert!(meter.is_reported(), "{place}");
                let long = [first, first, last].iter().filter(|length| **length == LONG).count() as u64;
                assert_eq!(meter.too_long_events(), long, "{place}");
                let (out, kinds) = finished(meter);
                assert!(out.contains("abc") && out.len() < 10_000, "{place}: {}", out.len());
                if reply.api() == UpstreamApi::Responses {
                    let ends: Vec<_> = [kinds.first(), kinds.last()].into_iter().flatten().collect();
                    assert_eq!(ends, ["response.created", "response.completed"], "{place}: {kinds:?}");
                    let created = kinds.iter().filter(|kind| *kind == "response.created").count();
                    assert_eq!(created, 1, "{place}: {kinds:?}");
                    let end: Value =
                        serde_json::from_str(out.trim_end().rsplit("data: ").next().unwrap()).unwrap();
                    let told = &end["response"]["usage"]["input_tokens"];
                    assert_eq!(told, PROMPT, "{place}: {end}");
                }
            }
        }
    }
}

#[test]
fn what_a_request_repeats_of_usage_in_an_event_that_is_too_long_is_no_report() {
    let forged = json!({"tools": [{"usage": {"input_tokens": 1, "output_tokens": 1}}], "usage": null});
    let created = about("response.created", &json!({"instructions": " ".repeat(LONG), "z": forged}), true);
    let reply = &replies()[1];
    let mut meter = meter_for(UpstreamApi::Responses, reply, true, UsageScope::Answer, 200);
    assert!(meter.push(created.into()).is_none());
    assert_eq!((meter.usage(), meter.is_reported()), (Usage::of(10, 0, 0), false));
}

#[test]
fn events_that_are_too_long_are_left_out_of_every_api() {
    let long = " ".repeat(LONG);
    let chat = [
        event(&json!({"choices": [{"index": 0, "delta": {"content": "abc"}}]})),
        event(&json!({"choices": [], "request": long})),
        event(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})),
        // The usage comes after the overlong part.
        event(
            &json!({"choices": [], "request": long, "usage": {"prompt_tokens": PROMPT, "completion_tokens": 3}}),
        ),
        "data: [DONE]\n\n".to_owned(),
    ];
    let usage = json!({"input_tokens": PROMPT, "output_tokens": 1});
    let messages = [
        event(
            &json!({"message": {"id": "msg_v", "content": [], "a": long, "usage": usage}, "type": "message_start"}),
        ),
        event(
            &json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ),
        event(
            &json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "abc"}}),
        ),
        event(&json!({"type": "content_block_stop", "index": 0, "x": long})),
        event(
            &json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
        ),
        event(&json!({"type": "message_stop"})),
    ];
    for (api, body) in [(UpstreamApi::Chat, &chat[..]), (UpstreamApi::Messages, &messages[..])] {
        for reply in replies() {
            let place = format!("{api:?} to {:?}", reply.api());
            let mut meter = meter_for(api, &reply, true, UsageScope::Answer, 200);
            assert!(matches!(run(&mut meter, &body.concat()), StreamEnd::Complete), "{place}");
            assert_eq!((meter.usage(), meter.too_long_events()), (Usage::of(PROMPT, 0, 3), 2), "{place}");
            let (out, _) = finished(meter);
            assert!(out.contains("abc") && out.len() < 10_000, "{place}: {}", out.len());
        }
    }
}

#[test]
fn usage_in_an_event_that_is_too_long_waits_for_its_tokens_to_be_granted() {
    let usage = json!({"prompt_tokens": 12, "completion_tokens": 150});
    let long = event(&json!({"choices": [], "request": " ".repeat(LONG), "usage": usage}));
    let mut meter = meter(100, 1_000);
    assert!(meter.push(long.into()).is_none() && meter.is_blocked());
    assert!(meter.held_bytes() < LONG / 10, "{}", meter.held_bytes());
    assert!(meter.extended(1_000, 1_000).is_none() && !meter.is_blocked());
    assert_eq!(meter.usage(), Usage::of(12, 0, 150));
}

#[test]
fn a_stream_that_cannot_be_read_is_not_free_and_one_that_ends_too_early_is() {
    for (api, unreadable) in [
        (UpstreamApi::Chat, "data: {\"choices\": [\n\n".to_owned()),
        (UpstreamApi::Messages, "data: {\"type\": \"message_start\n\n".to_owned()),
        (UpstreamApi::Responses, "data: {\"type\": \"response.completed\", }\n\n".to_owned()),
    ] {
        let reply = &replies()[0];
        let mut meter = meter_for(api, reply, false, UsageScope::Answer, 200);
        assert!(meter.push(unreadable.into()).is_none(), "{api:?}: what cannot be read is skipped");
        assert!(matches!(meter.upstream_ended(None), Some(StreamEnd::Broken(_))), "{api:?}");
        assert!(!meter.is_free() && !meter.has_begun(), "{api:?}");
        meter.set_prompt(7);
        assert_eq!(meter.usage(), Usage::of(7, 0, 0), "{api:?}: the count that is known");
        let mut ended = meter_for(api, reply, false, UsageScope::Answer, 200);
        assert!(ended.push("data: a word\n\n".into()).is_none(), "{api:?}");
        let end = ended.upstream_ended(None);
        assert!(matches!(end, Some(StreamEnd::Broken(_))) && ended.is_free(), "{api:?}");
    }
}

#[test]
fn usage_that_an_event_tells_twice_counts_once_and_at_its_largest() {
    let twice =
        r#"data: {"choices":[],"usage":{"prompt_tokens":5,"prompt_tokens":40,"completion_tokens":3}}"#;
    let mut meter = meter(100, 1_000);
    assert!(meter.push(format!("{twice}\n\n").into()).is_none());
    assert_eq!(meter.usage(), Usage::of(40, 0, 3));
    // A member that is read may occur only once. The last usage of an event that cannot be read is known nevertheless.
    let twice = r#"data: {"choices":[],"usage":null,"usage":{"prompt_tokens":50,"completion_tokens":4}}"#;
    assert!(meter.push(format!("{twice}\n\n").into()).is_none());
    assert_eq!(meter.usage(), Usage::of(50, 0, 4));
}

#[test]
fn an_answer_of_which_an_event_is_too_long_is_counted_and_not_given_out() {
    let mut folded = FoldMeter::new(AnswerReader::new(UpstreamApi::Chat), counter(UsageScope::Choice), 1);
    let piece = |text: &str| event(&json!({"choices": [{"index": 0, "delta": {"content": text}}]}));
    let usage = event(&json!({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 30}}));
    let body = [piece("a"), piece(&"x".repeat(LONG)), usage, "data: [DONE]\n\n".into()].concat();
    assert!(matches!(folded.push(body.into()), Some(FoldEnd::Complete)));
    assert_eq!(folded.counter().usage(), Usage::of(12, 0, 30));
    assert!(folded.is_too_long() && folded.take_answer().is_none());
}

#[test]
fn a_call_that_goes_on_after_its_end_makes_a_stream_unreadable_and_does_not_break_it_off() {
    let piece = |index: u64, id: &str, arguments: &str| {
        let call = json!({"index": index, "id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
        event(&json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))
    };
    let body = [piece(0, "a", "{}"), piece(1, "b", "{}"), piece(0, "a", "{\"x\":1}")].concat();
    for reply in &replies()[1..] {
        let mut meter = meter_for(UpstreamApi::Chat, reply, false, UsageScope::Answer, 200);
        let end = run(&mut meter, &body);
        assert!(matches!(end, StreamEnd::Broken(_)) && meter.is_unreadable() && !meter.is_free());
        let mut meter = meter_for(UpstreamApi::Chat, reply, false, UsageScope::Answer, 200);
        let end = run(&mut meter, &piece(0, "a", "{}"));
        // A body that ends without a reason is the server's fault.
        assert!(!matches!(end, StreamEnd::Complete) && !meter.is_unreadable());
    }
}
