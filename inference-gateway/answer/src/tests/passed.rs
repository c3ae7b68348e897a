//! Answers passed on to a client of the same API.

use proptest::prelude::*;
use shared_catalog::UpstreamApi;

use super::{
    dialects::{messages, responses},
    *,
};

/// A stream to a client that uses the same API in which the upstream was asked.
struct Passing {
    reader: AnswerReader,
    writer: StreamWriter,
    out: BytesMut,
}

impl Passing {
    fn new(api: UpstreamApi) -> Self {
        let reply = reply(api);
        let writer = StreamWriter::new(generation(), &reply, 99, true);
        Self { reader: AnswerReader::new(api), writer, out: BytesMut::new() }
    }

    fn of(api: UpstreamApi, events: &[&str]) -> Self {
        let mut passing = Self::new(api);
        for event in events {
            passing.event(event);
        }
        passing
    }

    fn event(&mut self, event: &str) {
        match self.reader.event(event.as_bytes()).unwrap() {
            Event::Chunk(chunk) => self.writer.chunk(&chunk, &mut self.out).unwrap(),
            Event::Done | Event::Failed(..) => {}
        }
    }

    fn written(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    /// Ends the stream as a success, and returns what this writes.
    fn done(mut self) -> String {
        self.out.clear();
        self.writer.cut(&mut self.out);
        self.writer.done(SETTLED, &mut self.out);
        self.written().to_owned()
    }

    fn fail(mut self) -> String {
        self.out.clear();
        let error = ApiError::new(Code::UpstreamError, "It failed.");
        self.writer.fail(&error, Some(SETTLED), &mut self.out);
        self.written().to_owned()
    }
}

fn reply(api: UpstreamApi) -> Reply {
    match api {
        UpstreamApi::Messages => messages(),
        UpstreamApi::Responses => responses(),
        UpstreamApi::Chat => CHAT,
    }
}

fn data(event: &str) -> Value {
    let lines = event.lines().filter_map(|line| line.strip_prefix("data: "));
    serde_json::from_str(&lines.collect::<Vec<_>>().join("\n")).unwrap()
}

const MESSAGE: [&str; 8] = [
    r#"{"type":"message_start","message":{"id":"msg_1", "model" : "claude-x", "content":[],"x":[1 ,2],"usage":{"input_tokens":3,"output_tokens":1}},"y":null}"#,
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
    r#"{"type": "ping"}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"h\u00e9"},"z":{"model":"m"}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}"#,
    r#"{"type":"content_block_stop","index":0}"#,
    r#"{"type":"an_event_of_tomorrow","model":"claude-x","delta":7}"#,
    r#"{"type":"message_delta", "delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":5 },"context_management":{}}"#,
];

const RESPONSE: [&str; 7] = [
    r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_v","model":"gpt-x","usage":null,"x": 1}}"#,
    r#"{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"msg_v","type":"message","content":[],"role":"assistant"}}"#,
    r#"{"type":"response.output_text.delta","sequence_number":2,"output_index":0,"item_id":"msg_v","delta":"H\"\u00e9","obfuscation":"zz"}"#,
    r#"{"type":"response.tomorrow","sequence_number":3,"response":7,"model":"gpt-x"}"#,
    r#"{"type":"response.output_text.done","sequence_number":4,"output_index":0,"text":"H\"\u00e9"}"#,
    r#"{"type":"response.output_item.done","sequence_number":5,"output_index":0,"item":{"id":"msg_v","type":"message","status":"completed","content":[{"type":"output_text","text":"H\"\u00e9"}]}}"#,
    r#"{"type":"response.completed","sequence_number":6,"response":{"id":"resp_v","model":"gpt-x","status":"completed","output":[{"id":"msg_v"}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}},"y":1}"#,
];

/// Returns the bytes of an event after these edits, as it is passed on.
fn edited(event: &str, edits: &[(&str, &str)]) -> String {
    let mut edited = event.to_owned();
    for (known, new) in edits {
        assert!(edited.contains(known), "{known} in {event}");
        edited = edited.replacen(known, new, 1);
    }
    let kind = data(&format!("data: {event}"))["type"].as_str().unwrap().to_owned();
    format!("event: {kind}\ndata: {edited}\n\n")
}

const MODEL: &str = r#""Model \"Flash\"""#;

#[test]
fn the_events_of_a_message_pass_as_they_came_but_for_the_model_and_the_cost() {
    let passing = Passing::of(UpstreamApi::Messages, &MESSAGE);
    let mut expected = edited(MESSAGE[0], &[(r#""claude-x""#, MODEL)]);
    expected.extend(MESSAGE[1..7].iter().map(|event| edited(event, &[])));
    assert_eq!(passing.written(), expected);
    assert!(passing.writer.is_finished());
    assert_eq!(passing.writer.held_bytes(), MESSAGE[7].len());
    let end = edited(MESSAGE[7], &[(r#""output_tokens":5 "#, r#""output_tokens":5 ,"cost":0.0000032"#)]);
    assert_eq!(passing.done(), end + "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

#[test]
fn the_events_of_a_response_pass_as_they_came_but_for_the_model_and_the_cost() {
    let passing = Passing::of(UpstreamApi::Responses, &RESPONSE);
    let mut expected = edited(RESPONSE[0], &[(r#""gpt-x""#, MODEL)]);
    expected.extend(RESPONSE[1..6].iter().map(|event| edited(event, &[])));
    assert_eq!(passing.written(), expected);
    let edits = [(r#""gpt-x""#, MODEL), (r#""total_tokens":3"#, r#""total_tokens":3,"cost":0.0000032"#)];
    assert_eq!(passing.done(), edited(RESPONSE[6], &edits));
}

#[test]
fn a_last_event_without_output_repeats_what_passed_since_sdks_read_nothing_else() {
    let item = data(&format!("data: {}", RESPONSE[5]))["item"].clone();
    for (output, expected) in [
        (r#","output":[ ]"#, json!([item])),
        (r#","output":null"#, json!([item])),
        ("", json!([item])),
        (r#","output":[7]"#, json!([7])),
    ] {
        let mut passing = Passing::of(UpstreamApi::Responses, &RESPONSE[..6]);
        passing.event(&RESPONSE[6].replace(r#","output":[{"id":"msg_v"}]"#, output));
        let end = passing.done();
        assert_eq!(data(&end)["response"]["output"], expected, "{end}");
        assert_eq!(end.matches(r#""output":"#).count(), 1, "{end}");
    }
    // The event that ends the last item may be missing.
    let mut passing = Passing::of(UpstreamApi::Responses, &RESPONSE[..3]);
    passing.event(&RESPONSE[6].replace(r#"[{"id":"msg_v"}]"#, "[]"));
    let item = &data(&passing.done())["response"]["output"][0];
    assert_eq!((&item["id"], &item["status"]), (&json!("msg_v"), &json!("completed")), "{item}");
    assert_eq!(item["content"][0]["text"], "H\"\u{e9}", "{item}");
}

#[test]
fn nothing_passes_behind_the_last_event() {
    let mut passing = Passing::of(UpstreamApi::Messages, &MESSAGE);
    let before = passing.written().len();
    passing.event(MESSAGE[2]);
    assert_eq!(passing.written().len(), before);
}

#[test]
fn an_event_of_several_lines_keeps_its_lines() {
    let passing = Passing::of(UpstreamApi::Messages, &["{\"type\":\"ping\",\n\"x\":\n1}"]);
    assert_eq!(passing.written(), "event: ping\ndata: {\"type\":\"ping\",\ndata: \"x\":\ndata: 1}\n\n");
    let decoded = events(&mut BytesMut::from(passing.written()));
    assert_eq!(decoded, [json!({"type": "ping", "x": 1})]);
}

#[test]
fn a_usage_that_is_missing_is_ours_and_a_cost_of_the_vendors_is_replaced() {
    let usage = |end: &str| {
        data(
            &Passing::of(UpstreamApi::Messages, &[end])
                .done()
                .replace("\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}", ""),
        )["usage"]
            .clone()
    };
    let ours = json!({"input_tokens": 5, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 5, "cost": 0.000_003_2});
    for missing in ["", r#","usage":null"#, r#","usage":7"#] {
        assert_eq!(
            usage(&format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}}{missing}}}"#)),
            ours,
            "{missing}"
        );
    }
    for (api, end) in [
        (
            UpstreamApi::Messages,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":null}"#,
        ),
        (
            UpstreamApi::Responses,
            r#"{"type":"response.completed","response":{"status":"completed","usage":null}}"#,
        ),
    ] {
        let ended = Passing::of(api, &[end]).done();
        assert_eq!(ended.matches("\"usage\"").count(), 1, "it takes the place of null: {ended}");
    }
    let told =
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"cost":7,"output_tokens":2}}"#;
    assert_eq!(usage(told), json!({"cost": 0.000_003_2, "output_tokens": 2}));
    let response = r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#;
    let ended = data(&Passing::of(UpstreamApi::Responses, &[response]).done());
    assert_eq!(ended["response"]["usage"]["total_tokens"], 17);
    assert_eq!(ended["response"]["usage"]["cost"], json!(0.000_003_2));
}

#[test]
fn a_message_that_is_cut_ends_with_its_open_block_closed() {
    let cut = Passing::of(UpstreamApi::Messages, &MESSAGE[..4]).done();
    let received: Vec<Value> = cut.trim_end().split("\n\n").map(data).collect();
    assert_eq!(received[0], json!({"type": "content_block_stop", "index": 0}));
    assert_eq!(received[1]["delta"], json!({"stop_reason": "max_tokens", "stop_sequence": null}));
    assert_eq!(received[1]["usage"]["cost"], json!(0.000_003_2));
    assert_eq!(received[2], json!({"type": "message_stop"}));
    let cut = Passing::of(UpstreamApi::Messages, &MESSAGE[..6]).done();
    assert!(cut.starts_with("event: message_delta\n"), "{cut}");
    let cut = Passing::new(UpstreamApi::Messages).done();
    assert!(cut.starts_with("event: message_start\n"), "{cut}");
}

#[test]
fn a_response_that_is_cut_ends_with_what_came_under_the_vendors_ids() {
    let cut = Passing::of(UpstreamApi::Responses, &RESPONSE[..3]).done();
    let received: Vec<Value> = cut.trim_end().split("\n\n").map(data).collect();
    let item = json!({"id": "msg_v", "type": "message", "status": "incomplete", "role": "assistant",
        "content": [{"type": "output_text", "annotations": [], "text": "H\"\u{e9}", "logprobs": []}]});
    assert_eq!(
        received[0],
        json!({"type": "response.output_item.done", "sequence_number": 3, "output_index": 0, "item": item})
    );
    let response = &received[1]["response"];
    assert_eq!(
        (&received[1]["type"], &received[1]["sequence_number"], &response["id"], &response["output"]),
        (&json!("response.incomplete"), &json!(4), &json!("resp_v"), &json!([item]))
    );
    assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(response["usage"]["cost"], json!(0.000_003_2));
}

#[test]
fn finished_items_stay_in_a_response_that_is_cut_and_thoughts_without_an_end_do_not() {
    let mut passing = Passing::of(UpstreamApi::Responses, &RESPONSE[..6]);
    passing.event(r#"{"type":"response.output_item.added","sequence_number":7,"output_index":1,"item":{"type":"reasoning","id":"rs_1"}}"#);
    passing.event(r#"{"type":"response.reasoning_summary_text.delta","sequence_number":8,"output_index":1,"delta":"hm"}"#);
    let cut = data(&passing.done());
    assert_eq!(cut["response"]["output"], json!([data(&format!("data: {}", RESPONSE[5]))["item"]]));
    let call = [
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc_v","call_id":"call_v","name":"f","arguments":""}}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{\"q\""}"#,
    ];
    let cut = Passing::of(UpstreamApi::Responses, &call).done();
    let last = data(cut.trim_end().rsplit("\n\n").next().unwrap());
    let expected = json!({"id": "fc_v", "type": "function_call", "status": "incomplete", "call_id": "call_v", "name": "f", "arguments": "{\"q\""});
    assert_eq!(last["response"]["output"], json!([expected]));
}

#[test]
fn a_stream_that_fails_ends_with_the_error_of_its_api() {
    let failed = Passing::of(UpstreamApi::Messages, &MESSAGE[..4]).fail();
    assert!(failed.starts_with("event: error\ndata: {") && failed.ends_with("}\n\n"), "{failed}");
    let error = json!({"type": "error", "error": {"type": "api_error", "message": "It failed."}});
    assert_eq!(data(&failed), error);
    let failed = data(&Passing::of(UpstreamApi::Responses, &RESPONSE[..6]).fail());
    assert_eq!((&failed["type"], &failed["sequence_number"]), (&json!("response.failed"), &json!(6)));
    assert_eq!(
        (&failed["response"]["id"], &failed["response"]["error"]["code"]),
        (&json!("resp_v"), &json!("upstream_error"))
    );
    let failed = Passing::new(UpstreamApi::Responses).fail();
    assert!(failed.starts_with("event: response.created\n"), "{failed}");
}

#[test]
fn a_whole_answer_passes_as_it_came_but_for_the_model_and_the_cost() {
    for (api, body, usage) in [
        (
            UpstreamApi::Messages,
            "\n {\"id\":\"msg_1\",\t\"model\":\"claude-x\",\"content\":[{\"type\":\"x\",\"model\":1}],\"usage\":{\"output_tokens\":5}, \"z\":[],\"stop_reason\":\"end_turn\"}",
            r#"{"output_tokens":5,"cost":0.0000032}"#,
        ),
        (
            UpstreamApi::Responses,
            r#"{"model":"claude-x","output":[{"type":"x","usage":{}}],"usage":{"output_tokens":5},"z":7,"status":"completed" }"#,
            r#"{"output_tokens":5,"cost":0.0000032}"#,
        ),
    ] {
        let passed = Completion::read_passed(api, body.as_bytes()).unwrap();
        let passed = passed.write(generation(), &reply(api), SETTLED);
        let expected = body.replace(r#""claude-x""#, MODEL).replace(r#"{"output_tokens":5}"#, usage);
        assert_eq!(passed, expected.as_bytes());
    }
    let bare =
        Completion::read_passed(UpstreamApi::Messages, br#"{"content":[],"stop_reason":"x"}"#).unwrap();
    let bare = bare.write(generation(), &messages(), SETTLED);
    assert_eq!(serde_json::from_slice::<Value>(&bare).unwrap()["usage"]["output_tokens"], 5);
    // Clients iterate over the parts of a message.
    let null = br#"{"status":"completed","output":[{"type":"message","content":null}]}"#;
    assert!(Completion::read_passed(UpstreamApi::Responses, null).is_err_and(|e| e == Nonsense::Form));
    // Content that is not a text is refused before it is billed.
    let broken = b"{\"content\":[],\"stop_reason\":\"end_turn\",\"x\":\"\xff\"}";
    assert!(Completion::read_passed(UpstreamApi::Messages, broken).is_err());
}

proptest! {
    #[test]
    fn any_event_of_an_unknown_type_passes_byte_for_byte(
        name in "[a-z_.]{1,12}", members in prop::collection::vec(("[a-z]{1,3}", "[ -~é\u{1f600}]{0,8}"), 0..4), blank in "[ \t]{0,3}",
    ) {
        let mut event = format!("{{{blank}\"type\":{blank}\"x{name}\"");
        for (place, (name, value)) in members.iter().enumerate() {
            let value = Value::from(value.as_str());
            event.push_str(&[",", &blank, "\"_", name, &place.to_string(), "\":", &value.to_string(), &blank].concat());
        }
        event.push('}');
        for api in [UpstreamApi::Messages, UpstreamApi::Responses] {
            let passing = Passing::of(api, &[&event]);
            prop_assert_eq!(passing.written(), format!("event: x{name}\ndata: {event}\n\n"));
        }
    }

    #[test]
    fn damaged_events_are_refused_or_pass_as_events_and_every_end_is_json(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), prop::sample::select(&b"{}[]\":,\\0-1nt\x00\xff\n "[..])), 1..4),
        length in 0..8_usize, fails in any::<bool>(),
    ) {
        for (api, script) in [(UpstreamApi::Messages, &MESSAGE[..]), (UpstreamApi::Responses, &RESPONSE[..])] {
            let mut payloads: Vec<Vec<u8>> = script.iter().take(length).map(|event| event.as_bytes().to_vec()).collect();
            for (event, at, byte) in damage.iter().filter(|_| length > 0) {
                let event = event.index(payloads.len());
                let at = at.index(payloads[event].len());
                payloads[event][at] = *byte;
            }
            let mut passing = Passing::new(api);
            for payload in &payloads {
                if let Ok(Event::Chunk(chunk)) = passing.reader.event(payload) {
                    passing.writer.chunk(&chunk, &mut passing.out).unwrap();
                }
            }
            events(&mut passing.out);
            let end = if fails { passing.fail() } else { passing.done() };
            events(&mut BytesMut::from(end.as_bytes()));
        }
    }
}

/// Returns a response with this many levels of nesting.
fn nested(levels: usize) -> String {
    format!("{}1{}", "[".repeat(levels), "]".repeat(levels))
}

#[test]
fn an_event_that_is_nested_too_deeply_is_left_out_and_its_usage_counts() {
    let deep = nested(200_000);
    for (api, events, place) in
        [(UpstreamApi::Messages, &MESSAGE[..], 7), (UpstreamApi::Responses, &RESPONSE[..], 6)]
    {
        for at in [0, 3, place] {
            let changed = format!("{},\"deep\":{deep}}}", events[at].strip_suffix('}').unwrap());
            let mut passing = Passing::new(api);
            for (index, event) in events.iter().enumerate() {
                passing.event(if index == at { &changed } else { event });
            }
            assert!(passing.writer.is_finished(), "{api:?} {at}");
            assert!(passing.out.len() < 10_000, "{api:?} {at}: {}", passing.out.len());
            let done = passing.done();
            assert!(done.contains("\"cost\":") && done.len() < 10_000, "{api:?} {at}: {done}");
        }
    }
    // This event is nested as deeply as the vendors' own events.
    let event = format!(r#"{{"type":"response.tomorrow","x":{}}}"#, nested(100));
    assert!(Passing::of(UpstreamApi::Responses, &[&event]).written().contains(&event));
}

#[test]
fn a_whole_answer_that_is_nested_too_deeply_says_so() {
    for (levels, too_deep) in [(100, false), (200_000, true)] {
        let deep = nested(levels);
        let message = format!(
            r#"{{"id":"msg_1","content":[{{"type":"text","text":"a"}}],"x":{deep},"stop_reason":"end_turn","usage":{{"input_tokens":3,"output_tokens":1}}}}"#
        );
        let response = format!(
            r#"{{"id":"r","status":"completed","output":[{{"type":"message","content":[{{"type":"output_text","text":"a"}}],"x":{deep}}}],"usage":{{"input_tokens":3,"output_tokens":1}}}}"#
        );
        for (api, body) in [(UpstreamApi::Messages, message), (UpstreamApi::Responses, response)] {
            let answer = Completion::read_passed(api, body.as_bytes()).ok().unwrap();
            assert_eq!((answer.is_too_deep(), answer.usage.prompt), (too_deep, Some(3)), "{api:?} {levels}");
        }
    }
}

#[test]
fn a_usage_that_tells_a_member_twice_is_written_anew_as_it_is_billed() {
    for usage in [
        r#"{"input_tokens":1,"input_tokens":12,"output_tokens":5}"#,
        r#"{"input_tokens":12,"output_tokens":5,"cost":1,"cost":2}"#,
        r#"{"input_tokens":12,"output_tokens":5,"output_tokens_details":{"reasoning_tokens":1,"reasoning_tokens":2}}"#,
    ] {
        let body = format!(r#"{{"id":"m","content":[],"stop_reason":"end_turn","usage":{usage}}}"#);
        let answer = Completion::read_passed(UpstreamApi::Messages, body.as_bytes()).ok().unwrap();
        assert_eq!((answer.usage.prompt, answer.usage.completion), (Some(12), Some(5)), "{usage}");
        let written = answer.write(generation(), &messages(), SETTLED);
        let written = String::from_utf8(written.to_vec()).unwrap();
        for name in ["input_tokens", "output_tokens", "cost"] {
            assert_eq!(written.matches(&format!("\"{name}\":")).count(), 1, "{written}");
        }
        assert!(written.matches("reasoning_tokens").count() < 2, "{written}");
        let end =
            format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{usage}}}"#);
        let done = Passing::of(UpstreamApi::Messages, &[MESSAGE[0], &end]).done();
        assert_eq!(done.matches("\"input_tokens\":").count(), 1, "{done}");
        assert_eq!(done.matches("\"cost\":").count(), 1, "{done}");
        let start =
            format!(r#"{{"type":"message_start","message":{{"id":"m","content":[],"usage":{usage}}}}}"#);
        let passing = Passing::of(UpstreamApi::Messages, &[&start]);
        let begun = passing.written();
        assert_eq!(begun.matches("\"input_tokens\":12").count(), 1, "{begun}");
        assert_eq!(begun.matches("input_tokens\":1,").count(), 0, "{begun}");
    }
}
