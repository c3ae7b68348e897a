//! Prompts whose upper bound costs too much: accounts take turns to have them counted, only a count finally refuses
//! them, and only reports that agree change the bound.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, ApiKey, Call, LOOK_EVERY, MAX, Options, PATIENCE, Stack, cost_of, usd},
    upstream::{Script, Told, Usage},
};
use tokio::time::sleep;

/// Longer than the gateway waits for a count.
const SLOW: Duration = Duration::from_secs(12);
/// Much shorter than that.
const SOON: Duration = Duration::from_secs(5);

#[apply(fact)]
async fn four_prompts_are_counted_at_once_two_of_an_account_and_those_alone_that_could_be_paid() {
    let stack = Stack::start().await;
    let script = || Script { count_after_ms: 100, ..Script::tokens(12, 9) };
    // Enough for the minimum cost of the prompt, but not for its upper bound.
    let limit = cost_of(12, 9);
    let keys = async |account| {
        let limit: serde_json::Value = serde_json::from_str(&limit.to_string()).unwrap();
        join_all((0..6).map(|_| stack.key_of(account, json!({ "limit": limit })))).await
    };
    let send = async |keys: &[ApiKey]| {
        let calls = keys.iter().map(|key| stack.call(key, script()).with("max_tokens", 9).send());
        let answers = join_all(calls).await;
        assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    };
    send(&keys(&stack.account).await).await;
    assert_eq!((stack.upstream.token_counts(), stack.upstream.most_counts_at_once()), (6, 2));
    let others = ["one", "other"].map(|name| stack.open_account(name, usd("1")));
    send(&[keys(&others[0]).await, keys(&others[1]).await].concat()).await;
    assert_eq!((stack.upstream.token_counts(), stack.upstream.most_counts_at_once()), (18, 4));
    let unable = stack.key_limited(NanoUsd::from_nanos(1)).await;
    stack.call(&unable, script()).with("max_tokens", 9).send().await.assert_error(402, "key_limit_reached");
    assert_eq!(stack.upstream.token_counts(), 18);
}

#[apply(fact)]
async fn slow_counts_of_one_account_delay_no_other_and_are_no_refusal_for_good() {
    let stack = Stack::start().await;
    let slow = Script { count_after_ms: u64::try_from(SLOW.as_millis()).unwrap(), ..Script::tokens(12, 9) };
    let key = stack.key_limited(cost_of(12, 9)).await;
    let limit: serde_json::Value = serde_json::from_str(&cost_of(12, 9).to_string()).unwrap();
    let keys = join_all((0..5).map(|_| stack.key_limited(cost_of(12, 9)))).await;
    let greedy = join_all(keys.iter().map(|key| stack.call(key, slow.clone()).with("max_tokens", 9).send()));
    let other = async {
        while stack.upstream.token_counts() < 2 {
            sleep(LOOK_EVERY).await;
        }
        let account = stack.open_account("other", usd("1"));
        let key = stack.key_of(&account, json!({ "limit": limit })).await;
        let began = Instant::now();
        let answer = stack.call(&key, Script::tokens(12, 9)).with("max_tokens", 9).send().await;
        assert_eq!(answer.status, 200, "{answer}");
        assert!(began.elapsed() < SOON, "it waited {:?} for others", began.elapsed());
    };
    let (answers, ()) = tokio::join!(greedy, other);
    for answer in answers {
        answer.assert_error(503, "overloaded");
    }
    let answer = stack.call(&key, Script::tokens(12, 9)).with("max_tokens", 9).send().await;
    assert_eq!(answer.status, 200, "the places are free again: {answer}");
}

#[apply(fact)]
async fn the_least_that_a_long_text_costs_is_known_without_a_count() {
    let stack = Stack::start().await;
    let key = stack.key_limited(cost_of(500, 1)).await;
    let words = "all sorts of words ".repeat(16_000);
    let call = stack.call(&key, Script::tokens(100, 1)).with("max_tokens", 1);
    for _ in 0..2 {
        let mut call = call.clone();
        let system = json!({"role": "system", "content": words});
        call.body["messages"].as_array_mut().unwrap().insert(0, system);
        call.send().await.assert_error(402, "key_limit_reached");
    }
    assert_eq!(stack.upstream.token_counts(), 0, "no count could make it payable");
}

#[apply(fact)]
async fn odd_reports_of_one_customer_leave_the_bounds_of_others_as_they_are() {
    // This kind cannot count, so only the upper bound decides.
    let stack = Stack::with(Options { kind: "openai", ..Options::default() }).await;
    let key = stack.key().await;
    let told = |prompt| Told::Lie(Usage { prompt, cached: 0, completion: 9 });
    let odd = |prompt| -> Call {
        let script = Script { told: told(prompt), ..Script::tokens(12, 9) };
        stack.call(&key, script).costing(cost_of(prompt, 9), cost_of(prompt, 9))
    };
    let poor = async || {
        let key = stack.key_limited(cost_of(1_000, 9)).await;
        stack.call(&key, Script::tokens(12, 9)).with("max_tokens", 9).send().await
    };
    for _ in 0..2 {
        assert_eq!(odd(9_000).send().await.status, 200);
    }
    assert_eq!(poor().await.status, 200, "two odd reports teach nothing");
    for _ in 0..3 {
        let mut call = odd(60_000);
        let text = call.body["messages"][0]["content"].take();
        let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
        call.body["messages"][0]["content"] = json!([image, {"type": "text", "text": text}]);
        assert_eq!(call.send().await.status, 200);
    }
    assert_eq!(poor().await.status, 200, "images teach nothing");
    for _ in 0..3 {
        assert_eq!(odd(9_000).send().await.status, 200);
    }
    poor().await.assert_error(402, "key_limit_reached");
}

#[apply(fact)]
async fn a_prompt_whose_bound_alone_does_not_fit_the_tokens_per_minute_is_counted() {
    let stack = Stack::start().await;
    let bounds = json!({"tokens_per_minute": 150, "requests_per_minute": 10});
    let key = stack.key_with(bounds).await;
    let call = || stack.call(&key, Script::tokens(100, 1)).with("max_tokens", 1);
    let answer = call().send().await;
    assert_eq!(answer.status, 200, "{answer}");
    assert!(stack.upstream.token_counts() > 0);
    assert_eq!(answer.header("x-ratelimit-remaining-tokens"), "50", "the exact count: {answer}");
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), "9", "a single request: {answer}");
    let refused = call().send().await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limit_exceeded"), "{refused}");
    assert!(refused.text().contains("tokens per minute"), "{refused}");
}

#[apply(fact)]
async fn a_request_that_is_held_twice_counts_once() {
    let stack = Stack::start().await;
    let limit: serde_json::Value = serde_json::from_str(&cost_of(100, 5).to_string()).unwrap();
    let key = stack.key_with(json!({"limit": limit, "requests_per_minute": 10})).await;
    // The count leaves money for only five tokens. The first hold cannot be extended for them, so a second hold is
    // opened.
    let answer = stack.call(&key, Script::tokens(100, 20)).with("max_tokens", 20).send().await;
    assert_eq!(answer.status, 200, "{answer}");
    assert!(stack.upstream.token_counts() > 0);
    assert_eq!(answer.json()["usage"]["completion_tokens"], 5, "what is left pays for: {answer}");
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), "9", "a single request: {answer}");
}

/// Requests the number of tokens in a prompt.
async fn count(stack: &Stack, key: &ApiKey, script: Script) -> Answer {
    let body = json!({"model": "Model Flash", "messages": [{"role": "user", "content": script.message()}]});
    let url = stack.url("/v1/messages/count_tokens");
    stack.http.send_as(&key.secret, Method::POST, &url, Some(body)).await
}

#[apply(fact)]
async fn a_count_that_no_server_can_make_is_the_bound_and_a_busy_server_is_asked_again() {
    let mut stack = Stack::start().await;
    let key = stack.key().await;
    let script = |count_status| Script { count_status, ..Script::tokens(12, 9) };
    let counted = |answer: Answer| {
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()["input_tokens"].as_u64().unwrap()
    };
    assert_eq!(counted(count(&stack, &key, script(0)).await), 12);
    for status in [400, 404, 500, 501, 502] {
        assert!(counted(count(&stack, &key, script(status)).await) > 100, "{status}");
    }
    for status in [429, 503] {
        let answer = count(&stack, &key, script(status)).await;
        assert_eq!(
            (answer.status, &answer.json()["error"]["type"]),
            (529, &json!("overloaded_error")),
            "{answer}"
        );
    }
    stack.upstream.stop();
    assert!(counted(count(&stack, &key, script(0)).await) > 100, "the server is away");
    assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
}

#[apply(fact)]
async fn a_count_is_a_request_of_the_rate_and_names_the_models_of_the_key() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"requests_per_minute": 2})).await;
    let script = || Script::tokens(12, 9);
    for _ in 0..2 {
        assert_eq!(count(&stack, &key, script()).await.status, 200);
    }
    let refused = count(&stack, &key, script()).await;
    let error = refused.json()["error"].take();
    assert_eq!((refused.status, &error["type"]), (429, &json!("rate_limit_error")), "{refused}");
    assert!(!refused.header("retry-after").is_empty(), "{refused}");
    let chat = stack.call(&key, script()).send().await;
    assert_eq!((chat.status, chat.code().as_str()), (429, "rate_limit_exceeded"), "{chat}");
    assert_eq!(stack.upstream.token_counts(), 2, "what a rate refuses is not counted");

    let other = stack.key_with(json!({"models": [MAX]})).await;
    let refused = count(&stack, &other, script()).await;
    let message = refused.json()["error"]["message"].to_string();
    assert_eq!(refused.status, 403, "{refused}");
    assert!(message.contains(MAX), "it names what is allowed: {message}");
    assert_eq!(stack.upstream.token_counts(), 2);
    // A count holds no money and takes no slot.
    let busy = stack.key_with(json!({"max_in_flight": 1})).await;
    for _ in 0..3 {
        assert_eq!(count(&stack, &busy, script()).await.status, 200);
    }
    assert_eq!((stack.used(&key).await, stack.used(&busy).await), (NanoUsd::ZERO, NanoUsd::ZERO));
}

#[apply(fact)]
async fn a_prompt_that_alone_exceeds_the_tokens_per_minute_is_refused_for_good_with_its_size() {
    for (kind, size) in [("vllm", "has 100 tokens"), ("openai", "has about")] {
        let stack = Stack::with(Options { kind, ..Options::default() }).await;
        let key = stack.key_with(json!({"tokens_per_minute": 20})).await;
        let answer = stack.call(&key, Script::tokens(100, 1)).with("max_tokens", 1).send().await;
        answer.assert_error(429, "rate_limit_exceeded");
        assert_eq!(
            (answer.header("x-should-retry"), answer.header("retry-after")),
            ("false", ""),
            "{answer}"
        );
        let text = answer.text();
        assert!(text.contains(size) && text.contains("20 tokens per minute"), "{kind}: {answer}");
    }
}

#[apply(fact)]
async fn a_prompt_that_alone_exceeds_the_tokens_per_minute_is_counted_as_often_as_requests_are_allowed() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"tokens_per_minute": 20, "requests_per_minute": 2})).await;
    let call = || stack.call(&key, Script::tokens(100, 1)).with("max_tokens", 1).send();
    for _ in 0..2 {
        let refused = call().await;
        assert_eq!((refused.status, refused.header("x-should-retry")), (429, "false"), "{refused}");
    }
    let refused = call().await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limit_exceeded"), "{refused}");
    assert!(!refused.header("retry-after").is_empty(), "its requests are used up: {refused}");
    assert_eq!(stack.upstream.token_counts(), 2, "what a rate refuses is not counted");
    stack.released(PATIENCE).await;
    assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
}

#[apply(fact)]
async fn where_no_prompt_can_be_counted_the_estimate_has_to_fit_the_tokens_per_minute() {
    let stack = Stack::with(Options { kind: "openai", ..Options::default() }).await;
    let key = stack.key_with(json!({"tokens_per_minute": 1_500})).await;
    let mut call = stack.call(&key, Script::tokens(500, 1)).with("max_tokens", 1);
    let long = json!({"role": "system", "content": "words ".repeat(500)});
    call.body["messages"].as_array_mut().unwrap().insert(0, long);
    let answer = call.clone().send().await;
    assert_eq!(answer.status, 200, "its bound of more than 3,000 never fits: {answer}");
    assert_eq!(answer.cost(), cost_of(500, 1));
    let remaining: u64 = answer.header("x-ratelimit-remaining-tokens").parse().unwrap();
    assert!((500..900).contains(&remaining), "the estimate counts: {answer}");
}

#[apply(fact)]
async fn a_prompt_is_not_counted_while_its_rate_is_used_up() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"tokens_per_minute": 150})).await;
    let call = || stack.call(&key, Script::tokens(100, 2_000)).with("max_tokens", 2_000);
    assert_eq!(call().send().await.status, 200);
    let counts = stack.upstream.token_counts();
    let refused = call().send().await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limit_exceeded"), "{refused}");
    assert!(!refused.header("retry-after").is_empty(), "it fits later: {refused}");
    assert_eq!(stack.upstream.token_counts(), counts, "not counted");
}
