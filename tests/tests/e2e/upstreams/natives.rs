//! Upstreams that are called in the Responses or the Messages API. The clients use every dialect.

mod faults;
mod leaving;
mod limits;
mod members;
mod passage;
mod record;

use futures_util::future::join_all;
use http::{Method, Request, header};
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, ApiKey, Dialect, Models, Options, PATIENCE, Stack, cost_of},
    upstream::{End, Script},
};

pub(crate) use record::{compared, record};

/// The API in which the scripted upstream is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Native {
    Responses,
    Messages,
}

impl Native {
    pub(crate) const BOTH: [Self; 2] = [Self::Responses, Self::Messages];

    /// Starts a stack whose only upstream speaks this API.
    async fn stack(self) -> Stack {
        self.stack_with("").await
    }

    /// Starts a stack whose only upstream speaks this API and has these additional lines in its entry.
    async fn stack_with(self, lines: &'static str) -> Stack {
        let options = self.options();
        let Models::With(usual) = options.models else { unreachable!("the options have lines") };
        let lines: &'static str = Box::leak(format!("{usual}\n{lines}").into_boxed_str());
        Stack::with(Options { models: Models::With(lines), ..options }).await
    }

    /// Returns the options of a stack whose only upstream speaks this API.
    pub(crate) fn options(self) -> Options {
        let (kind, lines) = match self {
            Self::Responses => ("openai", "speaks = [\"responses\"]\nimage_urls = \"any\""),
            Self::Messages => ("anthropic", "image_urls = \"any\""),
        };
        Options { kind, models: Models::With(lines), ..Options::default() }
    }

    /// Returns the dialect that is the same as this API. Bodies of clients in that dialect pass through unchanged.
    pub(crate) const fn own(self) -> Dialect {
        match self {
            Self::Responses => Dialect::Responses,
            Self::Messages => Dialect::Messages,
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }
}

/// Returns every combination of a client's dialect and an upstream's API.
fn pairs() -> impl Iterator<Item = (Native, Dialect)> {
    Native::BOTH.into_iter().flat_map(|native| Dialect::ALL.map(|dialect| (native, dialect)))
}

/// Returns a user message that contains the script.
fn says(script: &Script) -> Value {
    json!([{"role": "user", "content": script.message()}])
}

/// Sends a body exactly as written.
async fn send_raw(stack: &Stack, key: &ApiKey, path: &str, body: String) -> Answer {
    let request = Request::post(stack.url(path))
        .header(header::AUTHORIZATION, format!("Bearer {}", key.secret))
        .header(header::CONTENT_TYPE, "application/json")
        .header("anthropic-version", "2023-06-01")
        .body(http_body_util::Full::new(body.into()))
        .unwrap();
    stack.http.send(request).await
}

fn function(dialect: Dialect, name: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"q": {"type": "string"}}});
    match dialect {
        Dialect::Chat => json!({"type": "function", "function": {"name": name, "parameters": schema}}),
        Dialect::Responses => {
            json!({"type": "function", "name": name, "parameters": schema, "strict": false})
        }
        Dialect::Messages => json!({"name": name, "input_schema": schema}),
    }
}

#[apply(fact)]
async fn an_answer_costs_the_same_in_every_dialect_at_every_upstream() {
    for native in Native::BOTH {
        let stack = native.stack().await;
        for dialect in Dialect::ALL {
            let key = stack.key().await;
            let script = || Script::tokens(12, 20);
            let answer = stack.call(&key, script()).speaking(dialect).send().await;
            let place = format!("{dialect:?} at {native:?}: {answer}");
            assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 20)), "{place}");
            assert_eq!(answer.json()["model"], "Model Flash", "{place}");
            assert!(answer.text().contains(" the quick brown fox"), "{place}");
            let ended = stack.call(&key, script()).speaking(dialect).stream().await.rest().await;
            assert_eq!((ended.assert_done().cost(), ended.tokens()), (cost_of(12, 20), 20), "{place}");
            assert_eq!(ended.finish_reasons(), ["stop"], "{place}");
            assert_eq!(stack.used(&key).await.nanos(), 2 * cost_of(12, 20).nanos(), "billed before done");
        }
    }
}

#[apply(fact)]
async fn hidden_and_shown_reasoning_cost_what_the_upstream_counts() {
    for (native, dialect) in pairs() {
        let stack = native.stack().await;
        let key = stack.key().await;
        for hidden_reasoning in [true, false] {
            let script = Script { reasoning_tokens: 30, hidden_reasoning, ..Script::tokens(12, 40) };
            let ended = stack.call(&key, script).speaking(dialect).stream().await.rest().await;
            assert_eq!(ended.assert_done().cost(), cost_of(12, 40), "{dialect:?} at {native:?}");
            assert_eq!(ended.text().len(), tests::upstream::text(10).len(), "{dialect:?} at {native:?}");
        }
    }
}

#[apply(fact)]
async fn a_model_calls_tools_side_by_side_and_goes_on_with_their_answers() {
    for (native, dialect) in pairs() {
        let stack = native.stack().await;
        let key = stack.key().await;
        let then = Some(Box::new(Script { says: "It is done.".into(), ..Script::default() }));
        let script = Script { tool_calls: 2, then, ..Script::tokens(12, 3) };
        let call = stack.call(&key, script).with("tools", json!([function(dialect, "lookup")]));
        let first = call.clone().speaking(dialect).send().await;
        assert_eq!(first.status, 200, "{dialect:?} at {native:?}: {first}");
        let question = call.body["messages"].as_array().unwrap().clone();
        let history = answered(dialect, &first.json(), question);
        let second = call.with("messages", history).speaking(dialect).send().await;
        assert_eq!(second.status, 200, "{dialect:?} at {native:?}: {second}");
        assert!(second.text().contains("It is done."), "{dialect:?} at {native:?}: {second}");
    }
}

#[apply(fact)]
async fn an_answer_of_more_calls_than_are_given_out_is_billed_and_is_no_fault_of_its_upstream() {
    const CALLS: u64 = 600;
    for (native, dialect) in pairs() {
        let stack = native.stack().await;
        let key = stack.key().await;
        let script = Script { tool_calls: CALLS, ..Script::tokens(12, 3) };
        let cost = cost_of(12, 3 + 3 * CALLS);
        let call = stack.call(&key, script).with("tools", json!([function(dialect, "lookup")]));
        let answer = call.clone().with("max_tokens", 8192).speaking(dialect).send().await;
        let place = format!("{dialect:?} at {native:?}: {}", answer.status);
        if dialect == native.own() {
            assert_eq!((answer.status, answer.cost()), (200, cost), "its own answer passes: {place}");
        } else {
            assert_eq!((answer.status, answer.header("x-should-retry")), (502, "false"), "{place}");
            assert!(answer.text().contains("too many tool calls"), "{place}");
        }
        assert_eq!(stack.used(&key).await, cost, "{place}");
        // The stream is delivered and billed up to the last call that the gateway accepts.
        let call = call.with("max_tokens", 8192).costing(cost_of(12, 3 + 3 * 511), cost);
        let ended = call.speaking(dialect).stream().await.rest().await;
        assert_eq!(ended.error_code(), dialect.error("overloaded"), "{place}");
        let both = stack.used(&key).await.nanos();
        assert!(both > cost.nanos() && both <= 2 * cost.nanos(), "{place}: {both}");
        let metrics = stack.http.get(&format!("{}/metrics", stack.server().admin())).await;
        assert!(!metrics.text().contains("state=\"set_aside\"} 1"), "{place}");
    }
}

/// Returns the history with two additions: an answer that calls tools, and a result for each of its calls.
fn answered(dialect: Dialect, answer: &Value, mut history: Vec<Value>) -> Vec<Value> {
    match dialect {
        Dialect::Chat => {
            let message = answer["choices"][0]["message"].clone();
            let calls = message["tool_calls"].as_array().unwrap().clone();
            assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls", "{answer}");
            history.push(message);
            for call in calls {
                history.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "found"}));
            }
        }
        Dialect::Responses => {
            let items = answer["output"].as_array().unwrap();
            history.extend(items.iter().cloned());
            for call in items.iter().filter(|item| item["type"] == "function_call") {
                let output =
                    json!({"type": "function_call_output", "call_id": call["call_id"], "output": "found"});
                history.push(output);
            }
        }
        Dialect::Messages => {
            assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
            let blocks = answer["content"].as_array().unwrap();
            history.push(json!({"role": "assistant", "content": blocks}));
            let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
            let results: Vec<_> = calls
                .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "found"}))
                .collect();
            history.push(json!({"role": "user", "content": results}));
        }
    }
    history
}

#[apply(fact)]
async fn hundreds_of_requests_at_once_never_pass_a_cap() {
    for native in Native::BOTH {
        storm(&native.stack().await).await;
    }
}

/// Sends hundreds of requests at once with the same key. Its limit pays for some of them.
pub(crate) async fn storm(stack: &Stack) {
    let limit = cost_of(100, 50_000);
    let key = stack.key_limited(limit).await;
    let asks = (0..400).map(|number| {
        let dialect = Dialect::ALL[number % 3];
        let call = stack.call(&key, Script::tokens(100, 500)).with("max_tokens", 500);
        async move { call.speaking(dialect).send().await }
    });
    let answers = join_all(asks).await;
    let paid = answers.iter().filter(|answer| answer.status == 200).count();
    assert!(paid > 0 && answers.iter().all(|answer| matches!(answer.status, 200 | 402 | 429)), "{paid}");
    stack.released(PATIENCE).await;
    let used = stack.used(&key).await;
    assert!(used <= limit, "{used} of {limit}");
    assert_eq!(used, stack.cost_of_served(&key));
}

#[apply(fact)]
async fn a_limit_that_can_be_paid_in_part_is_lowered_to_that_part() {
    for (native, dialect) in pairs() {
        let stack = native.stack().await;
        let limit = cost_of(100, 6_000);
        let key = stack.key_limited(limit).await;
        let call = stack.call(&key, Script::tokens(100, 50_000)).speaking(dialect);
        let stream = call.stream().await;
        assert_eq!(stream.header("x-max-tokens"), "6000", "{dialect:?} at {native:?}");
        let ended = stream.rest().await;
        assert_eq!(ended.assert_done().finish_reasons(), ["length"], "{dialect:?} at {native:?}");
        assert_eq!(stack.used(&key).await, limit, "{dialect:?} at {native:?}");
        let counted = stack.upstream.token_counts();
        assert_eq!(counted, 1, "the vendor's counter is asked once near a limit");
        assert_eq!(stack.call(&key, Script::tokens(1, 1)).speaking(dialect).send().await.status, 402);
    }
}

#[apply(fact)]
async fn a_client_that_leaves_pays_for_all_that_the_upstream_counts_at_its_end() {
    for (native, dialect) in pairs() {
        let stack = native.stack().await;
        let key = stack.key().await;
        for after in [0, 1, 7] {
            let script =
                Script { reasoning_tokens: 5, hidden_reasoning: true, ..Script::tokens(12, 30).pace(20) };
            let mut stream = stack.call(&key, script).speaking(dialect).stream().await;
            stream.read_tokens(after).await;
            let tag = stream.tag.clone();
            drop(stream);
            let served = stack.upstream.wait_for(&tag, "end", |generation| generation.ended.is_some()).await;
            assert!(served.ended_by(End::Finished), "{dialect:?} at {native:?}: {served:?}");
            stack.released(PATIENCE).await;
        }
        assert_eq!(stack.used(&key).await.nanos(), 3 * cost_of(12, 30).nanos(), "{dialect:?} at {native:?}");
    }
}

#[apply(fact)]
async fn an_upstream_that_is_to_be_stopped_is_and_the_client_pays_for_what_it_got() {
    for native in Native::BOTH {
        let stack = native.stack_with("left_mid_stream = \"stop\"").await;
        let key = stack.key().await;
        let call = stack.call(&key, Script::tokens(12, 100_000).pace(10)).speaking(native.own());
        // The Responses API reports the length of the prompt only at the end of an answer, so it is estimated.
        let least = if native == Native::Messages { cost_of(12, 10) } else { cost_of(1, 10) };
        let mut stream = call.costing(least, cost_of(1_000, 10_000)).stream().await;
        stream.read_tokens(10).await;
        let tag = stream.tag.clone();
        drop(stream);
        stack.upstream.wait_for(&tag, "stop", |generation| generation.ended_by(End::ClientLeft)).await;
        stack.released(PATIENCE).await;
        assert!(stack.used(&key).await >= least, "{native:?}");
    }
}

#[apply(fact)]
async fn a_second_turn_reads_the_vendors_cache_whatever_the_dialect() {
    for (native, dialect) in pairs() {
        let stack = native.stack().await;
        let key = stack.key().await;
        let long = "You know everything about keys. ".repeat(40);
        let mut history = vec![json!({"role": "user", "content": long})];
        let mut cached = Vec::new();
        for _ in 0..2 {
            let script = Script { caches: true, prompt_tokens: None, ..Script::tokens(0, 5) };
            let mut call = stack.call(&key, script);
            history.extend(call.body["messages"].as_array().unwrap().clone());
            call = call.with("messages", history.clone());
            history.push(json!({"role": "assistant", "content": "I see."}));
            if (native, dialect) == (Native::Messages, Dialect::Messages) {
                // Clients in this dialect themselves mark what to cache.
                let system = json!([{"type": "text", "text": long, "cache_control": {"type": "ephemeral"}}]);
                call = call.with("system", system);
            }
            let answer = call.speaking(dialect).send().await;
            assert_eq!(answer.status, 200, "{dialect:?} at {native:?}: {answer}");
            let usage = &answer.json()["usage"];
            let read = match dialect {
                Dialect::Chat => &usage["prompt_tokens_details"]["cached_tokens"],
                Dialect::Responses => &usage["input_tokens_details"]["cached_tokens"],
                Dialect::Messages => &usage["cache_read_input_tokens"],
            };
            cached.push(read.as_u64().unwrap());
        }
        assert!(cached[0] == 0 && cached[1] > 200, "{dialect:?} at {native:?}: {cached:?}");
    }
}

#[apply(fact)]
async fn a_document_is_counted_by_the_vendor_before_it_is_held() {
    let stack = Native::Messages.stack().await;
    let key = stack.key().await;
    let script = Script::tokens(5_000, 5);
    let document = json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}});
    let content = json!([document, {"type": "text", "text": script.message()}]);
    let messages = json!([{"role": "user", "content": content}]);
    let call = stack
        .call(&key, script)
        .with("messages", messages)
        .with("max_tokens", 50)
        .speaking(Dialect::Messages);
    let answer = call.clone().send().await;
    assert_eq!((answer.status, answer.cost()), (200, cost_of(5_000, 5)), "{answer}");
    assert_eq!(stack.upstream.token_counts(), 1);
    let chat = Stack::start().await;
    let key = chat.key().await;
    let answer = send_raw(&chat, &key, "/v1/messages", call.body.to_string()).await;
    assert_eq!(answer.status, 400, "{answer}");
    assert!(answer.text().contains("document"), "{answer}");
}

#[apply(fact)]
async fn thinking_that_leaves_no_room_for_an_answer_is_refused_unbilled() {
    let stack = Native::Messages.stack().await;
    let key = stack.key_limited(cost_of(100, 3_000)).await;
    let think = |budget: u64| {
        let call = stack.call(&key, Script::tokens(100, 10)).speaking(Dialect::Messages);
        call.with("thinking", json!({"type": "enabled", "budget_tokens": budget}))
            .with("max_tokens", 8_000)
            .send()
    };
    let refused = think(4_000).await;
    assert_eq!(refused.status, 402, "{refused}");
    assert!(refused.text().contains("4001 output tokens"), "{refused}");
    assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
    let paid = think(2_000).await;
    assert_eq!((paid.status, paid.header("x-max-tokens")), (200, "3000"), "{paid}");
}

#[apply(fact)]
async fn a_limit_below_the_vendors_least_is_raised_where_it_is_written_and_refused_where_it_cannot_be_paid() {
    let stack = Native::Responses.stack().await;
    let key = stack.key().await;
    let answer = stack.call(&key, Script::tokens(12, 500)).with("max_tokens", 5).send().await;
    assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 16)), "{answer}");
    let poor = stack.key_limited(cost_of(100, 15)).await;
    let refused = stack.call(&poor, Script::tokens(100, 500)).send().await;
    refused.assert_error(402, "key_limit_reached");
    assert_eq!(stack.used(&poor).await, NanoUsd::ZERO);
}

#[apply(fact)]
async fn tokens_of_a_prompt_are_counted_by_the_vendor() {
    let stack = Native::Messages.stack().await;
    let key = stack.key().await;
    let body = json!({"model": "Model Flash", "messages": says(&Script { prompt_tokens: Some(321), ..Script::default() })});
    let url = stack.url("/v1/messages/count_tokens");
    let counted = stack.http.send_as(&key.secret, Method::POST, &url, Some(body)).await;
    assert_eq!((counted.status, counted.json()), (200, json!({"input_tokens": 321})), "{counted}");
}
