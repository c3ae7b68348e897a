//! Upstreams in the Responses and Messages APIs that break off, report falsely or refuse.

use std::time::{Duration, Instant};

use tests::upstream::{Fault, Shape, Told, Upstream, Usage, VendorError};
use tokio::time::sleep;

use super::*;

/// The shortest lease allowed, because a test waits until it expires.
const LEASE: Duration = Duration::from_secs(3);

#[apply(fact)]
async fn a_stream_that_breaks_ends_with_the_dialects_error_and_an_exact_bill() {
    for (native, dialect) in pairs() {
        let stack = native.stack().await;
        for fault in [Fault::Cut { after: 4 }, Fault::End { after: 4 }, Fault::Nonsense { after: 4 }] {
            let key = stack.key().await;
            let call = stack.call(&key, Script::tokens(12, 9).fault(fault)).speaking(dialect);
            let ended = call.costing(cost_of(1, 4), cost_of(1_000, 4)).stream().await.rest().await;
            let place = format!("{dialect:?} at {native:?} {fault:?}: {ended:?}");
            assert_eq!(ended.error_code(), dialect.error("upstream_error"), "{place}");
            assert!(!ended.done && ended.tokens() == 4, "{place}");
            stack.released(PATIENCE).await;
            let used = stack.used(&key).await;
            match native {
                // In this API, the first event reports the length of the prompt.
                Native::Messages => assert_eq!(used, cost_of(12, 4), "{place}"),
                Native::Responses => assert!(used >= cost_of(1, 4), "{place}"),
            }
        }
    }
}

#[apply(fact)]
async fn an_error_after_the_head_is_told_in_the_dialects_form() {
    for (native, dialect) in pairs() {
        let stack = native.stack().await;
        let key = stack.key().await;
        let fault = Fault::ErrorEvent { after: 3, shape: tests::upstream::Shape::Nested };
        let call = stack.call(&key, Script::tokens(12, 9).fault(fault)).speaking(dialect);
        let ended = call.costing(cost_of(1, 3), cost_of(1_000, 3)).stream().await.rest().await;
        assert_eq!(
            ended.error_code(),
            dialect.error("upstream_error"),
            "{dialect:?} at {native:?}: {ended:?}"
        );
        assert!(!ended.done, "{ended:?}");
    }
}

#[apply(fact)]
async fn what_an_upstream_says_of_itself_stays_inside() {
    for (native, dialect) in pairs() {
        let stack = native.stack().await;
        for (status, told) in [(401, 502), (403, 502), (500, 502), (404, 502)] {
            let key = stack.key().await;
            let fault = Fault::Error { status, shape: tests::upstream::Shape::Telling };
            let answer = stack.call(&key, Script::default().fault(fault)).speaking(dialect).send().await;
            assert_eq!(answer.status, told, "{dialect:?} at {native:?} {status}: {answer}");
            for secret in ["sk-", "10.0.0.5", "scripted upstream"] {
                assert!(!answer.text().contains(secret), "{answer}");
            }
            assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
        }
    }
}

#[apply(fact)]
async fn what_a_vendor_says_of_a_request_reaches_the_client_and_what_it_says_of_the_operator_does_not() {
    for native in Native::BOTH {
        let stack = native.stack_with("pass_members = [\"no_such_member\"]").await;
        let key = stack.key().await;
        let refuse = async |error: VendorError| {
            let script = Script { says_error: Some(error), ..Script::default() };
            stack.call(&key, script).speaking(native.own()).send().await
        };
        let limited = refuse(VendorError::RateLimited).await;
        assert_eq!((limited.status, limited.header("retry-after")), (429, "7"), "{native:?}: {limited}");
        assert!(!limited.text().contains("org-"), "{native:?}: {limited}");
        let poor = refuse(VendorError::NoCredit).await;
        assert_eq!(poor.status, 502, "{native:?}: {poor}");
        assert!(!poor.text().to_lowercase().contains("credit balance"), "{native:?}: {poor}");
        let wrong = refuse(VendorError::WrongKey).await;
        assert_eq!(wrong.status, 502, "{native:?}: {wrong}");
        assert!(!wrong.text().contains("key"), "{native:?}: {wrong}");
        let busy = refuse(VendorError::Overloaded).await;
        let overloaded = if native == Native::Messages { 529 } else { 503 };
        assert_eq!(busy.status, overloaded, "{native:?}: {busy}");
        let long = refuse(VendorError::PromptTooLong).await;
        assert_eq!(long.status, 400, "{native:?}: {long}");
        let words = if native == Native::Messages { "prompt is too long" } else { "context_length_exceeded" };
        assert!(long.text().contains(words), "{native:?}: {long}");
        // The client gets the words in which the vendor refuses an unknown member.
        let call = stack.call(&key, Script::default()).speaking(native.own());
        let refused = call.with("no_such_member", 1).send().await;
        assert_eq!(refused.status, 400, "{native:?}: {refused}");
        assert!(refused.text().contains("no_such_member"), "{native:?}: {refused}");
        assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
    }
}

#[apply(fact)]
async fn a_false_report_is_not_billed() {
    for (native, dialect) in pairs() {
        let stack = native.stack().await;
        let key = stack.key().await;
        let told = Told::Lie(Usage { prompt: 12, cached: 0, completion: 4_294_967_295 });
        let script = Script { told, ..Script::tokens(12, 20) };
        let call = stack.call(&key, script).speaking(dialect).costing(cost_of(12, 1), cost_of(12, 100));
        let answer = call.send().await;
        assert_eq!(answer.status, 200, "{dialect:?} at {native:?}: {answer}");
        assert!(stack.used(&key).await <= cost_of(12, 100), "{dialect:?} at {native:?}: {answer}");
    }
}

#[apply(fact)]
async fn a_gateway_that_is_killed_leaves_a_hold_that_bills_its_last_report_once() {
    for native in Native::BOTH {
        let stack = Stack::with(Options { lease: LEASE, ..native.options() }).await;
        let key = stack.key().await;
        let mut call = stack.call(&key, Script::tokens(12, 100_000).pace(10)).speaking(native.own());
        if native == Native::Responses {
            // No event has reported the prompt, so an estimate is billed. It may be higher than the cost of the last
            // tokens, which were not reported.
            call = call.costing(NanoUsd::ZERO, cost_of(1_000, 100_000));
        }
        let mut stream = call.stream().await;
        let tag = stream.tag.clone();
        // Meanwhile, the lease is renewed. Each renewal reports the progress.
        let renewed = Instant::now() + LEASE + LEASE / 3;
        while Instant::now() < renewed {
            let read = stream.so_far().tokens();
            stream.read_tokens(read + 10).await;
        }
        stack.crash().await;
        drop(stream);
        let served =
            stack.upstream.wait_for(&tag, "stop", |generation| generation.ended.is_some()).await.served;
        stack.released(PATIENCE).await;
        let used = stack.used(&key).await;
        // If no event has reported the length of the prompt yet, it is estimated.
        let most = if native == Native::Messages {
            cost_of(12, served.completion)
        } else {
            cost_of(1_000, served.completion)
        };
        assert!((cost_of(1, 10)..=most).contains(&used), "{native:?}: {used} for {served:?}");
        sleep(LEASE).await;
        assert_eq!(stack.used(&key).await, used, "{native:?}: billed once");
    }
}

/// Starts two upstreams with the Responses API for the same model. The second is returned, so that a test can decide
/// what it answers.
async fn two() -> (Stack, Upstream) {
    let second = Upstream::start();
    let lines = "speaks = [\"responses\"]";
    let models = Models::Apart { scripted: lines, other: second.url(), lines };
    (Stack::with(Options { kind: "openai", models, ..Options::default() }).await, second)
}

/// Sends requests that contain no script, so the upstreams use their default scripts. Either upstream may answer a
/// request.
async fn ask_often(stack: &Stack, key: &ApiKey) {
    for _ in 0..30 {
        let mut call = stack.call(key, Script::default()).speaking(Dialect::Responses);
        call.body["messages"] = json!([{"role": "user", "content": "Hi"}]);
        assert_eq!(call.send().await.status, 200);
    }
}

#[apply(fact)]
async fn no_account_sets_an_upstream_aside_by_what_it_passes() {
    let (stack, second) = two().await;
    let key = stack.key().await;
    for status in [403, 404, 414, 429, 431] {
        let before = second.generations().len();
        second.set_default(Script::default().fault(Fault::Error { status, shape: Shape::Nested }));
        ask_often(&stack, &key).await;
        let asked = second.generations().len() - before;
        assert!(asked > 6, "{status}: {asked} of 30 requests came, so that it was set aside");
    }
    // If another account is refused too, it is the upstream's fault.
    let other = stack.open_account("other", tests::harness::usd("1"));
    let others = stack.key_of(&other, json!({})).await;
    second.set_default(Script::default().fault(Fault::Error { status: 403, shape: Shape::Nested }));
    let before = second.generations().len();
    for _ in 0..3 {
        ask_often(&stack, &key).await;
        ask_often(&stack, &others).await;
    }
    let asked = second.generations().len() - before;
    assert!(asked < 50, "{asked} of 180 requests came");
}

#[apply(fact)]
async fn no_query_and_no_header_of_an_account_takes_an_upstream_from_another() {
    let second = Upstream::start();
    let lines = "pass_query = [\"region\"]";
    let models = Models::Apart { scripted: lines, other: second.url(), lines };
    let stack = Stack::with(Options { kind: "anthropic", models, ..Options::default() }).await;
    stack.others_spend();
    let key = stack.key().await;
    let other = stack.open_account("other", tests::harness::usd("1"));
    let others = stack.key_of(&other, json!({})).await;
    let ask = async |query: &str, beta: &str| {
        let body = json!({"model": "Model Flash", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]});
        let request = Request::post(stack.url(&format!("/v1/messages{query}")))
            .header(header::AUTHORIZATION, format!("Bearer {}", key.secret))
            .header(header::CONTENT_TYPE, "application/json")
            .header("anthropic-version", "2023-06-01")
            .header("anthropic-beta", beta)
            .body(http_body_util::Full::new(body.to_string().into()))
            .unwrap();
        stack.http.send(request).await
    };
    for status in [401, 403, 500, 503] {
        second.set_default(Script::default().fault(Fault::ErrorOfHead { status }));
        for (query, beta) in [("?region=nowhere", ""), ("?beta=true", ""), ("", "oauth-2025-04-20")] {
            for _ in 0..15 {
                assert_eq!(ask(query, beta).await.status, 200, "another one answers");
            }
            let before = second.generations().len();
            ask_often(&stack, &others).await;
            let asked = second.generations().len() - before;
            assert!(asked > 6, "{status} {query} {beta}: {asked} of 30 requests came");
        }
    }
    // A query parameter that the catalogue does not list reaches no upstream.
    second.set_default(Script::default());
    let before = second.generations().len();
    for _ in 0..15 {
        assert_eq!(ask("?key=wrong&api-version=1", "").await.status, 200);
    }
    let asked: Vec<_> = second.generations().into_iter().skip(before).map(|asked| asked.path).collect();
    assert!(!asked.is_empty() && asked.iter().all(|path| path == "/v1/messages"), "{asked:?}");
}

#[apply(fact)]
async fn a_response_that_repeats_a_request_longer_than_any_event_is_delivered_and_billed_as_reported() {
    // These spaces are few tokens, but more bytes than an event may contain.
    let blanks = " ".repeat(17 << 20);
    let stack = Native::Responses.stack().await;
    stack.others_spend();
    let key = stack.key().await;
    for passes in [true, false] {
        let used = stack.used(&key).await;
        let script = Script::tokens(440_000, 9);
        let (path, body) = if passes {
            let body = json!({"model": "Model Flash", "stream": true, "max_output_tokens": 50,
                "instructions": blanks, "input": says(&script)});
            ("/v1/responses", body)
        } else {
            let system = json!({"role": "system", "content": blanks});
            let question = json!({"role": "user", "content": script.message()});
            (
                "/v1/chat/completions",
                json!({"model": "Model Flash", "stream": true, "max_tokens": 50, "messages": [system, question]}),
            )
        };
        let answer = send_raw(&stack, &key, path, body.to_string()).await;
        let text = answer.text();
        let end = if passes { "response.completed" } else { "[DONE]" };
        assert!(answer.status == 200 && text.contains(end), "{} {}", answer.status, text.len());
        stack.released(PATIENCE).await;
        let billed = stack.used(&key).await.nanos() - used.nanos();
        assert_eq!(billed, cost_of(440_000, 9).nanos(), "passes: {passes}");
    }
}

#[apply(fact)]
async fn headers_that_servers_would_not_take_are_refused_by_name() {
    let stack = Native::Messages.stack().await;
    let key = stack.key().await;
    let call = || stack.call(&key, Script::tokens(12, 5)).speaking(Dialect::Messages);
    let refused = call().header("anthropic-beta", &"a-1,".repeat(600)).send().await;
    assert_eq!(refused.status, 400, "{refused}");
    assert!(refused.text().contains("anthropic-beta"), "{refused}");
    assert_eq!(call().header("anthropic-beta", &"a-1,".repeat(400)).send().await.status, 200);
    let mut unknown = key.clone();
    unknown.secret.push('x');
    let call = stack.call(&unknown, Script::default()).speaking(Dialect::Messages);
    assert_eq!(call.header("anthropic-beta", &"a-1,".repeat(600)).send().await.status, 401);
}
