mod corpus;
mod fuzz;
mod unreadable;

use answer::{AnswerReader, Generation, Settled, StreamWriter};
use bytes::Bytes;
use proptest::prelude::*;
use reply::Reply;
use serde_json::json;
use shared::{ids::GenerationId, time::Timestamp, tokens::Usage};
use shared_catalog::UpstreamApi;

use crate::{output::PIECE_BYTES, *};

fn meter(granted: u64, wanted: u64) -> StreamMeter {
    meter_of(1, granted, wanted)
}

fn meter_of(choices: u64, granted: u64, wanted: u64) -> StreamMeter {
    let id = GenerationId::new(Timestamp::from_millis(1), [7; 10]);
    let reply = Reply::Chat { include_usage: true };
    let writer = StreamWriter::new(
        Generation { id, created: 1, model: "m", server: reply::carried::ServerId::default() },
        &reply,
        10,
        false,
    );
    let catalogue = Usage::of(100_000, 100_000, 100_000);
    let bounds =
        UsageBounds { prompt_estimate: 10, images: 0, max_tokens: wanted / choices, choices, catalogue };
    let counter = UsageCounter::new(bounds, UsageScope::ChunkChoice);
    StreamMeter::new(
        AnswerReader::new(UpstreamApi::Chat),
        writer,
        counter,
        GrantedTokens::new(granted, wanted),
        choices,
    )
}

/// Returns a chunk with a text, and with the usage so far if `reported`.
fn chunk(text: &str, completion: u64, reported: bool) -> String {
    let usage = reported.then(|| json!({"prompt_tokens": 12, "completion_tokens": completion}));
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": text}}], "usage": usage});
    format!("data: {chunk}\n\n")
}

fn finish(completion: u64) -> String {
    let finish = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": completion}});
    format!("data: {finish}\n\ndata: {usage}\n\ndata: [DONE]\n\n")
}

/// Ends a stream at the end of its body.
fn ended(meter: &mut StreamMeter, available: u64) -> StreamEnd {
    let mut end = meter.upstream_ended(None);
    while end.is_none() {
        let Some(asked) = meter.ask() else { panic!("a blocked stream asks for more") };
        end = meter.extended(asked.min(available), asked);
    }
    end.unwrap_or(StreamEnd::GrantUsedUp)
}

/// Runs a stream to its end with a limit on the tokens granted in total, and counts what was sent after the end.
fn carry(meter: &mut StreamMeter, pieces: &[Bytes], available: u64) -> StreamEnd {
    let mut end = None;
    let mut pieces = pieces.iter();
    while end.is_none()
        && let Some(piece) = pieces.next()
    {
        end = meter.push(piece.clone());
        while end.is_none() && meter.is_blocked() {
            let Some(asked) = meter.ask() else { panic!("a blocked stream asks for more") };
            end = meter.extended(asked.min(available), asked);
        }
    }
    meter.count_received();
    pieces.for_each(|piece| meter.count_only(piece.clone()));
    end.unwrap_or_else(|| ended(meter, available))
}

fn texts(meter: &mut StreamMeter) -> usize {
    let out = meter.output().take();
    String::from_utf8(out.to_vec()).unwrap().matches(r#""content":"x"#).count()
}

#[test]
fn an_event_larger_than_a_grant_is_delivered_when_more_is_granted() {
    let mut meter = meter(GRANT_TOKENS, 100 * GRANT_TOKENS);
    let large = chunk(&"x".repeat(100_000), 0, false);
    assert!(matches!(
        carry(&mut meter, &[large.into(), finish(25_000).into()], u64::MAX),
        StreamEnd::Complete
    ));
    assert_eq!(texts(&mut meter), 1);
    assert_eq!((meter.usage(), meter.is_reported()), (Usage::of(12, 0, 25_000), true));
}

#[test]
fn an_event_that_waits_for_tokens_is_counted_once() {
    let mut meter = meter(100, 10_000);
    assert!(meter.push(chunk(&"x".repeat(4_000), 0, false).into()).is_none() && meter.is_blocked());
    assert_eq!((meter.usage().completion, texts(&mut meter)), (1_000, 0));
    for granted in [500, 2_000] {
        assert!(meter.extended(granted, granted).is_none());
        assert_eq!((meter.usage().completion, meter.is_blocked()), (1_000, granted < 1_000));
    }
    assert_eq!(texts(&mut meter), 1);
}

#[test]
fn usage_that_jumps_beyond_a_grant_asks_for_its_need() {
    let mut meter = meter(GRANT_TOKENS, 100 * GRANT_TOKENS);
    assert!(meter.push(chunk("x", 3_000, true).into()).is_none() && meter.is_blocked());
    assert!(meter.ask().is_some_and(|asked| asked >= 3_000));
    assert!(meter.extended(3_000, 3_000).is_none() && !meter.is_blocked());
    assert_eq!(meter.usage().completion, 3_000);
}

#[test]
fn hidden_tokens_beyond_the_last_grant_end_the_stream_and_are_counted() {
    let mut meter = meter(100, 1_000);
    let hidden = json!({"choices": [{"index": 0, "delta": {}}], "usage": {"prompt_tokens": 12, "completion_tokens": 150}});
    let end = carry(&mut meter, &[format!("data: {hidden}\n\n").into()], 120);
    assert!(matches!(end, StreamEnd::GrantUsedUp));
    assert_eq!((meter.usage(), meter.is_reported()), (Usage::of(12, 0, 150), true));
    assert_eq!(meter.usage_up_to_cut(), Usage::of(12, 0, 120));
}

#[test]
fn what_an_upstream_reports_beyond_the_limit_that_it_was_told_is_billed_as_reported() {
    let mut meter = meter(100, 100);
    let end = carry(&mut meter, &[chunk("x", 150, true).into()], 100);
    assert!(matches!(end, StreamEnd::GrantUsedUp));
    assert_eq!(meter.usage_up_to_cut(), Usage::of(12, 0, 150));
}

#[test]
fn an_event_beyond_the_last_grant_is_withheld_and_counted_and_so_is_what_follows_it() {
    let mut meter = meter(100, 100_000);
    let pieces = [chunk("x", 10_000, true).into(), chunk("x", 10_001, true).into()];
    assert!(matches!(carry(&mut meter, &pieces, 120), StreamEnd::GrantUsedUp));
    assert_eq!(texts(&mut meter), 0);
    assert_eq!((meter.usage(), meter.is_reported()), (Usage::of(12, 0, 10_001), true));
    meter.cut();
    let out = String::from_utf8(meter.output().take().to_vec()).unwrap();
    assert!(out.contains(r#""finish_reason":"length""#), "{out}");
    assert_eq!(meter.usage_up_to_cut(), Usage::of(12, 0, 120));
    meter.finish(Settled { usage: meter.usage_up_to_cut(), cost: None, completed: 2 });
    let out = String::from_utf8(meter.output().take().to_vec()).unwrap();
    assert!(
        out.contains(r#""completion_tokens":120,"#),
        "the client hears of no more than was granted: {out}"
    );
}

#[test]
fn a_stream_is_finished_once_all_its_choices_are_and_not_while_one_goes_on() {
    let mut meter = meter_of(2, 100, 100);
    let event = |index: u64, text: &str, finish: Option<&str>| -> Bytes {
        let choice = json!({"index": index, "delta": {"content": text}, "finish_reason": finish});
        format!("data: {}\n\n", json!({ "choices": [choice] })).into()
    };
    for (index, text, finish, finished, complete) in [
        (0, "x", None, false, false),
        (0, "", Some("stop"), false, true),
        (1, "x", None, false, false),
        (1, "", Some("stop"), true, true),
        // An upstream that continues to generate after its finish reason.
        (1, "x", None, false, true),
        (1, "x", Some("stop"), true, true),
    ] {
        assert!(meter.push(event(index, text, finish)).is_none());
        assert!(!meter.has_last_chunk());
        assert_eq!(
            (meter.is_finished(), meter.is_complete()),
            (finished, complete),
            "{index} {text} {finish:?}"
        );
    }
}

#[test]
fn output_of_any_size_is_given_out_in_pieces_and_in_order() {
    let mut meter = meter(1_000_000, 1_000_000);
    let text: String = ('a'..='z').cycle().take(200_000).collect();
    assert!(meter.push(chunk(&text, 0, false).into()).is_none());
    let (whole, mut pieces) = (meter.output_bytes(), Vec::new());
    while meter.has_output() {
        pieces.push(meter.output().take_piece());
    }
    assert!(pieces.len() > 1 && pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
    let joined = pieces.concat();
    assert!(joined.len() == whole && String::from_utf8(joined).unwrap().contains(&text));
}

#[test]
fn a_finish_reason_passes_whatever_was_counted_with_it() {
    let mut meter = meter(5, 5);
    let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 6}});
    let pieces = [chunk("x", 5, true).into(), format!("data: {last}\n\ndata: [DONE]\n\n").into()];
    assert!(matches!(carry(&mut meter, &pieces, 5), StreamEnd::Complete));
    assert_eq!(meter.usage().completion, 6);
}

proptest! {
    #[test]
    fn no_event_leaves_beyond_the_grant_and_all_is_billed_however_bytes_are_cut(
        tokens in prop::collection::vec(1..40_u64, 1..12),
        first in 1..60_u64,
        available in 0..300_u64,
        reported in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let total: u64 = tokens.iter().sum();
        let mut so_far = 0;
        let mut body = String::new();
        for tokens in &tokens {
            so_far += tokens;
            let bytes = usize::try_from(*tokens).unwrap() * 4;
            body.push_str(&chunk(&"x".repeat(bytes), so_far, reported));
        }
        body.push_str(&finish(total));
        let wanted = 1_000;
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let pieces = |cuts: &[usize]| -> Vec<Bytes> {
            cuts.windows(2).map(|cut| Bytes::copy_from_slice(&body.as_bytes()[cut[0]..cut[1]])).collect()
        };
        let run = |pieces: &[Bytes]| {
            let mut meter = meter(first.min(wanted), wanted);
            let end = carry(&mut meter, pieces, available.max(first));
            let (complete, events) = (matches!(end, StreamEnd::Complete), texts(&mut meter));
            let delivered: u64 = tokens[..events].iter().sum();
            let usage = (meter.usage(), meter.is_reported());
            (complete, delivered, meter.granted.covers(delivered), usage)
        };
        let whole = run(&pieces(&[0, body.len()]));
        prop_assert_eq!(run(&pieces(&cuts)), whole);
        let (complete, delivered, covered, (usage, _)) = whole;
        prop_assert!(covered, "{} delivered", delivered);
        prop_assert_eq!(complete, total <= available.max(first));
        // The event that ends the stream is withheld, but everything sent is counted.
        prop_assert_eq!(usage.completion, total);
    }
}

#[test]
fn tokens_that_were_reported_without_text_before_an_error_are_billed() {
    let reported = |completion: u64| {
        let chunk = json!({"choices": [{"index": 0, "delta": {"role": "assistant"}}],
            "usage": {"prompt_tokens": 12, "completion_tokens": completion}});
        format!("data: {chunk}\n\n")
    };
    let error = "data: {\"error\":{\"message\":\"m\"}}\n\n";
    for (completion, begun) in [(0, false), (40, true), (1_000_000_000_000, false)] {
        let mut meter = meter(100, 100);
        let end = carry(&mut meter, &[reported(completion).into(), error.into()], 100);
        assert!(matches!(end, StreamEnd::Complained(_)));
        assert_eq!(meter.has_begun(), begun, "{completion}");
        assert_eq!(meter.usage().completion, if begun { completion } else { 0 });
    }
    let aborted = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "abort"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 40}});
    let mut meter = meter(100, 100);
    let end = carry(&mut meter, &[format!("data: {aborted}\n\n").into()], 100);
    assert!(matches!(end, StreamEnd::Complained(_)));
    assert_eq!((meter.has_begun(), meter.usage(), meter.is_reported()), (true, Usage::of(12, 0, 40), true));
}

#[test]
fn an_early_report_that_is_false_ends_no_stream() {
    for lie in ["1000000000000", "18446744073709551615", "99999999999999999999", "1e300", "\"4294967295\""] {
        let mut meter = meter(100, 100);
        let first = format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"x\"}}}}],\"usage\":{{\"prompt_tokens\":{lie},\"completion_tokens\":{lie},\"total_tokens\":{lie}}}}}\n\n"
        );
        let pieces = [first.into(), chunk("x", 2, false).into(), finish(2).into()];
        assert!(matches!(carry(&mut meter, &pieces, 100), StreamEnd::Complete), "{lie}");
        assert_eq!(texts(&mut meter), 2);
        assert_eq!((meter.usage(), meter.is_reported()), (Usage::of(12, 0, 2), true));
        assert_ne!(meter.counter().disbelieved().completion, None);
    }
}

#[test]
fn comments_and_pieces_of_events_are_no_events() {
    let mut meter = meter(100, 100);
    for comment in [&b": still here\n\n"[..], b"event: ping\n\n", b"\n\n", b"data:", b" {", b"\n"] {
        assert!(meter.push(Bytes::copy_from_slice(comment)).is_none());
        assert_eq!(meter.events(), 0);
    }
    assert!(meter.push(Bytes::from_static(b"data: }\n\n")).is_none());
    assert_eq!(meter.events(), 1);
}

#[test]
fn usage_in_a_last_event_without_its_blank_line_counts() {
    let mut meter = meter(1_000, 1_000);
    let finish = r#"data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}"#;
    let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":200}}"#;
    assert!(meter.push(format!("{finish}\n\n{usage}\n").into()).is_none());
    assert!(matches!(meter.upstream_ended(None), Some(StreamEnd::Complete)));
    assert_eq!((meter.usage(), meter.is_reported()), (Usage::of(12, 0, 200), true));
}

#[test]
fn a_chunk_without_choices_ends_a_stream_in_which_all_choices_that_began_have_finished() {
    let event = |choices: serde_json::Value| -> Bytes {
        format!("data: {}\n\n", json!({ "choices": choices })).into()
    };
    let piece = |index: u64, finish: Option<&str>| {
        event(json!([{"index": index, "delta": {"content": "x"}, "finish_reason": finish}]))
    };
    let mut meter = meter_of(3, 100, 100);
    for (event, last) in [
        // Azure's streams begin with such a chunk.
        (event(json!([])), false),
        (piece(0, None), false),
        (event(json!([])), false),
        (piece(0, Some("stop")), false),
        (event(json!([])), true),
        (piece(1, None), false),
        (piece(1, Some("stop")), false),
        (event(json!([])), true),
    ] {
        assert!(meter.push(event).is_none());
        assert_eq!((meter.has_last_chunk(), meter.is_finished()), (last, false));
    }
}

#[test]
fn silence_counts_for_the_grant_and_never_for_the_bill() {
    let mut meter = meter(GRANT_TOKENS, 10 * GRANT_TOKENS);
    assert!(meter.push(chunk("x", 100, true).into()).is_none());
    assert_eq!(meter.ask(), None);
    meter.assume_silent(GRANT_TOKENS / 2);
    assert!(!meter.is_uncovered() && meter.ask() == Some(100 + GRANT_TOKENS / 2 + GRANT_TOKENS), "ahead");
    meter.assume_silent(GRANT_TOKENS);
    assert!(meter.is_uncovered() && !meter.is_blocked());
    assert!(meter.ask() >= Some(100 + GRANT_TOKENS));
    assert!(meter.extended(100 + GRANT_TOKENS, 100 + GRANT_TOKENS).is_none() && !meter.is_uncovered());
    // The tokens that can be granted do not cover a longer silence.
    meter.assume_silent(3 * GRANT_TOKENS);
    let asked = meter.ask().unwrap();
    assert!(matches!(meter.extended(2 * GRANT_TOKENS, asked), Some(StreamEnd::GrantUsedUp)));
    assert_eq!((meter.usage(), meter.is_reported()), (Usage::of(12, 0, 100), true));
}

#[test]
fn silence_of_an_upstream_that_was_told_no_more_than_is_granted_does_no_harm() {
    let mut meter = meter(GRANT_TOKENS, GRANT_TOKENS);
    assert!(meter.push(chunk("x", 100, true).into()).is_none());
    meter.assume_silent(100 * GRANT_TOKENS);
    assert!(!meter.is_uncovered() && meter.ask().is_none());
}

#[test]
fn tokens_that_are_listed_without_text_are_held_back_like_text() {
    let listed = json!({"choices": [{"index": 0, "delta": {"content": ""}, "logprobs": {"content":
        (0..20).map(|_| json!({"token": "a"})).collect::<Vec<_>>()}}]});
    let mut meter = meter(10, 1_000);
    let pieces = [format!("data: {listed}\n\n").into()];
    assert!(matches!(carry(&mut meter, &pieces, 15), StreamEnd::GrantUsedUp));
    assert!(!meter.has_output(), "nothing of it leaves");
    assert_eq!((meter.usage().completion, meter.usage_up_to_cut().completion), (20, 15));
}

#[test]
fn a_stream_that_cannot_be_kept_is_counted_to_its_end() {
    let bounds = UsageBounds {
        prompt_estimate: 10,
        images: 0,
        max_tokens: 100,
        choices: 1,
        catalogue: Usage::of(1_000, 1_000, 1_000),
    };
    let reader = AnswerReader::new(UpstreamApi::Chat);
    let mut folded = FoldMeter::new(reader, UsageCounter::new(bounds, UsageScope::Answer), 1);
    // More calls than any model makes.
    let calls: Vec<_> = (0..1_000).map(|index| json!({"index": index})).collect();
    let beyond = json!({"choices": [{"index": 0, "delta": {"tool_calls": calls}}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 30}});
    let body = format!("data: {beyond}\n\ndata: {usage}\n\ndata: [DONE]\n\n");

    let end = folded.push(body.into_bytes().into());

    assert!(matches!(end, Some(FoldEnd::Complete)));
    assert_eq!((folded.counter().usage(), folded.counter().is_estimate()), (Usage::of(12, 0, 30), false));
    assert!(folded.take_answer().is_none());
}

#[test]
fn a_stream_is_folded_and_each_choice_counted() {
    let bounds = UsageBounds {
        prompt_estimate: 10,
        images: 0,
        max_tokens: 100,
        choices: 2,
        catalogue: Usage::of(1_000, 1_000, 1_000),
    };
    let mut folded = FoldMeter::new(
        AnswerReader::new(UpstreamApi::Chat),
        UsageCounter::new(bounds, UsageScope::Choice),
        2,
    );
    let piece = |index: u64, text: &str, finish: Option<&str>| {
        let choice = json!({"index": index, "delta": {"content": text}, "finish_reason": finish});
        format!("data: {}\n\n", json!({ "choices": [choice] }))
    };
    let usage = |completion: u64| {
        let usage = json!({"prompt_tokens": 12, "completion_tokens": completion});
        format!("data: {}\n\n", json!({"choices": [], "usage": usage}))
    };
    let body = [
        piece(1, "b", None),
        piece(0, "a", None),
        piece(0, "", Some("stop")),
        usage(7),
        piece(1, "", Some("length")),
        usage(5),
        "data: [DONE]".to_owned(),
    ]
    .concat();
    for piece in body.as_bytes().chunks(5) {
        assert!(folded.push(Bytes::copy_from_slice(piece)).is_none());
    }
    assert!(folded.is_finished() && matches!(folded.upstream_ended(), FoldEnd::Complete));
    assert_eq!((folded.counter().usage(), folded.counter().is_estimate()), (Usage::of(12, 0, 12), false));
    let answer = folded.take_answer().unwrap().ok().unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "a");
    assert_eq!(answer["choices"][1]["finish_reason"], "length");
    assert!(folded.take_answer().is_none());
}
