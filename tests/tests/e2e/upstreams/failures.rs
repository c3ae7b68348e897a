//! Failing upstreams: the errors that clients receive, and the tokens that clients pay for.

use serde_json::json;
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, ApiKey, Models, Options, PATIENCE, Stack, cost_of},
    upstream::{Fault, Script, Shape, Style, Told, text},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

async fn whole(stack: &Stack, key: &ApiKey, fault: Fault) -> Answer {
    stack.call(key, Script::tokens(12, 9).fault(fault)).send().await
}

#[apply(fact)]
async fn an_upstream_that_refuses_is_translated_and_costs_nothing() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let cases = [
        (400, Shape::Nested, 400, "invalid_value"),
        (422, Shape::Flat, 400, "invalid_value"),
        (400, Shape::TooLong, 400, "context_length_exceeded"),
        (413, Shape::Nested, 413, "request_too_large"),
        (401, Shape::Flat, 502, "upstream_error"),
        (403, Shape::Nested, 502, "upstream_error"),
        (404, Shape::Nested, 502, "upstream_error"),
        (429, Shape::Nested, 503, "upstream_unavailable"),
        (500, Shape::Flat, 502, "upstream_error"),
        (503, Shape::Html, 503, "upstream_unavailable"),
        (504, Shape::Html, 504, "upstream_timeout"),
        (302, Shape::Html, 502, "upstream_error"),
    ];
    for (status, shape, ours, code) in cases {
        let script = Script::tokens(12, 9).fault(Fault::Error { status, shape });
        let answer = stack.call(&key, script.clone()).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (ours, code), "{status} {shape:?}: {answer}");
        answer.assert_error(ours, code);
        let refused = stack.call(&key, script).try_stream().await;
        let Err(answer) = refused else { panic!("a stream began") };
        answer.assert_error(ours, code);
    }
    let shown = stack.show(&key).await;
    assert_eq!((&shown["used"], &shown["last_used_at"]), (&json!(0), &json!(null)));
}

#[apply(fact)]
async fn a_whole_answer_that_breaks_or_makes_no_sense_costs_nothing() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    for fault in [
        Fault::Cut { after: 3 },
        Fault::End { after: 3 },
        Fault::Nonsense { after: 0 },
        Fault::CutBeforeUsage,
    ] {
        let answer = whole(&stack, &key, fault).await;
        assert_eq!((answer.status, answer.code().as_str()), (502, "upstream_error"), "{fault:?}: {answer}");
        answer.assert_error(502, "upstream_error");
    }
    let abort = Script { finish_reason: Some("abort".into()), ..Script::tokens(12, 9) };
    stack.call(&key, abort).send().await.assert_error(502, "upstream_error");
    assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
}

#[apply(fact)]
async fn an_upstream_that_hangs_up_or_is_not_there_is_unavailable() {
    let mut stack = Stack::start().await;
    let key = stack.key().await;
    let answer = whole(&stack, &key, Fault::CutBeforeHead).await;
    answer.assert_error(502, "upstream_error");
    assert!(stack.call(&key, Script::tokens(12, 9).fault(Fault::CutBeforeHead)).try_stream().await.is_err());
    stack.upstream.stop();
    whole(&stack, &key, Fault::None).await.assert_error(503, "upstream_unavailable");
    assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
    drop(stack);

    let nowhere = Models::At("http://127.0.0.1:1/v1".into());
    let stack = Stack::with(Options { models: nowhere, ..Options::default() }).await;
    let key = stack.key().await;
    stack.call(&key, Script::default()).send().await.assert_error(503, "upstream_unavailable");
}

#[apply(fact)]
async fn an_error_whose_body_does_not_come_is_judged_by_its_status() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let models = Models::At(format!("http://{}/v1", listener.local_addr().unwrap()));
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            // Reads the request first, since an answer before it would break the connection.
            stream.read_exact(&mut [0; 64]).await.unwrap();
            stream.write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 100\r\n\r\n{").await.unwrap();
            kept.push(stream);
        }
    });
    let stack = Stack::with(Options { models, ..Options::default() }).await;
    let key = stack.key().await;
    stack.call(&key, Script::default()).send().await.assert_error(503, "upstream_unavailable");
}

#[apply(fact)]
async fn a_stream_that_breaks_says_so_and_costs_what_it_delivered() {
    let stack = Stack::start().await;
    for fault in [
        Fault::Cut { after: 4 },
        Fault::End { after: 4 },
        Fault::ErrorEvent { after: 4, shape: Shape::Nested },
        Fault::ErrorEvent { after: 4, shape: Shape::Flat },
        Fault::Nonsense { after: 4 },
    ] {
        let key = stack.key().await;
        let ended = stack.call(&key, Script::tokens(12, 9).fault(fault)).stream().await.rest().await;
        assert_eq!(ended.error_code(), "upstream_error", "{fault:?}: {ended:?}");
        ended.assert_error(502, "upstream_error");
        assert_eq!((ended.text(), ended.finish_reasons().len()), (text(4), 0), "{fault:?}");
        stack.released(tests::harness::PATIENCE).await;
        assert_eq!(stack.used(&key).await, cost_of(12, 4), "{fault:?}");
    }
}

#[apply(fact)]
async fn a_stream_that_breaks_before_its_first_token_costs_nothing() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    for fault in [
        Fault::Cut { after: 0 },
        Fault::End { after: 0 },
        Fault::ErrorEvent { after: 0, shape: Shape::Nested },
    ] {
        match stack.call(&key, Script::tokens(12, 9).fault(fault)).try_stream().await {
            Ok(stream) => stream.rest().await.assert_error(502, "upstream_error"),
            Err(answer) => drop(answer.assert_error(502, "upstream_error")),
        }
        stack.released(tests::harness::PATIENCE).await;
        assert_eq!(stack.used(&key).await, NanoUsd::ZERO, "{fault:?}");
    }
}

#[apply(fact)]
async fn a_stream_with_abort_is_a_failure_and_is_billed() {
    let stack = Stack::start().await;
    let abort = Script { finish_reason: Some("abort".into()), ..Script::tokens(12, 9) };
    let key = stack.key().await;
    let ended = stack.call(&key, abort).stream().await.rest().await;
    ended.assert_error(502, "upstream_error");
    stack.released(tests::harness::PATIENCE).await;
    assert_eq!(stack.used(&key).await, cost_of(12, 9));
}

#[apply(fact)]
async fn an_answer_that_tells_its_end_and_no_reason_is_complete() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let script = || Script::tokens(12, 9).fault(Fault::NoFinishReason);
    let ended = stack.call(&key, script()).stream().await.rest().await;
    assert_eq!(ended.assert_done().finish_reasons(), ["stop"], "{ended:?}");
    let answer = stack.call(&key, script()).send().await;
    assert_eq!(answer.json()["choices"][0]["finish_reason"], "stop", "{answer}");
    assert_eq!(stack.used(&key).await.nanos(), 2 * cost_of(12, 9).nanos());
}

#[apply(fact)]
async fn a_finish_reason_completes_a_stream_whatever_is_missing_behind_it() {
    let stack = Stack::start().await;
    for fault in [Fault::CutBeforeUsage, Fault::NoDone] {
        let key = stack.key().await;
        let ended = stack.call(&key, Script::tokens(12, 9).fault(fault)).stream().await.rest().await;
        assert_eq!(ended.assert_done().finish_reasons(), ["stop"], "{fault:?}: {ended:?}");
        assert_eq!((ended.cost(), stack.used(&key).await), (cost_of(12, 9), cost_of(12, 9)), "{fault:?}");
    }
}

#[apply(fact)]
async fn comments_alone_do_not_keep_an_upstream_alive() {
    let env = vec![("FAREGATE_UPSTREAM_SILENCE_SECONDS", "2".to_owned())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let key = stack.key().await;
    // The stream is slow, but never silent for the whole time limit.
    stack.call(&key, Script::tokens(12, 3).pace(1_200)).stream().await.rest().await.assert_done();
    let script = Script::tokens(12, 20).fault(Fault::Comments { after: 5 });
    let ended = stack.call(&key, script).stream().await.rest().await;
    ended.assert_error(504, "upstream_timeout");
    assert_eq!(ended.tokens(), 5);
    let wanted = cost_of(12, 3).checked_add(cost_of(12, 5)).unwrap();
    stack.released(PATIENCE).await;
    assert_eq!(stack.used(&key).await, wanted, "what it delivered is billed");
}

#[apply(fact)]
async fn usage_that_is_not_reported_is_estimated_and_never_free() {
    for kind in ["openai", "vllm"] {
        let stack = Stack::with(Options { kind, ..Options::default() }).await;
        let key = stack.key().await;
        let script = Script { told: Told::Nothing, ..Script::tokens(30, 40) };
        let answer = stack.call(&key, script.clone()).send().await;
        assert_eq!(answer.status, 200, "{answer}");
        assert!(answer.cost() >= cost_of(0, 40 / 2), "{answer}");
        let ended = stack.call(&key, script).stream().await.rest().await;
        assert!(ended.assert_done().cost() >= cost_of(1, 40), "a token a delta at least: {ended:?}");
        let both = answer.cost().nanos() + ended.cost().nanos();
        assert_eq!(stack.used(&key).await.nanos(), both);
    }
}

#[apply(fact)]
async fn one_request_too_many_is_answered_503_with_retry_after() {
    let env = vec![("FAREGATE_MAX_IN_FLIGHT", "1".to_owned())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let key = stack.key().await;
    let mut stream = stack.call(&key, Script::tokens(12, 400).pace(10)).stream().await;
    stream.read_tokens(1).await;
    stack.call(&key, Script::default()).send().await.assert_error(503, "overloaded");
    drop(stream);
    stack.released(tests::harness::PATIENCE).await;
    assert_eq!(stack.call(&key, Script::default()).send().await.status, 200);
}

#[apply(fact)]
async fn where_one_upstream_cannot_be_reached_another_one_answers() {
    let nowhere = Models::Also("http://127.0.0.1:1/v1".into());
    let stack = Stack::with(Options { models: nowhere, ..Options::default() }).await;
    let key = stack.key().await;
    for _ in 0..5 {
        let whole = stack.call(&key, Script::tokens(12, 5)).send().await;
        assert_eq!(whole.status, 200, "{whole}");
        stack.call(&key, Script::tokens(12, 5)).stream().await.rest().await.assert_done();
    }
    assert_eq!(stack.used(&key).await.nanos(), 10 * cost_of(12, 5).nanos());
}

#[apply(fact)]
async fn an_answer_that_is_late_is_answered_504_and_a_whole_one_is_generated_to_its_end_and_billed() {
    let env = vec![("FAREGATE_ANSWER_SECONDS", "2".to_owned())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let key = stack.key().await;
    let late = || stack.call(&key, Script { head_after_ms: 4_000, ..Script::tokens(12, 9) });
    let Err(stream) = late().costing(NanoUsd::ZERO, NanoUsd::ZERO).try_stream().await else {
        panic!("a stream began")
    };
    stream.assert_error(504, "upstream_timeout");
    assert_eq!(stack.used(&key).await, NanoUsd::ZERO, "a stream that did not begin is free");
    let whole = late().costing(cost_of(12, 9), cost_of(12, 9)).send().await;
    assert_eq!(whole.assert_error(504, "upstream_timeout").header("x-should-retry"), "false");
    stack.released(PATIENCE).await;
    assert_eq!(stack.used(&key).await, cost_of(12, 9), "its end is billed, though its client was answered");
}

#[apply(fact)]
async fn a_whole_answer_may_generate_after_its_head_and_is_not_silent_for_long_after_its_first_byte() {
    let env = vec![("FAREGATE_UPSTREAM_SILENCE_SECONDS", "1".to_owned())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let key = stack.key().await;
    let answer = stack.call(&key, Script { body_after_ms: 3_000, ..Script::tokens(12, 9) }).send().await;
    assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 9)), "{answer}");
    let call = stack.call(&key, Script::tokens(12, 9).fault(Fault::Stall { after: 3 }));
    call.costing(NanoUsd::ZERO, NanoUsd::ZERO).send().await.assert_error(504, "upstream_timeout");
    assert_eq!(stack.used(&key).await, cost_of(12, 9), "an answer that fails is free");
}

#[apply(fact)]
async fn choices_that_finish_long_before_others_end_no_stream() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let style = Style { no_role: true, usage_by_choice: true, ..Style::default() };
    let script = Script { lengths: vec![1, 40], style, ..Script::tokens(12, 40).pace(100) };
    let ended = stack.call(&key, script).with("n", 2).stream().await.rest().await;
    assert_eq!((ended.assert_done().tokens(), ended.finish_reasons()), (41, vec!["stop", "stop"]));
    assert_eq!(ended.cost(), cost_of(12, 41));
}
