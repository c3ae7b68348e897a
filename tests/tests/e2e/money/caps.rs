//! Spending never exceeds a limit, and can reach it.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, ApiKey, Call, LOOK_EVERY, Options, Stack, cost_of, nanos},
    upstream::{End, Script, Style, Told, Usage},
};
use tokio::time::sleep;

/// Number of requests sent at once.
const MANY: u64 = 400;
/// Number of these requests that the limit pays for.
const PAID: i64 = 25;
/// Number of prompt tokens in each request.
const PROMPT: u64 = 30;
const COMPLETION: u64 = 40;

/// Returns the cost of all requests that the limit pays for.
pub(crate) fn cap() -> NanoUsd {
    times(cost_of(PROMPT, COMPLETION), PAID)
}

fn times(amount: NanoUsd, count: i64) -> NanoUsd {
    NanoUsd::from_nanos(amount.nanos() * count)
}

#[apply(fact)]
async fn a_limit_holds_against_400_requests_at_once_and_can_be_spent_to_its_end() {
    let stack = Stack::start().await;
    let limit = cap();
    let keys = [stack.key_limited(limit).await];
    storm(&stack, &keys, limit, "key_limit_reached").await;
    spend_the_rest(&stack, &keys, limit, "key_limit_reached").await;
}

#[apply(fact)]
async fn credit_holds_against_400_requests_at_once_and_can_be_spent_to_its_end() {
    let stack = Stack::start().await;
    let credit = cap();
    let account = stack.open_account("tight", credit);
    let keys = [stack.key_of(&account, json!({})).await];
    storm(&stack, &keys, credit, "insufficient_credits").await;
    spend_the_rest(&stack, &keys, credit, "insufficient_credits").await;
}

/// Sends many requests at once, alternately whole and streamed, with the keys in turn. Checks the keys' usage
/// meanwhile.
pub(crate) async fn storm(stack: &Stack, keys: &[ApiKey], cap: NanoUsd, empty: &str) {
    let script = Script { head_after_ms: 30, ..Script::tokens(PROMPT, COMPLETION).pace(2) };
    let requests = (0..MANY).zip(keys.iter().cycle()).map(|(index, key)| {
        let call = stack.call(key, script.clone()).with("max_tokens", COMPLETION);
        async move {
            if index % 2 == 0 {
                let answer = call.send().await;
                if answer.status == 200 { Ok(answer.cost()) } else { Err(answer) }
            } else {
                let stream = call.try_stream().await?;
                Ok(stream.rest().await.assert_done().cost())
            }
        }
    });
    let watch = async {
        loop {
            let used = used_by(stack, keys).await;
            assert!(used <= cap, "{used} of {cap} are used");
            sleep(LOOK_EVERY).await;
        }
    };
    let outcomes: Vec<Result<NanoUsd, Answer>> = tokio::select! {
        outcomes = join_all(requests) => outcomes,
        never = watch => never,
    };
    let mut billed = 0;
    let mut answered = 0;
    for outcome in outcomes {
        match outcome {
            Ok(cost) => {
                billed += cost.nanos();
                answered += 1;
            }
            Err(refusal) if refusal.status == 402 => {
                refusal.assert_error(402, empty);
            }
            Err(refusal) => {
                refusal.assert_error(429, "spend_reserved");
            }
        }
    }
    assert!((2..=2 * PAID).contains(&answered), "{answered} requests were answered");
    let used = used_by(stack, keys).await;
    assert_eq!(used.nanos(), billed, "the amount billed is the cost reported to the clients");
}

/// Sends requests one after the other until what is left does not even pay for the cheapest one.
pub(crate) async fn spend_the_rest(stack: &Stack, keys: &[ApiKey], cap: NanoUsd, empty: &str) {
    for (prompt, completion) in [(PROMPT, COMPLETION), (1, 1)] {
        let refusal = loop {
            let call =
                stack.call(&keys[0], Script::tokens(prompt, completion)).with("max_tokens", completion);
            let answer = call.send().await;
            if answer.status != 200 {
                break answer;
            }
        };
        refusal.assert_error(402, empty);
    }
    let used = used_by(stack, keys).await;
    let rest = cap.nanos() - used.nanos();
    assert!((0..cost_of(1, 1).nanos()).contains(&rest), "{rest} n$ of {cap} $ cannot be spent");
}

/// Returns the total usage of these keys.
async fn used_by(stack: &Stack, keys: &[ApiKey]) -> NanoUsd {
    let used = join_all(keys.iter().map(|key| stack.used(key))).await;
    NanoUsd::from_nanos(used.into_iter().map(NanoUsd::nanos).sum())
}

#[apply(fact)]
async fn a_whole_request_is_lowered_to_what_can_be_paid_and_a_header_reports_it() {
    let stack = Stack::start().await;
    let key = stack.key_limited(cost_of(400, 100)).await;
    let call = stack.call(&key, Script::tokens(100, 5_000)).with("max_tokens", 4_000);
    let tag = call.tag.clone();
    let answer = call.send().await;
    assert_eq!(answer.status, 200, "{answer}");
    let lowered: u64 = answer.header("x-max-tokens").parse().unwrap_or_else(|_| panic!("{answer}"));
    assert!((1..4_000).contains(&lowered), "{answer}");
    let sent = stack.upstream.tagged(&tag).pop().unwrap().json();
    assert_eq!(sent["max_tokens"], lowered);
    let body = answer.json();
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    assert_eq!(body["usage"]["completion_tokens"], lowered);
    assert!(stack.used(&key).await <= cost_of(400, 100));
}

#[apply(fact)]
async fn a_stream_goes_on_to_the_last_token_that_can_be_paid() {
    let stack = Stack::start().await;
    let limit = cost_of(100, 3_000);
    let key = stack.key_limited(limit).await;
    let ended = stack.call(&key, Script::tokens(100, 50_000)).stream().await.rest().await;
    ended.assert_done();
    assert_eq!(ended.finish_reasons(), ["length"]);
    let tokens = ended.usage().unwrap()["completion_tokens"].as_u64().unwrap();
    assert_eq!(tokens, 3_000, "the prompt's exact count is known by then, so the whole limit is spent");
    assert_eq!(stack.used(&key).await, limit);
    stack.call(&key, Script::tokens(1, 1)).send().await.assert_error(402, "key_limit_reached");
}

#[apply(fact)]
async fn a_stream_without_limits_draws_as_many_grants_as_it_needs() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let ended = stack.call(&key, Script::tokens(10, 20_000)).stream().await.rest().await;
    assert_eq!((ended.assert_done().finish_reasons(), ended.tokens()), (vec!["stop"], 20_000));
    assert_eq!(ended.cost(), cost_of(10, 20_000));
}

#[apply(fact)]
async fn what_others_hold_is_worth_waiting_for() {
    let stack = Stack::start().await;
    let key = stack.key_limited(cost_of(600, 1_000)).await;
    let slow = Script { head_after_ms: 1_500, ..Script::tokens(100, 10) };
    let first = stack.call(&key, slow).with("max_tokens", 100_000);
    let second = || stack.call(&key, Script::tokens(100, 10)).with("max_tokens", 1_000);
    let waiting = async {
        sleep(Duration::from_millis(500)).await;
        second().send().await.assert_error(429, "spend_reserved");
    };
    let (answer, ()) = tokio::join!(first.send(), waiting);
    assert_eq!(answer.status, 200, "{answer}");
    let answer = second().send().await;
    assert_eq!(answer.status, 200, "money that was held and not spent is free again: {answer}");
}

#[apply(fact)]
async fn a_prompt_that_can_never_be_paid_is_refused_for_good_and_costs_nothing() {
    let stack = Stack::start().await;
    let key = stack.key_limited(cost_of(99, 1)).await;
    for _ in 0..3 {
        let answer = stack.call(&key, Script::tokens(100, 1)).with("max_tokens", 1).send().await;
        answer.assert_error(402, "key_limit_reached");
    }
    assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
    assert!(stack.upstream.generations().is_empty(), "the upstream was not asked to generate");
    let answer = stack.call(&key, Script::tokens(99, 1)).with("max_tokens", 1).send().await;
    assert_eq!(answer.status, 200, "an exact count shows that this one fits to the last nano-USD: {answer}");
    assert!(stack.upstream.token_counts() > 0);
}

#[apply(fact)]
async fn an_upstream_that_ignores_its_limit_is_billed_up_to_what_is_left() {
    let stack = Stack::start().await;
    let limit = cost_of(600, 100);
    let rich = stack.key().await;
    let poor = stack.key_limited(limit).await;
    let lie = Usage { prompt: 100, cached: 0, completion: 10_000 };
    let script = Script { told: Told::Lie(lie), ..Script::tokens(100, 10) };
    let call = |key: &ApiKey| -> Call { stack.call(key, script.clone()).with("max_tokens", 20) };

    let paid = call(&rich).send().await;
    assert_eq!(paid.cost(), cost_of(100, 10_000), "{paid}");
    let capped = call(&poor).send().await;
    assert_eq!(capped.cost(), limit, "{capped}");
    assert_eq!(stack.show(&poor).await["limit_remaining"], 0);
    call(&poor).send().await.assert_error(402, "key_limit_reached");
}

#[apply(fact)]
async fn more_cached_tokens_than_prompt_tokens_are_not_believed() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let lie = Usage { prompt: 1_000, cached: 9_000, completion: 10 };
    let script = Script { told: Told::Lie(lie), ..Script::tokens(1_000, 10) };
    let usage = Usage { prompt: 1_000, cached: 1_000, completion: 10 };
    let expected = tests::harness::cost(tests::harness::FLASH, usage);
    let whole = stack.call(&key, script.clone()).send().await;
    assert_eq!(whole.cost(), expected, "{whole}");
    assert_eq!(whole.json()["usage"]["prompt_tokens_details"]["cached_tokens"], 1_000, "{whole}");
    let ended = stack.call(&key, script).stream().await.rest().await;
    assert_eq!(ended.assert_done().cost(), expected);
}

#[apply(fact)]
async fn usage_beyond_the_catalogues_bounds_is_billed_as_reported() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    for reported in [
        Usage { prompt: 1_500_000, cached: 0, completion: 1 },
        Usage { prompt: 12, cached: 0, completion: 131_073 },
    ] {
        let script = Script { told: Told::Lie(reported), ..Script::tokens(12, 1) };
        let call = || stack.call(&key, script.clone()).with("max_tokens", 1);
        let cost = cost_of(reported.prompt, reported.completion);
        assert_eq!(call().costing(cost, cost).send().await.cost(), cost);
        let ended = call().costing(cost, cost).stream().await.rest().await;
        assert_eq!(ended.assert_done().cost(), cost, "{ended:?}");
    }
}

#[apply(fact)]
async fn a_limit_changed_under_way_counts_from_the_next_request() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    assert_eq!(stack.call(&key, Script::tokens(1_000, 10)).send().await.status, 200);
    let patch = |limit: Value| {
        let (stack, key) = (&stack, &key);
        async move {
            let body = json!({ "limit": limit });
            stack.manage(http::Method::PATCH, &format!("/{}", key.id), Some(body)).await.json()
        }
    };
    let lowered = patch(json!(0.000_001)).await;
    assert_eq!(nanos(&lowered["limit_remaining"]).nanos(), 1_000 - cost_of(1_000, 10).nanos());
    stack.call(&key, Script::default()).send().await.assert_error(402, "key_limit_reached");
    patch(Value::Null).await;
    assert_eq!(stack.call(&key, Script::default()).send().await.status, 200);
}

#[apply(fact)]
async fn grants_count_the_tokens_of_all_choices_together() {
    for kind in ["vllm", "sglang", "llama_cpp"] {
        let stack = Stack::with(Options { kind, ..Options::default() }).await;
        let limit = cost_of(100, 3_000);
        let key = stack.key_limited(limit).await;
        let script = Script { style: Style::of(kind), ..Script::tokens(100, 50_000) };
        let ended = stack.call(&key, script).with("n", 8).stream().await.rest().await;
        let reasons = ended.assert_done().finish_reasons();
        assert_eq!(reasons, ["length"; 8], "{kind}: each choice has its finish reason");
        let tokens = ended.usage().unwrap()["completion_tokens"].as_u64().unwrap();
        assert!((2_900..=3_000).contains(&tokens), "{kind}: {tokens} of 3000 tokens that can be paid");
        assert!(ended.tokens() as u64 <= tokens, "{kind}: {ended:?}");
        assert!(stack.used(&key).await <= limit);
    }
}

#[apply(fact)]
async fn a_stream_that_claims_more_than_it_was_granted_never_passes_the_limit() {
    let stack = Stack::start().await;
    let limit = cost_of(600, 100);
    let key = stack.key_limited(limit).await;
    let lie = Usage { prompt: 100, cached: 0, completion: 10_000 };
    let script = Script { told: Told::Lie(lie), ..Script::tokens(100, 10) };
    let ended = stack.call(&key, script).costing(NanoUsd::ZERO, limit).stream().await.rest().await;
    assert_eq!(ended.assert_done().finish_reasons(), ["length"]);
    let used = stack.used(&key).await;
    assert!(used <= limit, "{used} of {limit}");
}

#[apply(fact)]
async fn a_prompt_that_no_count_could_make_payable_is_not_counted() {
    let stack = Stack::start().await;
    let key = stack.key_limited(cost_of(500, 1)).await;
    let mut call = stack.call(&key, Script::tokens(100, 1)).with("max_tokens", 1);
    let blanks = " ".repeat(1 << 20);
    call.body["messages"]
        .as_array_mut()
        .unwrap()
        .insert(0, serde_json::json!({"role": "system", "content": blanks}));
    for _ in 0..5 {
        call.clone().send().await.assert_error(402, "key_limit_reached");
    }
    assert_eq!(stack.upstream.token_counts(), 0, "the work of nobody who could pay");
    assert_eq!(stack.balance(&stack.account).held, NanoUsd::ZERO);
}

#[apply(fact)]
async fn what_runs_on_after_a_cut_is_shortfall_and_the_cost_is_the_price_of_the_usage_that_is_told() {
    let stack = Stack::start().await;
    // A third of a token's price is left after the last token is paid.
    let paid = cost_of(100, 3_000);
    let key = stack.key_limited(paid.checked_add(NanoUsd::from_nanos(130)).unwrap()).await;
    let script = Script { own_pace: true, ..Script::tokens(100, 50_000) };
    let ended = stack.call(&key, script).stream().await.rest().await;
    assert_eq!(ended.assert_done().finish_reasons(), ["length"]);
    assert_eq!((&ended.usage().unwrap()["completion_tokens"], ended.cost()), (&json!(3_000), paid));
    assert_eq!(stack.used(&key).await, paid);
    let entry = &stack.journal(&key.account)[0];
    let counted = entry["completion_tokens"].as_u64().unwrap();
    assert!(counted > 3_000, "what ran on is on record: {entry}");
    assert_eq!(nanos(&entry["shortfall"]).nanos(), cost_of(100, counted).nanos() - paid.nanos(), "{entry}");
}

#[apply(fact)]
async fn a_request_with_a_bias_is_held_whole_since_its_tokens_may_never_show() {
    for kind in ["vllm", "llama_cpp"] {
        let stack = Stack::with(Options { kind, ..Options::default() }).await;
        let limit = cost_of(1_000, 1_200);
        let key = stack.key_limited(limit).await;
        let style = Style::of(kind);
        let script = Script { withheld_after: Some(3), style, ..Script::tokens(100, 6_000) };
        let call = stack.call(&key, script).with("logit_bias", json!({"5": 100}));
        let ended = call.stream().await.rest().await;
        assert_eq!(ended.assert_done().finish_reasons(), ["length"], "{kind}");
        let served = stack.cost_of_served(&key);
        assert!(served <= limit, "{kind}: {served} is generated of {limit}");
        assert_eq!(stack.used(&key).await, served, "{kind}: all of it is billed");
    }
}

#[apply(fact)]
async fn silence_of_a_stream_is_held_at_the_pace_seen_and_stops_an_upstream_where_it_cannot_be() {
    let stack = Stack::start().await;
    let script = |tokens| {
        let style = Style::vllm();
        Script { withheld_after: Some(300), style, ..Script::tokens(100, tokens) }.pace(2)
    };
    let poor = stack.key_limited(cost_of(1_000, 1_600)).await;
    let call = stack.call(&poor, script(60_000)).costing(cost_of(100, 300), cost_of(100, 300));
    let tag = call.tag.clone();
    let ended = call.stream().await.rest().await;
    assert_eq!((ended.assert_done().finish_reasons(), ended.cost()), (vec!["length"], cost_of(100, 300)));
    let served = stack.upstream.wait_for(&tag, "stop", |generation| generation.ended.is_some()).await;
    let generated = served.served.completion;
    // In addition to this prompt, the key can pay for 1,825 tokens. The pace is an average that is checked four times
    // per second.
    assert!(served.ended_by(End::ClientLeft) && (1_000..3_500).contains(&generated), "{generated}");
    assert_eq!(stack.used(&poor).await, cost_of(100, 300), "silence is never billed");

    let rich = stack.key().await;
    let ended = stack.call(&rich, script(2_500)).stream().await.rest().await;
    assert_eq!((ended.assert_done().finish_reasons(), ended.cost()), (vec!["stop"], cost_of(100, 2_500)));
}
