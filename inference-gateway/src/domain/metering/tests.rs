use proptest::prelude::*;
use serde_json::json;
use shared::{ids::GenerationId, time::Timestamp};

use super::*;
use crate::domain::answer::Generation;

fn meter(granted: u64, wanted: u64) -> StreamMeter {
    let id = GenerationId::new(Timestamp::from_millis(1), [7; 10]);
    let rewriter = Rewriter::new(Generation { id, created: 1, model: "m" }, true);
    let catalogue = Usage { prompt: 100_000, cached: 100_000, completion: 100_000 };
    let bounds = UsageBounds { prompt_estimate: 10, max_tokens: wanted, choices: 1, catalogue };
    let counter = UsageCounter::new(bounds, UsageScope::ChunkChoice);
    StreamMeter::new(rewriter, counter, GrantedTokens::new(granted, wanted))
}

/// A chunk with a text, and with the usage so far if `reported`.
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

/// Runs a stream to its end, with a bound on the total of granted tokens.
fn carry(meter: &mut StreamMeter, pieces: &[Bytes], available: u64) -> StreamEnd {
    let mut end = None;
    for piece in pieces {
        end = end.or_else(|| meter.push(piece.clone()));
        while end.is_none() && meter.is_blocked() {
            let Some(asked) = meter.ask() else { panic!("a blocked stream asks for more") };
            end = meter.extended(asked.min(available), asked);
        }
        if end.is_some() {
            break;
        }
    }
    end.unwrap_or_else(|| meter.upstream_ended(None))
}

fn texts(meter: &mut StreamMeter) -> usize {
    let out = meter.take_output();
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
    assert_eq!(meter.usage(), (Usage { prompt: 12, cached: 0, completion: 25_000 }, false));
}

#[test]
fn usage_that_jumps_beyond_a_grant_asks_for_its_need() {
    let mut meter = meter(GRANT_TOKENS, 100 * GRANT_TOKENS);
    assert!(meter.push(chunk("x", 3_000, true).into()).is_none() && meter.is_blocked());
    assert!(meter.ask().is_some_and(|asked| asked >= 3_000));
    assert!(meter.extended(3_000, 3_000).is_none() && !meter.is_blocked());
    assert_eq!(meter.usage().0.completion, 3_000);
}

#[test]
fn hidden_tokens_beyond_the_last_grant_end_the_stream_and_are_billed() {
    let mut meter = meter(100, 1_000);
    let hidden = json!({"choices": [{"index": 0, "delta": {}}], "usage": {"prompt_tokens": 12, "completion_tokens": 150}});
    let end = carry(&mut meter, &[format!("data: {hidden}\n\n").into()], 120);
    assert!(matches!(end, StreamEnd::GrantUsedUp));
    assert_eq!(meter.usage(), (Usage { prompt: 12, cached: 0, completion: 150 }, false));
}

#[test]
fn an_event_beyond_the_last_grant_is_withheld_and_billed_as_far_as_it_is_granted() {
    let mut meter = meter(100, 1_000);
    let end = carry(&mut meter, &[chunk("x", 10_000, true).into()], 120);
    assert!(matches!(end, StreamEnd::GrantUsedUp));
    assert_eq!(texts(&mut meter), 0);
    assert_eq!(meter.usage(), (Usage { prompt: 12, cached: 0, completion: 120 }, false));
}

#[test]
fn a_finish_reason_passes_whatever_was_counted_with_it() {
    let mut meter = meter(5, 5);
    let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 6}});
    let pieces = [chunk("x", 5, true).into(), format!("data: {last}\n\ndata: [DONE]\n\n").into()];
    assert!(matches!(carry(&mut meter, &pieces, 5), StreamEnd::Complete));
    assert_eq!(meter.usage().0.completion, 6);
}

proptest! {
    #[test]
    fn no_event_leaves_beyond_the_grant_and_the_bill_is_the_same_however_bytes_are_cut(
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
            let complete = matches!(end, StreamEnd::Complete);
            (complete, texts(&mut meter), meter.usage(), meter.granted.granted())
        };
        let whole = run(&pieces(&[0, body.len()]));
        prop_assert_eq!(run(&pieces(&cuts)), whole);
        let (complete, events, (usage, _), granted) = whole;
        let delivered: u64 = tokens[..events].iter().sum();
        prop_assert!(delivered <= granted, "{} delivered of {} granted", delivered, granted);
        prop_assert_eq!(complete, total <= available.max(first));
        if complete {
            prop_assert_eq!(usage.completion, total);
        } else {
            // The event that ends the stream is withheld. Of its tokens, if the upstream reported them, those granted are billed.
            prop_assert_eq!(usage.completion, if reported { granted } else { delivered });
        }
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
        assert_eq!(meter.usage().0.completion, if begun { completion } else { 0 });
    }
    let aborted = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "abort"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 40}});
    let mut meter = meter(100, 100);
    let end = carry(&mut meter, &[format!("data: {aborted}\n\n").into()], 100);
    assert!(matches!(end, StreamEnd::Complained(_)));
    assert_eq!(
        (meter.has_begun(), meter.usage()),
        (true, (Usage { prompt: 12, cached: 0, completion: 40 }, false))
    );
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
        assert_eq!(meter.usage(), (Usage { prompt: 12, cached: 0, completion: 2 }, false));
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
