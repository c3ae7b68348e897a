mod call_ids;
mod described;
mod dialects;
mod fuzz;
mod hostile;
mod natives;
mod passed;
mod returning;

use dialects::whole_of;

use bytes::{Bytes, BytesMut};
use reply::{MessagesReply, Reply, ResponsesReply, carried::ServerId};
use serde_json::{Value, json};
use shared::{
    error::{ApiError, Code},
    generation::FinishReason,
    ids::GenerationId,
    money::NanoUsd,
    time::Timestamp,
    tokens::{Usage, UsageDetails},
};

use crate::{rewriter::Rewriter, sse::Decoder, *};

const USAGE: Usage = Usage {
    details: UsageDetails {
        cache_write: 3,
        audio_input: 1,
        reasoning: 2,
        audio_output: 1,
        ..Usage::of(0, 0, 0).details
    },
    ..Usage::of(12, 4, 5)
};
const COST: Option<NanoUsd> = Some(NanoUsd::from_nanos(3200));
const CHAT: Reply = Reply::Chat { include_usage: true };
const SETTLED: Settled = Settled { usage: USAGE, cost: COST, completed: 1_795_140_700 };

fn generation() -> Generation<'static> {
    let id = GenerationId::new(Timestamp::from_millis(1), [7; 10]);
    Generation { id, created: 1_795_140_665, model: "Model \"Flash\"", server: ServerId::default() }
}

/// Returns the usage that clients read.
fn usage() -> Value {
    json!({"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17, 
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3, "audio_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 2, "audio_tokens": 1}, "cost": 0.000_003_2})
}

/// Rewrites a whole answer.
fn whole(upstream: &Value) -> Result<Value, Nonsense> {
    let body = upstream.to_string();
    let completion = Completion::read(&Reply::Chat { include_usage: false }, body.as_bytes())?;
    Ok(serde_json::from_slice(&completion.write(generation(), &CHAT, SETTLED)).unwrap())
}

fn whole_payload(payload: Payload) -> Bytes {
    let Payload::Whole(data) = payload else { panic!("it is too long") };
    data
}

/// Lists the events that a client has received, in order.
fn events(out: &mut BytesMut) -> Vec<Value> {
    let mut decoder = Decoder::default();
    decoder.push(out.split().freeze());
    let next = || decoder.next_data().map(whole_payload);
    let json = |data: Bytes| match &*data {
        b"[DONE]" => json!("[DONE]"),
        data => serde_json::from_slice(data).unwrap(),
    };
    std::iter::from_fn(next).map(json).collect()
}

/// Lists the choices of every chunk that a client receives for these upstream chunks.
fn rewritten(rewriter: &mut Rewriter, upstream: &[Value]) -> Vec<Value> {
    let mut out = BytesMut::new();
    for chunk in upstream {
        let chunk = chunk.to_string();
        match Event::read(chunk.as_bytes()).unwrap() {
            Event::Chunk(chunk) => rewriter.chunk(&chunk, &mut out),
            Event::Failed(..) | Event::Done => panic!("{chunk}"),
        }
    }
    events(&mut out).into_iter().map(|mut event| event["choices"].take()).collect()
}

fn delta(delta: &Value) -> Value {
    json!({"id": "chatcmpl-1", "model": "secret", "system_fingerprint": "fp", "choices": [{"index": 0, "delta": delta}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

/// Returns a chunk's choices as clients read them: one unfinished choice.
fn open(delta: &Value) -> Value {
    json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}])
}

#[test]
fn a_whole_answer_is_ours_in_every_member() {
    let upstream = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "secret/model", "system_fingerprint": "fp",
        "service_tier": "x", "prompt_logprobs": null, "kv_transfer_params": {"host": "10.0.0.1"},
        "choices": [{"index": 0, "stop_reason": 7, "finish_reason": "stop", "logprobs": null,
            "message": {"role": "assistant", "content": "Hi.", "annotations": [], "audio": null, "function_call": null,
                "tool_calls": [], "reasoning_content": null}}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17, "secret": 1}
    });
    assert_eq!(
        whole(&upstream).unwrap(),
        json!({
            "id": generation().id.to_string(), "object": "chat.completion", "created": 1_795_140_665_u64,
            "model": "Model \"Flash\"",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi.", "refusal": null},
                "logprobs": null, "finish_reason": "stop"}],
            "usage": usage(),
        })
    );
}

#[test]
fn thoughts_calls_refusals_and_probabilities_come_through() {
    let upstream = json!({"choices": [
        {"index": 1, "finish_reason": "function_call", "logprobs": {"content": []}, "message": {"content": null,
            "reasoning": "hm", "tool_calls": [{"id": "c1", "type": "function", "x": 1, "function": {"name": "f", "arguments": "{}", "x": 1}}]}},
        {"index": 0, "finish_reason": "length", "message": {"content": "a", "refusal": "no", "reasoning_content": "b"}},
    ]});
    assert_eq!(
        whole(&upstream).unwrap()["choices"],
        json!([
            {"index": 1, "message": {"role": "assistant", "content": null, "refusal": null, "reasoning_content": "hm",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                "logprobs": {"content": [], "refusal": null}, "finish_reason": "tool_calls"},
            {"index": 0, "message": {"role": "assistant", "content": "a", "refusal": "no", "reasoning_content": "b"},
                "logprobs": null, "finish_reason": "length"},
        ])
    );
}

#[test]
fn what_a_whole_answer_says_of_itself_is_read() {
    let body = b"\n\n \r\n{\"choices\":[{\"message\":{\"content\":\"a\\n\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}";
    let completion = Completion::read(&Reply::Chat { include_usage: false }, body).unwrap();
    let usage = Reported { prompt: Some(1), completion: Some(2), ..Reported::default() };
    assert_eq!((completion.usage, completion.unknown_finish), (usage, None));
    assert_eq!(completion.outputs, [OutputSize { bytes: 3, listed_tokens: 0 }]);
}

#[test]
fn a_whole_answer_that_is_none_is_nonsense() {
    let choice = |choice: Value| json!({"choices": [choice]});
    for (upstream, expected) in [
        (json!({"error": {"message": "m"}}), Nonsense::Error),
        (json!({}), Nonsense::Choices),
        (json!({"choices": []}), Nonsense::Choices),
        (choice(json!({"message": {"content": "a"}})), Nonsense::Unfinished),
        (choice(json!({"message": {"content": "a"}, "finish_reason": null})), Nonsense::Unfinished),
        (choice(json!({"message": {"content": "a"}, "finish_reason": "abort"})), Nonsense::Error),
        (choice(json!({"message": {"content": "a"}, "finish_reason": "error"})), Nonsense::Error),
        (choice(json!({"index": 1, "message": {"content": "a"}, "finish_reason": "stop"})), Nonsense::Form),
    ] {
        assert_eq!(whole(&upstream).err().unwrap(), expected, "{upstream}");
    }
    for malformed in
        ["", "[]", "<html>", r#"{"choices":[{"finish_reason":"stop","message":{"content":"secret"}}"#]
    {
        let error =
            Completion::read(&Reply::Chat { include_usage: false }, malformed.as_bytes()).err().unwrap();
        assert!(matches!(error, Nonsense::Malformed { .. }), "{malformed}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn every_chunk_is_ours_in_every_member() {
    for (include_usage, upstream) in
        [(false, delta(&json!({"content": "Hi"}))), (true, delta(&json!({"content": "Hi"})))]
    {
        let mut rewriter = Rewriter::new(generation(), include_usage);
        let (upstream, mut out) = (upstream.to_string(), BytesMut::new());
        let Event::Chunk(chunk) = Event::read(upstream.as_bytes()).unwrap() else { panic!() };
        rewriter.chunk(&chunk, &mut out);
        let mut expected = json!({
            "id": generation().id.to_string(), "object": "chat.completion.chunk", "created": 1_795_140_665_u64,
            "model": "Model \"Flash\"", "choices": open(&json!({"role": "assistant", "content": "Hi"})),
        });
        if include_usage {
            expected["usage"] = Value::Null;
        }
        assert_eq!(events(&mut out), [expected]);
    }
}

#[test]
fn a_role_is_sent_once_and_thoughts_by_one_name() {
    let upstream = [
        delta(&json!({"role": "assistant", "reasoning": "hm"})),
        delta(&json!({"role": "assistant", "reasoning_content": "m", "content": null})),
        delta(&json!({"role": "assistant"})),
        delta(&json!({"content": ""})),
        delta(&json!({"content": "Hi", "refusal": "no"})),
    ];
    assert_eq!(
        rewritten(&mut Rewriter::new(generation(), false), &upstream),
        [
            open(&json!({"role": "assistant", "content": "", "reasoning_content": "hm"})),
            open(&json!({"reasoning_content": "m"})),
            open(&json!({"content": ""})),
            open(&json!({"content": "Hi", "refusal": "no"})),
        ]
    );
}

#[test]
fn pieces_of_calls_belong_to_indexes_that_count_from_zero() {
    let upstream = [
        delta(
            &json!({"tool_calls": [{"index": 1, "id": "c1", "type": "function", "x": 1, "function": {"name": "f", "arguments": ""}}]}),
        ),
        delta(&json!({"tool_calls": [{"index": 1, "function": {"arguments": "{\"q\":"}}]})),
        delta(
            &json!({"tool_calls": [{"id": "a", "function": {"name": "f"}}, {"id": "b", "function": {"name": "g"}}]}),
        ),
    ];
    assert_eq!(
        rewritten(&mut Rewriter::new(generation(), false), &upstream),
        [
            open(&json!({"role": "assistant", "content": "", "tool_calls": [
            {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}]})),
            open(&json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"q\":"}}]})),
            open(&json!({"tool_calls": [
            {"index": 1, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}},
            {"index": 2, "id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}]})),
        ]
    );
}

#[test]
fn an_id_and_a_name_that_are_repeated_are_sent_once() {
    let piece = |arguments: &str| {
        let call = json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}});
        delta(
            &json!({"role": null, "content": null, "function_call": {"name": "f", "arguments": arguments}, "tool_calls": [call]}),
        )
    };
    let only =
        |arguments: &str| open(&json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}));
    assert_eq!(
        rewritten(&mut Rewriter::new(generation(), false), &[piece("{\"q"), piece("\":"), piece("1}")]),
        [
            open(&json!({"role": "assistant", "content": "", "tool_calls": [
                {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"q"}}]})),
            only("\":"),
            only("1}"),
        ]
    );
    let piece = piece("abcd").to_string();
    let Event::Chunk(chunk) = Event::read(piece.as_bytes()).unwrap() else { panic!() };
    assert_eq!(chunk.outputs().next().unwrap().1.bytes, 4, "a repeated name was not generated again");
}

#[test]
fn calls_that_share_an_index_are_kept_apart_and_ids_that_are_made_up_are_not_believed() {
    let call = |id: &str, name: &str, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        delta(&json!({"tool_calls": [{"index": 0, "id": id, "function": function}]}))
    };
    let upstream = [call("a", "f", "{}"), call("b", "f", "{}"), call("c", "", "x")];
    let read = rewritten(&mut Rewriter::new(generation(), false), &upstream);
    let calls: Vec<_> = read.iter().map(|choices| &choices[0]["delta"]["tool_calls"][0]).collect();
    assert_eq!((&calls[0]["index"], &calls[0]["id"]), (&json!(0), &json!("a")));
    assert_eq!((&calls[1]["index"], &calls[1]["id"]), (&json!(1), &json!("b")));
    assert_eq!(
        calls[2],
        &json!({"index": 1, "function": {"arguments": "x"}}),
        "a piece of the call before it"
    );
}

/// Returns whether this is an id that the gateway generates for a call without one. Every vendor accepts such ids.
fn is_made(id: &Value) -> bool {
    id.as_str().is_some_and(|id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

#[test]
fn calls_of_a_whole_answer_that_come_without_an_id_get_one_each() {
    let call = |id: Value| json!({"id": id, "function": {"name": "f", "arguments": "{}"}});
    let missing = json!({"function": {"name": "f", "arguments": "{}"}});
    let calls = json!([call(Value::Null), missing, call(json!("")), call(json!("c1"))]);
    let choice =
        |index: u64| json!({"index": index, "message": {"tool_calls": calls}, "finish_reason": "tool_calls"});
    let read = whole(&json!({"choices": [choice(0), choice(1)]})).unwrap();
    let ids: Vec<&Value> = (0..2)
        .flat_map(|choice| read["choices"][choice]["message"]["tool_calls"].as_array().unwrap())
        .map(|call| {
            assert_eq!(call["type"], "function");
            &call["id"]
        })
        .collect();
    assert!(
        ids.iter().enumerate().all(|(place, id)| is_made(id) || (place % 4 == 3 && **id == "c1")),
        "{ids:?}"
    );
    let different: std::collections::BTreeSet<&str> = ids.iter().map(|id| id.as_str().unwrap()).collect();
    assert_eq!(different.len(), 7, "all but the upstream's own: {ids:?}");
}

#[test]
fn a_streamed_call_without_an_id_gets_one_with_its_first_piece_alone() {
    let begins =
        |id: Value, name: &str| json!({"index": 0, "id": id, "function": {"name": name, "arguments": ""}});
    let goes_on = |id: Value| json!({"index": 0, "id": id, "function": {"arguments": "{}"}});
    for id in [Value::Null, json!("")] {
        let pieces =
            [begins(id.clone(), "f"), goes_on(id.clone()), begins(id.clone(), "f"), goes_on(json!("late"))];
        let upstream = pieces.map(|piece| delta(&json!({"tool_calls": [piece]})));
        let read = rewritten(&mut Rewriter::new(generation(), false), &upstream);
        let calls: Vec<&Value> = read.iter().map(|choices| &choices[0]["delta"]["tool_calls"][0]).collect();
        assert!(is_made(&calls[0]["id"]) && is_made(&calls[2]["id"]), "{calls:?}");
        assert_ne!(calls[0]["id"], calls[2]["id"], "named again after its arguments, it is another call");
        assert_eq!((&calls[0]["type"], &calls[2]["type"]), (&json!("function"), &json!("function")));
        assert_eq!(calls[1], &json!({"index": 0, "function": {"arguments": "{}"}}));
        assert_eq!(
            calls[3],
            &json!({"index": 1, "function": {"arguments": "{}"}}),
            "too late for another id"
        );
    }
}

#[test]
fn an_id_that_is_made_is_the_same_in_a_stream_and_in_a_whole_answer_and_new_with_each_generation() {
    let call = json!({"function": {"name": "f", "arguments": "{}"}});
    let message = json!({"tool_calls": [call]});
    let streamed = rewritten(&mut Rewriter::new(generation(), false), &[delta(&message)]);
    let whole = whole(&json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]})).unwrap();
    let id = &streamed[0][0]["delta"]["tool_calls"][0]["id"];
    assert_eq!(id, &whole["choices"][0]["message"]["tool_calls"][0]["id"]);
    let other = Generation { id: GenerationId::new(Timestamp::from_millis(1), [8; 10]), ..generation() };
    let other = rewritten(&mut Rewriter::new(other, false), &[delta(&message)]);
    assert_ne!(id, &other[0][0]["delta"]["tool_calls"][0]["id"]);
}

#[test]
fn probabilities_with_line_ends_are_one_event() {
    let chunk = "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"logprobs\":{\n\n\"worker\":\"w7\",\n\"content\":[\n{\"token\":\"a\",\n\n\"logprob\":-1}]}}]}";
    let (mut rewriter, mut out) = (Rewriter::new(generation(), false), BytesMut::new());
    let Event::Chunk(chunk) = Event::read(chunk.as_bytes()).unwrap() else { panic!() };
    rewriter.chunk(&chunk, &mut out);
    let [event] = events(&mut out).try_into().unwrap();
    let expected = json!({"token": "a", "logprob": -1, "bytes": null, "top_logprobs": []});
    assert_eq!(event["choices"][0]["logprobs"], json!({"content": [expected], "refusal": null}));
}

#[test]
fn what_a_server_calls_thinking_and_is_a_text_comes_through() {
    let upstream = [
        delta(&json!({"thinking": "hm"})),
        delta(&json!({"thinking": {"type": "enabled"}, "reasoning": [7], "content": "Hi"})),
    ];
    assert_eq!(
        rewritten(&mut Rewriter::new(generation(), false), &upstream),
        [
            open(&json!({"role": "assistant", "content": "", "reasoning_content": "hm"})),
            open(&json!({"content": "Hi"})),
        ]
    );
}

#[test]
fn timings_count_for_their_choice_alone() {
    let chunk = json!({"choices": [{"index": 1, "delta": {"content": "Hi"}}], "timings": {"cache_n": 8, "prompt_n": 4, "predicted_n": 2}});
    let chunk = chunk.to_string();
    let Event::Chunk(chunk) = Event::read(chunk.as_bytes()).unwrap() else { panic!() };
    let timings = Reported { prompt: Some(12), cached: Some(8), completion: Some(2), ..Reported::default() };
    assert_eq!((chunk.usage(), chunk.timings(), chunk.choice), (None, Some(timings), Some(1)));
}

#[test]
fn a_choice_finishes_once_and_its_texts_after_that_are_shown() {
    let mut rewriter = Rewriter::new(generation(), false);
    assert!(!rewriter.is_finished());
    let last = json!({"choices": [{"index": 0, "delta": {"content": "!"}, "finish_reason": "stop", "logprobs": {"content": []}}]});
    let upstream =
        [delta(&json!({"content": "Hi"})), last, finish("stop"), delta(&json!({"content": "more"}))];
    assert_eq!(
        rewritten(&mut rewriter, &upstream),
        [
            open(&json!({"role": "assistant", "content": "Hi"})),
            json!([{"index": 0, "delta": {"content": "!"}, "logprobs": {"content": [], "refusal": null}, "finish_reason": "stop"}]),
            open(&json!({"content": "more"})),
        ]
    );
    assert!(rewriter.is_finished());
}

#[test]
fn a_stream_is_finished_when_all_its_choices_are() {
    let mut rewriter = Rewriter::new(generation(), false);
    let both = json!({"choices": [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "a"}}]});
    let upstream = [both, finish("stop")];
    assert_eq!(rewritten(&mut rewriter, &upstream)[0].as_array().unwrap().len(), 2);
    assert!(!rewriter.is_finished());
    let mut out = BytesMut::new();
    rewriter.cut(&mut out);
    assert_eq!(
        events(&mut out)[0]["choices"],
        json!([{"index": 1, "delta": {}, "logprobs": null, "finish_reason": "length"}])
    );
    assert!(rewriter.is_finished());
    rewriter.cut(&mut out);
    assert!(out.is_empty(), "nothing is left to end");
}

#[test]
fn a_stream_that_is_cut_before_its_first_token_is_complete_all_the_same() {
    let (mut rewriter, mut out) = (Rewriter::new(generation(), false), BytesMut::new());
    rewriter.cut(&mut out);
    let delta = json!({"role": "assistant", "content": ""});
    let expected = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": "length"}]);
    assert_eq!(events(&mut out)[0]["choices"], expected);
}

#[test]
fn usage_is_read_from_chunks_and_never_passed_on_with_them() {
    let usage = json!({"prompt_tokens": 12, "completion_tokens": 1});
    let mut continuous = delta(&json!({"content": "Hi\n"}));
    continuous["usage"] = usage.clone();
    for (upstream, outputs) in [(continuous, vec![4]), (json!({"choices": [], "usage": usage}), vec![])] {
        let upstream = upstream.to_string();
        let Event::Chunk(chunk) = Event::read(upstream.as_bytes()).unwrap() else { panic!() };
        let usage = Reported { prompt: Some(12), completion: Some(1), ..Reported::default() };
        assert_eq!(chunk.usage(), Some(usage));
        assert!(chunk.outputs().map(|(_, size)| size.bytes).eq(outputs.iter().copied()));
        assert_eq!(
            (chunk.has_output(), chunk.is_without_choices()),
            (!outputs.is_empty(), outputs.is_empty())
        );
        let mut out = BytesMut::new();
        Rewriter::new(generation(), false).chunk(&chunk, &mut out);
        assert!(!out.windows(5).any(|w| w == b"usage"));
        assert_eq!(out.is_empty(), outputs.is_empty(), "a chunk without choices is not passed on");
    }
}

#[test]
fn a_stream_ends_with_its_usage_where_that_was_asked_for() {
    let mut out = BytesMut::new();
    Rewriter::new(generation(), false).done(USAGE, COST, &mut out);
    assert_eq!(out.split(), "data: [DONE]\n\n");
    Rewriter::new(generation(), true).done(USAGE, COST, &mut out);
    let ending = events(&mut out);
    assert_eq!((&ending[0]["choices"], &ending[0]["usage"]), (&json!([]), &usage()));
    assert_eq!(ending[1..], [json!("[DONE]")]);
}

#[test]
fn a_failure_is_one_event() {
    let mut out = BytesMut::new();
    Rewriter::error(&ApiError::new(Code::UpstreamError, "Upstream failed during generation."), &mut out);
    assert_eq!(
        out,
        "data: {\"error\":{\"message\":\"Upstream failed during generation.\",\"type\":\"server_error\",\"param\":null,\"code\":\"upstream_error\"}}\n\n"
    );
}

#[test]
fn words_of_finish_reasons_are_known_in_any_case_and_unknown_ones_are_stop() {
    for (word, reason, unknown) in [
        ("stop", "stop", false),
        ("STOP", "stop", false),
        ("Max_Tokens", "length", false),
        ("TOOL_CALLS", "tool_calls", false),
        ("FINISH_REASON_UNSPECIFIED", "stop", true),
        ("because", "stop", true),
    ] {
        let unknown = unknown.then_some(word);
        let streamed = finish(word).to_string();
        let Event::Chunk(chunk) = Event::read(streamed.as_bytes()).unwrap() else { panic!("{word}") };
        assert_eq!(chunk.unknown_finish, unknown);
        assert_eq!(chunk.finish_reasons().map(FinishReason::as_str).collect::<Vec<_>>(), [reason], "{word}");
        let body = json!({"choices": [{"message": {"content": "a"}, "finish_reason": word}]});
        assert_eq!(whole(&body).unwrap()["choices"][0]["finish_reason"], reason, "{word}");
        assert_eq!(
            Completion::read(&Reply::Chat { include_usage: false }, body.to_string().as_bytes())
                .unwrap()
                .unknown_finish,
            unknown
        );
    }
}

#[test]
fn usage_of_the_chunk_that_fails_is_read() {
    let usage = json!({"prompt_tokens": 12, "completion_tokens": 40});
    let mut aborted = finish("ABORT");
    aborted["usage"] = usage.clone();
    for failed in [aborted, json!({"error": {"message": "m"}, "usage": usage})] {
        let failed = failed.to_string();
        let Ok(Event::Failed(_, chunk)) = Event::read(failed.as_bytes()) else { panic!("{failed}") };
        let usage = chunk.usage().unwrap_or_default();
        assert_eq!((usage.prompt, usage.completion), (Some(12), Some(40)));
    }
}

#[test]
fn failures_and_ends_are_distinguished_from_chunks() {
    assert!(matches!(Event::read(b"[DONE]"), Ok(Event::Done)));
    assert!(matches!(Event::read(b" [DONE]\n"), Ok(Event::Done)));
    for failure in [
        r#"{"error":{"message":"m"}}"#,
        r#"{"error":"m","choices":[]}"#,
        r#"{"object":"error","message":"m","code":500}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"abort"}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}"#,
    ] {
        assert!(matches!(Event::read(failure.as_bytes()), Ok(Event::Failed(..))), "{failure}");
    }
    for chunk in [
        r#"{"error":null,"object":"chat.completion.chunk","choices":[{"index":0,"delta":null,"finish_reason":""}]}"#,
        r#"{"choices":null}"#,
        r#"{"prompt_filter_results":[],"choices":[]}"#,
    ] {
        assert!(matches!(Event::read(chunk.as_bytes()), Ok(Event::Chunk(_))), "{chunk}");
    }
    for nonsense in ["", "x", "[]", "{"] {
        assert!(Event::read(nonsense.as_bytes()).is_err(), "{nonsense}");
    }
    for odd in [r#"{"choices":[{"index":8,"delta":{}}]}"#, r#"{"choices":[{"delta":{"content":1}}]}"#] {
        let Ok(Event::Chunk(chunk)) = Event::read(odd.as_bytes()) else { panic!("{odd}") };
        assert!(!chunk.has_output() && !chunk.odd.is_empty(), "{odd}");
    }
}

proptest::proptest! {
    #[test]
    fn whatever_an_upstream_says_is_survived(payload in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100)) {
        let _ = Event::read(&payload);
        let _ = Completion::read(&Reply::Chat { include_usage: false }, &payload);
    }

    #[test]
    fn a_damaged_chunk_is_refused_or_still_rewritten_as_json(
        at in proptest::prelude::any::<proptest::sample::Index>(),
        byte in proptest::sample::select(&b"{}[]\":,\\0-1nt\x00\xff "[..]),
    ) {
        let chunk = json!({"id": "x", "choices": [{"index": 0, "finish_reason": "stop", "logprobs": {}, "delta": {"role": "assistant",
            "content": "a\n", "reasoning": "b", "tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 1}});
        let mut chunk = chunk.to_string().into_bytes();
        let at = at.index(chunk.len());
        chunk[at] = byte;
        if let Ok(Event::Chunk(chunk)) = Event::read(&chunk) {
            let mut out = BytesMut::new();
            Rewriter::new(generation(), true).chunk(&chunk, &mut out);
            events(&mut out);
        }
    }
}
