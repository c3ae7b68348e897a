//! The longest prompts and the largest answers, as many at once as the memory budgets allow.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::{Request, header};
use http_body_util::Full;
use serde_json::{Value, json};
use tests::{
    harness::{ApiKey, Call, Models, Options, PATIENCE, Server, Settings, Stack, cost_of, until},
    upstream::{Fault, Script, text},
};
use tokio::time::timeout;

/// Returns limits of one mebibyte for a prompt and two for all prompts together.
fn little_room() -> Vec<(&'static str, String)> {
    vec![("FAREGATE_MAX_BODY_MIB", "1".to_owned()), ("FAREGATE_MAX_PROMPTS_MIB", "2".to_owned())]
}

/// Returns a request with a prompt of almost a mebibyte.
fn long(stack: &Stack, key: &ApiKey, script: Script) -> Call {
    let mut call = stack.call(key, script);
    let messages = call.body["messages"].as_array_mut().unwrap();
    messages.insert(0, json!({"role": "system", "content": "x".repeat(900 << 10)}));
    call
}

#[apply(fact)]
async fn a_prompt_that_exceeds_the_budget_is_answered_503_with_retry_after() {
    let stack = Stack::with(Options { env: little_room(), ..Options::default() }).await;
    let key = stack.key().await;
    let waiting = long(&stack, &key, Script::default().fault(Fault::StallBeforeHead));
    let tag = waiting.tag.clone();
    let waiting = tokio::spawn(waiting.try_stream());
    stack.upstream.wait_for(&tag, "come", |_| true).await;
    let refused = long(&stack, &key, Script::default()).send().await;
    assert_eq!(refused.assert_error(503, "overloaded").header("connection"), "close");
    let short = stack.call(&key, Script::tokens(12, 5)).send().await;
    assert_eq!(short.status, 200, "{short}");
    waiting.abort();
    stack.upstream.wait_for(&tag, "be let go", |generation| generation.ended.is_some()).await;
    stack.released(PATIENCE).await;
    assert_eq!(long(&stack, &key, Script::tokens(12, 5)).send().await.status, 200);
}

#[apply(fact)]
async fn all_that_is_kept_of_a_request_counts_until_it_ends() {
    // For a model with upstreams in each API, three bodies are kept in memory; and a response repeats the instructions.
    let catalogue = include_str!("sizes/all_apis.toml");
    let chat = json!({"messages": [{"role": "user", "content": "x".repeat(400 << 10)}]});
    let responses = json!({"input": "Hi", "instructions": "x".repeat(400 << 10), "stream": true});
    for (path, model, body) in [("/v1/chat/completions", "three", chat), ("/v1/responses", "one", responses)]
    {
        let models = Models::Text(catalogue);
        let stack = Stack::with(Options { models, env: little_room(), ..Options::default() }).await;
        stack.others_spend();
        let key = stack.key().await;
        stack.upstream.set_default(Script { head_after_ms: 2_000, ..Script::tokens(12, 5) });
        let send = |body: &Value| {
            let mut body = body.clone();
            body["model"] = model.into();
            let request = Request::post(stack.url(path))
                .header(header::AUTHORIZATION, format!("Bearer {}", key.secret))
                .header(header::CONTENT_TYPE, "application/json")
                .body(Full::from(body.to_string()));
            let http = stack.http.fresh();
            tokio::spawn(async move { http.send(request.unwrap()).await })
        };
        let first = send(&body);
        until("the upstream to be asked", async || !stack.upstream.generations().is_empty()).await;
        let second = send(&body);
        let refused = timeout(PATIENCE, second).await.expect("there is no room for it").unwrap();
        let refused = refused.assert_error(503, "overloaded");
        assert_eq!(refused.header("retry-after"), "1", "{path}");
        assert_eq!(first.await.unwrap().status, 200, "{path}");
        assert_eq!(send(&body).await.unwrap().status, 200, "{path}: there is room again");
    }
}

#[apply(fact)]
async fn streams_keep_no_prompt_that_need_not_be_counted() {
    for kind in ["openai", "vllm"] {
        let stack = Stack::with(Options { kind, env: little_room(), ..Options::default() }).await;
        let key = stack.key().await;
        let mut streams = Vec::new();
        for _ in 0..4 {
            let script = Script::tokens(12, 9).fault(Fault::Stall { after: 1 });
            let call = long(&stack, &key, script).costing(cost_of(12, 1), cost_of(300_000, 9));
            let mut stream = timeout(Duration::from_secs(10), call.stream()).await.expect("there is room");
            stream.read_tokens(1).await;
            streams.push(stream);
        }
        drop(streams);
        stack.released(PATIENCE).await;
    }
}

#[apply(fact)]
async fn a_prompt_of_a_million_tokens_passes_unchanged() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let page = text(1_000);
    let mut call = stack.call(&key, Script::tokens(1_000_000, 5)).with("max_tokens", 5);
    let told = call.body["messages"][0].take();
    let turn =
        |n: usize| json!({"role": if n.is_multiple_of(2) { "user" } else { "assistant" }, "content": page});
    let image = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", "QUJD".repeat(1 << 20))}});
    let mut messages: Vec<Value> = (0..1_300).map(turn).collect();
    messages.extend([json!({"role": "user", "content": [image]}), told]);
    call.body["messages"] = messages.into();
    let (tag, sent) = (call.tag.clone(), call.body["messages"].clone());
    assert!(sent.to_string().len() > 10 << 20);
    let answer = call.send().await;
    assert_eq!((answer.status, answer.cost()), (200, cost_of(1_000_000, 5)), "{answer}");
    assert!(stack.upstream.tagged(&tag)[0].json()["messages"] == sent);
}

#[apply(fact)]
async fn a_body_that_takes_long_to_parse_keeps_no_small_request_waiting() {
    let env = vec![("FAREGATE_WORKERS", "1".to_owned())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let key = stack.key().await;
    // Many short messages take the longest to parse. The model comes last and does not exist.
    let messages = vec![r#"{"role":"user","content":"x"}"#; 1 << 20].join(",");
    let request = Request::post(stack.url("/v1/chat/completions"))
        .header(header::AUTHORIZATION, format!("Bearer {}", key.secret))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::from(format!(r#"{{"messages":[{messages}],"model":"none"}}"#)));
    let (http, began) = (stack.http.fresh(), Instant::now());
    let large = tokio::spawn(async move { (http.send(request.unwrap()).await, began.elapsed()) });
    let mut longest = Duration::ZERO;
    while !large.is_finished() {
        let began = Instant::now();
        assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
        longest = longest.max(began.elapsed());
    }
    let (answer, took) = large.await.unwrap();
    answer.assert_error(404, "model_not_found");
    assert!(longest < took / 2, "a chat takes {longest:?} of {took:?}");
}

#[apply(fact)]
async fn a_bound_that_the_largest_body_cannot_keep_is_refused_at_start() {
    let data = tempfile::TempDir::new().unwrap();
    let env = vec![("FAREGATE_MAX_PROMPTS_MIB", "127".to_owned())];
    let log = Server::refuses(&Settings::all_in_one(data.path(), env)).await;
    assert!(
        log.contains("FAREGATE_MAX_PROMPTS_MIB: 127 MiB is less than twice FAREGATE_MAX_BODY_MIB"),
        "{log}"
    );
}

#[apply(fact)]
async fn a_whole_answer_of_80_mib_arrives_and_is_billed() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let script = Script { padding_mib: 80, ..Script::tokens(12, 40) };
    let answer = stack.call(&key, script).send().await;
    assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 40)), "{answer}");
    assert_eq!(stack.used(&key).await, stack.cost_of_served(&key));
}

#[apply(fact)]
async fn a_whole_answer_that_is_too_large_to_be_given_out_is_billed_by_the_usage_at_its_end() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let script = Script { padding_mib: 300, ..Script::tokens(12, 40) };
    let answer = stack.call(&key, script).send().await;
    assert_eq!(answer.assert_error(502, "upstream_error").header("x-should-retry"), "false");
    assert_eq!(stack.used(&key).await, stack.cost_of_served(&key), "the generated tokens are billed");
    assert_eq!(stack.used(&key).await, cost_of(12, 40));
}

/// Returns options with a budget of 16 MiB for all answers: 8 for one account, and 4 for an answer that is not
/// streamed, which is in memory twice.
fn little_room_for_answers() -> Options {
    Options { env: vec![("FAREGATE_MAX_ANSWERS_MIB", "16".to_owned())], ..Options::default() }
}

#[apply(fact)]
async fn whole_answers_share_a_budget_and_wait_for_each_other() {
    let stack = Stack::with(little_room_for_answers()).await;
    let key = stack.key().await;
    let script = |padding_mib| Script { padding_mib, ..Script::tokens(12, 40) };
    let answer = stack.call(&key, script(5)).send().await;
    assert_eq!(answer.assert_error(502, "upstream_error").header("x-should-retry"), "false");
    assert_eq!(stack.used(&key).await, cost_of(12, 40), "it was generated, and is billed");
    let answers = join_all((0..4).map(|_| stack.call(&key, script(3)).send())).await;
    for answer in answers {
        assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 40)), "{answer}");
    }
}

#[apply(fact)]
async fn an_event_that_finds_no_room_ends_its_stream_and_what_came_before_is_billed() {
    let stack = Stack::with(little_room_for_answers()).await;
    let key = stack.key().await;
    let large =
        |tool_bytes| Script { tool_calls: 1, tool_bytes, ignores_max_tokens: true, ..Script::tokens(12, 5) };
    // The seven tokens are five of text, the name of a tool, and the first half of its arguments.
    let call = stack.call(&key, large(10 << 20)).costing(cost_of(12, 7), cost_of(12, 7));
    let ended = call.stream().await.rest().await;
    ended.assert_error(503, "overloaded");
    assert_eq!((ended.tokens(), stack.used(&key).await), (7, cost_of(12, 7)));
    let next = stack.call(&key, Script { ignores_max_tokens: false, ..large(400_000) });
    next.with("max_tokens", 131_072).stream().await.rest().await.assert_done();
}
