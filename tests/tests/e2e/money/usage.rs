//! Usage, as each kind of upstream reports it, truthfully or falsely, and as it is billed.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;
use shared::money::NanoUsd;
use tests::{
    harness::{ApiKey, Call, Dialect, FLASH, Options, PATIENCE, Stack, cost, cost_of, usd},
    upstream::{End, Fault, ReasoningTold, Script, Shape, Style, Told, Usage},
};

/// Kinds of upstreams that report only the usage of a chunk's own choice.
const BY_CHOICE: [&str; 3] = ["vllm", "sglang", "llama_cpp"];
/// Numbers of tokens in eight choices, which finish at different times.
const LENGTHS: [u64; 8] = [3, 40, 7, 7, 1, 25, 12, 30];
/// Total number of tokens in these choices.
const TOKENS: u64 = 125;

async fn of_kind(kind: &'static str) -> (Stack, ApiKey) {
    let stack = Stack::with(Options { kind, ..Options::default() }).await;
    let key = stack.key().await;
    (stack, key)
}

/// Waits until everything is settled. Returns the amount billed for the key's only request, and whether the bill is
/// marked as an estimate.
async fn billed(stack: &Stack, key: &ApiKey) -> (NanoUsd, bool) {
    stack.released(PATIENCE).await;
    let journal = stack.journal(&key.account);
    let entry = journal.iter().find(|entry| entry["key_id"] == key.id.as_str()).unwrap();
    (stack.used(key).await, entry["estimated"].as_bool().unwrap())
}

#[apply(fact)]
async fn all_choices_are_billed_where_each_is_reported_apart() {
    for kind in BY_CHOICE {
        let (stack, key) = of_kind(kind).await;
        let script = Script { style: Style::of(kind), ..Script::choices(12, &LENGTHS) };
        let ended = stack.call(&key, script.clone()).with("n", 8).stream().await.rest().await;
        assert_eq!(ended.assert_done().cost(), cost_of(12, TOKENS), "{kind}");
        assert_eq!(billed(&stack, &key).await, (cost_of(12, TOKENS), false), "{kind}");
    }
}

#[apply(fact)]
async fn a_stream_that_is_left_pays_for_all_of_its_choices_exactly() {
    for kind in BY_CHOICE {
        let (stack, key) = of_kind(kind).await;
        let script = Script { style: Style::of(kind), ..Script::tokens(12, 100) };
        let call = stack.call(&key, script.fault(Fault::Stall { after: 30 })).with("n", 8);
        let mut stream = call.stream().await;
        stream.read_tokens(8 * 30).await;
        let tag = stream.tag.clone();
        drop(stream);
        stack.upstream.wait_for(&tag, "stop", |generation| generation.ended_by(End::ClientLeft)).await;
        assert_eq!(billed(&stack, &key).await, (cost_of(12, 8 * 30), false), "{kind}");
    }
}

/// Sends a script's request whole and as a stream, each with its own key. Asserts that the cost is in this range, and
/// whether it is marked as an estimate.
async fn assert_billed(
    kind: &'static str,
    script: &Script,
    costs: (NanoUsd, NanoUsd),
    estimated: (bool, bool),
) {
    let (stack, _) = of_kind(kind).await;
    let (for_whole, for_stream) = (stack.key().await, stack.key().await);
    let call = |key: &ApiKey| -> Call { stack.call(key, script.clone()).costing(costs.0, costs.1) };
    let whole = call(&for_whole).send().await;
    assert_eq!(whole.status, 200, "{whole}");
    call(&for_stream).stream().await.rest().await.assert_done();
    for (key, estimated) in [(for_whole, estimated.0), (for_stream, estimated.1)] {
        let (used, marked) = billed(&stack, &key).await;
        assert!((costs.0..=costs.1).contains(&used), "{kind}, {script:?}: {used}");
        assert_eq!(marked, estimated, "{kind}, {script:?}");
    }
}

#[apply(fact)]
async fn false_numbers_bill_an_estimate() {
    for kind in ["vllm", "openai"] {
        for tokens in [1_000_000_000_000, u64::MAX, u64::from(u32::MAX)] {
            let lie = Usage { prompt: tokens, cached: tokens, completion: 9 };
            let script = Script { told: Told::Lie(lie), style: Style::of(kind), ..Script::tokens(12, 9) };
            // For a stream, the upstream may be asked to count the prompt.
            let estimated = (true, kind == "openai");
            assert_billed(kind, &script, (cost_of(1, 9), cost_of(1_000, 9)), estimated).await;
        }
        let lie = Usage { prompt: 12, cached: 0, completion: u64::MAX };
        let script = Script { told: Told::Lie(lie), style: Style::of(kind), ..Script::tokens(12, 9) };
        assert_billed(kind, &script, (cost_of(12, 5), cost_of(12, 18)), (true, true)).await;
        let total = r#"{"prompt_tokens":12,"completion_tokens":9,"total_tokens":2147483647}"#;
        let script = Script { told: Told::json(total), style: Style::of(kind), ..Script::tokens(12, 9) };
        assert_billed(kind, &script, (cost_of(12, 9), cost_of(12, 9)), (false, false)).await;
    }
}

#[apply(fact)]
async fn a_false_number_in_the_first_chunk_changes_nothing() {
    for kind in BY_CHOICE {
        let (stack, key) = of_kind(kind).await;
        let lie = Usage { prompt: u64::from(u32::MAX), cached: 0, completion: u64::MAX };
        let script = Script { told: Told::First(lie), style: Style::of(kind), ..Script::tokens(12, 90) };
        let ended = stack.call(&key, script).stream().await.rest().await;
        assert_eq!((ended.assert_done().tokens(), ended.finish_reasons()), (90, vec!["stop"]), "{kind}");
        assert_eq!(billed(&stack, &key).await, (cost_of(12, 90), false), "{kind}");
        let metrics = stack.http.get(&format!("{}/metrics", stack.server().admin())).await;
        assert!(metrics.text().contains("gateway_usage_false_reports_total 1"), "{kind}");
    }
}

#[apply(fact)]
async fn numbers_of_every_spelling_are_billed_as_reported() {
    let told = [
        r#"{"prompt_tokens":12.0,"completion_tokens":9.0,"total_tokens":21.0}"#,
        r#"{"prompt_tokens":"12","completion_tokens":"9","total_tokens":"21"}"#,
        r#"{"input_tokens":12,"output_tokens":9}"#,
        r#"{"prompt_tokens":12,"completion_tokens":9,"total_tokens":null,"prompt_tokens_details":"none"}"#,
    ];
    for kind in ["vllm", "openai"] {
        for last in told {
            let script = Script { told: Told::json(last), style: Style::of(kind), ..Script::tokens(12, 9) };
            assert_billed(kind, &script, (cost_of(12, 9), cost_of(12, 9)), (false, false)).await;
        }
        // A prompt that was not reported is estimated, or counted if the stream's upstream can count.
        let last = r#"{"prompt_tokens":0,"completion_tokens":9}"#;
        let script = Script { told: Told::json(last), style: Style::of(kind), ..Script::tokens(12, 9) };
        assert_billed(kind, &script, (cost_of(1, 9), cost_of(1_000, 9)), (true, kind == "openai")).await;
    }
}

#[apply(fact)]
async fn usage_in_two_chunks_is_put_together() {
    let (stack, key) = of_kind("openai").await;
    let (first, last) = (r#"{"input_tokens":12,"output_tokens":1}"#, r#"{"output_tokens":9}"#);
    let told = Told::Json { first: Some(first.into()), last: last.into() };
    let script = Script { told, style: Style::openai(), ..Script::tokens(12, 9) };
    let ended = stack.call(&key, script).stream().await.rest().await;
    assert_eq!(ended.assert_done().usage().unwrap()["total_tokens"], 21);
    assert_eq!(billed(&stack, &key).await, (cost_of(12, 9), false));
}

#[apply(fact)]
async fn a_prompt_beside_its_cached_parts_is_put_together_from_all_of_them() {
    let (stack, key) = of_kind("openai").await;
    let first = json!({"input_tokens": 2, "output_tokens": 1, "cache_read_input_tokens": 4,
        "cache_creation": {"ephemeral_5m_input_tokens": 6, "ephemeral_1h_input_tokens": 0}});
    let told = Told::Json { first: Some(first.to_string()), last: r#"{"output_tokens":9}"#.into() };
    let script = Script { told, style: Style::openai(), ..Script::tokens(12, 9) };
    let ended = stack.call(&key, script).stream().await.rest().await;
    let usage = ended.assert_done().usage().unwrap();
    assert_eq!(usage["prompt_tokens"], 12);
    assert_eq!(usage["prompt_tokens_details"], json!({"cached_tokens": 4, "cache_write_tokens": 6}));
    let cost = cost(FLASH, Usage { prompt: 12, cached: 4, completion: 9 });
    assert_eq!(billed(&stack, &key).await, (cost, false));
}

#[apply(fact)]
async fn a_whole_answer_of_several_choices_of_llama_cpp_is_asked_for_as_a_stream_and_billed_exactly() {
    let (stack, key) = of_kind("llama_cpp").await;
    let script = Script {
        style: Style::llama_cpp(),
        cached_tokens: 4,
        reasoning_tokens: 2,
        ..Script::choices(12, &LENGTHS)
    };
    let call = stack.call(&key, script.clone()).with("n", 8).with("logprobs", true);
    let tag = call.tag.clone();
    let answer = call.send().await;
    let whole = answer.json();
    assert_eq!((answer.status, &whole["object"]), (200, &json!("chat.completion")), "{answer}");
    let sent = stack.upstream.tagged(&tag).pop().unwrap();
    assert_eq!((sent.json()["stream"].clone(), sent.streamed), (json!(true), true));
    for (index, length) in LENGTHS.iter().enumerate() {
        let choice = &whole["choices"][index];
        let (reasoning, text) = (2.min(*length), length.saturating_sub(2).min(38));
        assert_eq!(choice["index"], index, "{choice}");
        assert_eq!(choice["message"]["reasoning_content"], tests::upstream::text(reasoning), "{choice}");
        assert_eq!(choice["message"]["content"].as_str().unwrap_or_default(), tests::upstream::text(text));
        let listed = choice["logprobs"]["content"].as_array().map_or(0, Vec::len);
        assert_eq!(listed as u64, text, "{choice}");
    }
    let usage = Usage { prompt: 12, cached: 4, completion: TOKENS };
    assert_eq!((answer.cost(), &whole["usage"]["completion_tokens"]), (cost(FLASH, usage), &json!(TOKENS)));
    assert_eq!(billed(&stack, &key).await, (cost(FLASH, usage), false));

    // With a single choice, or another kind of upstream, the gateway requests a whole answer.
    let one = stack.call(&key, script.clone());
    let tag = one.tag.clone();
    assert_eq!(one.send().await.status, 200);
    assert!(!stack.upstream.tagged(&tag)[0].streamed);
}

#[apply(fact)]
async fn a_folded_answer_that_breaks_off_costs_nothing() {
    let (stack, key) = of_kind("llama_cpp").await;
    let error = Fault::ErrorEvent { after: 3, shape: Shape::Telling };
    for fault in [Fault::Cut { after: 3 }, Fault::End { after: 3 }, error, Fault::Nonsense { after: 3 }] {
        let script = Script { style: Style::llama_cpp(), ..Script::tokens(12, 9) }.fault(fault);
        let call = stack.call(&key, script).with("n", 2).costing(NanoUsd::ZERO, NanoUsd::ZERO);
        call.send().await.assert_error(502, "upstream_error");
    }
    stack.released(PATIENCE).await;
    assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
}

#[apply(fact)]
async fn cached_tokens_that_timings_alone_tell_are_billed_as_cached_in_whole_answers_too() {
    let (stack, key) = of_kind("llama_cpp").await;
    let style = Style { no_cached_tokens: true, ..Style::llama_cpp() };
    let usage = Usage { prompt: 12, cached: 8, completion: 9 };
    let answer = stack.call(&key, Script { style, cached_tokens: 8, ..Script::tokens(12, 9) }).send().await;
    assert_eq!(answer.cost(), cost(FLASH, usage), "{answer}");
    assert_eq!(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"], 8);
    assert_eq!(billed(&stack, &key).await, (cost(FLASH, usage), false));
}

#[apply(fact)]
async fn reasoning_of_a_stream_that_is_left_is_that_of_all_choices() {
    for (kind, told) in [("vllm", ReasoningTold::InDetails), ("sglang", ReasoningTold::AtTop)] {
        let (stack, key) = of_kind(kind).await;
        let style = Style { reasoning_told: told, ..Style::of(kind) };
        let script = Script { style, reasoning_tokens: 20, ..Script::tokens(12, 100) };
        let mut stream =
            stack.call(&key, script.fault(Fault::Stall { after: 30 })).with("n", 8).stream().await;
        stream.read_tokens(8 * 30).await;
        let tag = stream.tag.clone();
        drop(stream);
        stack.upstream.wait_for(&tag, "stop", |generation| generation.ended_by(End::ClientLeft)).await;
        assert_eq!(billed(&stack, &key).await, (cost_of(12, 8 * 30), false), "{kind}");
        assert_eq!(stack.journal(&key.account)[0]["reasoning_tokens"], 8 * 20, "{kind}");
    }
}

#[apply(fact)]
async fn text_that_follows_a_report_of_its_own_tokens_is_billed_once() {
    let (stack, key) = of_kind("openai").await;
    let told = Told::First(Usage { prompt: 12, cached: 0, completion: 1_000 });
    let script = Script { told, style: Style::openai(), ..Script::tokens(12, 1_000) };
    let call = stack.call(&key, script.fault(Fault::Stall { after: 1_000 }));
    let mut stream = call.costing(cost_of(12, 1_000), cost_of(12, 1_000)).stream().await;
    stream.read_tokens(1_000).await;
    let tag = stream.tag.clone();
    drop(stream);
    stack.upstream.wait_for(&tag, "stop", |generation| generation.ended_by(End::ClientLeft)).await;
    assert_eq!(billed(&stack, &key).await, (cost_of(12, 1_000), true));
}

#[apply(fact)]
async fn a_stream_of_fewer_choices_than_asked_ends_soon_after_its_last_chunk() {
    let (stack, key) = of_kind("ollama").await;
    let script = Script { style: Style::ollama(), ..Script::tokens(12, 9) };
    let began = Instant::now();
    let ended =
        stack.call(&key, script.fault(Fault::StallBeforeDone)).with("n", 4).stream().await.rest().await;
    let took = began.elapsed();
    assert_eq!((ended.assert_done().cost(), ended.finish_reasons()), (cost_of(12, 9), vec!["stop"]));
    assert!((Duration::from_secs(9)..Duration::from_secs(25)).contains(&took), "{took:?}");
}

#[apply(fact)]
async fn tokens_that_were_reported_before_an_error_are_billed_without_text() {
    let (stack, key) = of_kind("vllm").await;
    let thought = Usage { prompt: 12, cached: 0, completion: 40 };
    let fault = Fault::ErrorEvent { after: 0, shape: Shape::Nested };
    let script = Script { told: Told::First(thought), style: Style::vllm(), fault, ..Script::tokens(12, 90) };
    let call = stack.call(&key, script).costing(cost_of(12, 40), cost_of(12, 40));
    call.stream().await.rest().await.assert_error(502, "upstream_error");
    assert_eq!(billed(&stack, &key).await, (cost_of(12, 40), false));
}

#[apply(fact)]
async fn an_answer_with_an_unknown_finish_reason_is_complete() {
    for word in ["STOP", "load", "FINISH_REASON_UNSPECIFIED"] {
        let (stack, key) = of_kind("openai").await;
        let finish_reason = Some(word.to_owned());
        let script = Script { finish_reason, style: Style::openai(), ..Script::tokens(12, 9) };
        let whole = stack.call(&key, script.clone()).send().await;
        assert_eq!(
            (whole.status, &whole.json()["choices"][0]["finish_reason"]),
            (200, &json!("stop")),
            "{word}"
        );
        let ended = stack.call(&key, script).stream().await.rest().await;
        assert_eq!(ended.assert_done().finish_reasons(), ["stop"], "{word}");
        stack.released(PATIENCE).await;
        assert_eq!(stack.used(&key).await.nanos(), 2 * cost_of(12, 9).nanos(), "{word}");
    }
}

#[apply(fact)]
async fn an_upstream_that_ignores_its_limit_and_reports_nothing_is_stopped_and_what_it_delivered_is_billed() {
    for kind in ["openai", "ollama"] {
        let (stack, key) = of_kind(kind).await;
        let script = Script { ignores_max_tokens: true, told: Told::Nothing, ..Script::tokens(12, 3_000) };
        let ended =
            stack.call(&key, script).with("max_tokens", 50).costing(NanoUsd::ZERO, usd("1")).stream().await;
        let ended = ended.rest().await;
        let delivered = ended.assert_done().tokens() as u64;
        assert_eq!(ended.finish_reasons(), ["length"], "{kind}");
        assert!((50..=110).contains(&delivered), "{kind}: {delivered} of 50 tokens are delivered");
        let (billed, estimated) = billed(&stack, &key).await;
        assert!(billed >= cost_of(0, delivered) && estimated, "{kind}: {billed} for {delivered} tokens");
    }
}

/// How each dialect names its user, and how a bill names the dialect.
const USERS: [(Dialect, &str, &str); 3] = [
    (Dialect::Chat, "chat", "user"),
    (Dialect::Responses, "responses", "safety_identifier"),
    (Dialect::Messages, "messages", "metadata"),
];

/// What a bill records about its request, in addition to tokens and money.
const DETAILS: [&str; 9] = [
    "dialect",
    "stream",
    "user",
    "request_id",
    "upstream",
    "finish_reason",
    "authorized_ms",
    "first_token_ms",
    "latency_ms",
];

#[apply(fact)]
async fn a_bill_says_who_asked_in_which_api_which_upstream_served_and_how_long_it_took() {
    let stack = Stack::start().await;
    for (dialect, name, member) in USERS {
        let key = stack.key().await;
        let user = if member == "metadata" { json!({"user_id": "u-1"}) } else { json!("u-1") };
        let call = stack.call(&key, Script::tokens(12, 30)).speaking(dialect).with(member, user);
        let stream = call.stream().await;
        let request = stream.header("x-request-id").to_owned();
        stream.rest().await.assert_done();
        stack.released(PATIENCE).await;
        let journal = stack.journal(&key.account);
        let entry = journal.iter().rfind(|entry| entry["key_id"] == key.id.as_str()).unwrap();
        let asked = [&entry["dialect"], &entry["stream"], &entry["user"], &entry["finish_reason"]];
        assert_eq!(asked, [&json!(name), &json!(true), &json!("u-1"), &json!("stop")]);
        assert_eq!(entry["upstream"], "upstream-1", "no address");
        assert_eq!(entry["request_id"], request.as_str());
        let [authorized, first_token, latency] =
            ["authorized_ms", "first_token_ms", "latency_ms"].map(|name| entry[name].as_u64().unwrap());
        assert!(authorized <= first_token && first_token <= latency && latency < 60_000, "{entry}");
        let generation = entry["generation_id"].as_str().unwrap();
        let url = stack.url(&format!("/v1/management/generations/{generation}"));
        let bill = stack.http.send_as(&stack.account.management_key, Method::GET, &url, None).await.json();
        for detail in DETAILS {
            assert_eq!(bill[detail], entry[detail], "{detail}: {bill}");
        }
    }
}
