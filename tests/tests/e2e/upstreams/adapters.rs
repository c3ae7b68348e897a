//! Clients see no difference between kinds of upstreams, although each kind has its own dialect.

use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    harness::{Dialect, Models, Options, PATIENCE, Stack, cost_of},
    upstream::{End, Fault, Script, Shape, Style, TooLong, Upstream},
};

async fn stack(kind: &'static str) -> Stack {
    Stack::with(Options { kind, ..Options::default() }).await
}

#[apply(fact)]
async fn a_call_whose_name_is_repeated_with_every_piece_reaches_the_client_once() {
    let stack = stack("openai").await;
    let key = stack.key().await;
    let style = Style { repeats_calls: true, ..Style::default() };
    let script = Script { tool_calls: 2, style, ..Script::tokens(12, 1) };
    let ended = stack.call(&key, script).stream().await.rest().await;
    let pieces: Vec<&Value> =
        ended.assert_done().deltas(0).filter_map(|delta| delta["tool_calls"].get(0)).collect();
    let said =
        |name: &str| pieces.iter().filter_map(|piece| piece["function"][name].as_str()).collect::<Vec<_>>();
    assert_eq!(said("name"), ["lookup", "lookup"], "one each");
    assert_eq!(said("arguments").concat(), r#"{"q":"x"}{"q":"x"}"#);
    assert_eq!(pieces.iter().filter(|piece| piece.get("id").is_some()).count(), 2);
}

#[apply(fact)]
async fn a_stream_of_llama_cpp_that_is_left_is_billed_exactly() {
    let stack = stack("llama_cpp").await;
    let key = stack.key().await;
    let script = Script { cached_tokens: 4, style: Style::llama_cpp(), ..Script::tokens(12, 9) };
    let mut stream = stack.call(&key, script.fault(Fault::Stall { after: 3 })).stream().await;
    stream.read_tokens(3).await;
    let tag = stream.tag.clone();
    drop(stream);
    let served =
        stack.upstream.wait_for(&tag, "stop", |generation| generation.ended_by(End::ClientLeft)).await;
    assert_eq!(served.json()["timings_per_token"], true);
    stack.released(PATIENCE).await;
    let exactly = tests::harness::cost("Model Flash", served.served);
    assert_eq!((served.served.completion, stack.used(&key).await), (3, exactly));
}

#[apply(fact)]
async fn each_kind_counts_where_it_can() {
    for (kind, counts) in [("vllm", 1), ("sglang", 1), ("llama_cpp", 1), ("ollama", 0), ("openai", 0)] {
        let stack = stack(kind).await;
        // The key can pay for the prompt's exact count, but not for its upper bound.
        let key = stack.key_limited(cost_of(12, 9)).await;
        let script = Script { style: Style::of(kind), ..Script::tokens(12, 9) };
        let answer = stack.call(&key, script).with("max_tokens", 9).send().await;
        assert_eq!(stack.upstream.token_counts(), counts, "{kind}: {answer}");
        if counts == 0 {
            answer.assert_error(402, "key_limit_reached");
        } else {
            assert_eq!((answer.status, stack.used(&key).await), (200, cost_of(12, 9)), "{kind}: {answer}");
        }
    }
}

#[apply(fact)]
async fn who_names_no_limit_gets_what_there_is_room_for() {
    let stack = Stack::start().await;
    let script = |prompt| Script { context: Some(100), ..Script::tokens(prompt, 1_000) };
    let key = stack.key().await;
    let answer = stack.call(&key, script(60)).send().await;
    assert_eq!(
        (answer.status, &answer.json()["choices"][0]["finish_reason"]),
        (200, &json!("length")),
        "{answer}"
    );
    assert_eq!(answer.cost(), cost_of(60, 40));
    let ended = stack.call(&key, script(60)).stream().await.rest().await;
    assert_eq!(ended.assert_done().cost(), cost_of(60, 40));
    for refused in [stack.call(&key, script(100)), stack.call(&key, script(60)).with("max_tokens", 41)] {
        let answer = refused.send().await;
        assert_eq!(answer.assert_error(400, "context_length_exceeded").json()["error"]["param"], "messages");
    }
}

/// Returns a script for a server with a window of 4,000 tokens, which the request would fill.
fn in_window(prompt: u64, too_long: TooLong) -> Script {
    Script { context: Some(4_000), too_long, ..Script::tokens(prompt, 10_000) }
}

#[apply(fact)]
async fn who_names_no_limit_is_answered_whatever_the_words_in_which_a_server_refuses_the_catalogues() {
    let stack = Stack::start().await;
    let rich = stack.key().await;
    // The second key cannot pay for the catalogue's limit, so it is limited to what it can pay.
    let poor = stack.key_limited(cost_of(1_000, 50_000)).await;
    for (words, room) in [(TooLong::Vllm, 3_000), (TooLong::Sglang, 2_999), (TooLong::Mute, 3_000)] {
        let answer = stack.call(&rich, in_window(1_000, words)).send().await;
        assert_eq!((answer.status, answer.cost()), (200, cost_of(1_000, room)), "{words:?}: {answer}");
        let answer = stack.call(&poor, in_window(1_000, words)).send().await;
        if words == TooLong::Mute {
            // Nothing shows that the server's own limit is lower than what is held.
            answer.assert_error(400, "context_length_exceeded");
        } else {
            assert_eq!((answer.status, answer.cost()), (200, cost_of(1_000, room)), "{words:?}: {answer}");
        }
        let ended = stack.call(&rich, in_window(1_000, words)).stream().await.rest().await;
        assert_eq!(ended.assert_done().cost(), cost_of(1_000, room), "{words:?}");
        let longer = stack.call(&rich, in_window(4_000, words)).send().await;
        longer.assert_error(400, "context_length_exceeded");
    }
}

#[apply(fact)]
async fn a_limit_beyond_the_servers_window_is_lowered_to_what_fits_and_the_client_is_told() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    for words in [TooLong::Vllm, TooLong::Sglang] {
        // The limit exceeds the window by itself, or together with the prompt.
        for limit in [32_000, 3_500] {
            let answer = stack.call(&key, in_window(1_000, words)).with("max_tokens", limit).send().await;
            assert_eq!(
                (answer.status, answer.header("x-max-tokens"), answer.cost()),
                (200, "2999", cost_of(1_000, 2_999)),
                "{words:?}: {answer}"
            );
            assert_eq!(answer.json()["choices"][0]["finish_reason"], "length");
        }
        let agent = stack.call(&key, in_window(1_000, words)).speaking(Dialect::Messages);
        let answer = agent.with("max_tokens", 32_000).send().await;
        assert_eq!((answer.status, &answer.json()["stop_reason"]), (200, &json!("max_tokens")), "{answer}");
        // An agent whose prompt fills the window gets an error rather than a few tokens.
        let full = stack.call(&key, in_window(3_900, words)).with("max_tokens", 3_900).send().await;
        full.assert_error(400, "context_length_exceeded");
    }
    let mute = stack.call(&key, in_window(1_000, TooLong::Mute)).with("max_tokens", 3_500).send().await;
    mute.assert_error(400, "context_length_exceeded");
}

#[apply(fact)]
async fn a_limit_is_lowered_to_what_fits_beside_the_prompts_bound_where_no_server_counts() {
    let stack = stack("openai").await;
    let key = stack.key().await;
    let answer = stack.call(&key, in_window(12, TooLong::Vllm)).with("max_tokens", 32_000).send().await;
    let lowered: u64 = answer.header("x-max-tokens").parse().unwrap_or_else(|_| panic!("{answer}"));
    assert!((3_000..3_988).contains(&lowered), "{lowered}");
    assert_eq!((answer.status, answer.cost()), (200, cost_of(12, lowered)));
}

#[apply(fact)]
async fn a_prompt_that_is_found_too_long_only_once_the_stream_has_begun_is_called_so() {
    let stack = stack("openai").await;
    let key = stack.key().await;
    let script = Script::tokens(12, 9).fault(Fault::ErrorEvent { after: 0, shape: Shape::TooLong });
    let ended = stack.call(&key, script).stream().await.rest().await;
    ended.assert_error(400, "context_length_exceeded");
    stack.released(PATIENCE).await;
    assert_eq!(stack.used(&key).await, NanoUsd::ZERO);

    let stack = self::stack("vllm").await;
    let key = stack.key().await;
    let script = Script::tokens(12, 9).fault(Fault::ErrorEvent { after: 4, shape: Shape::TooLong });
    let ended = stack.call(&key, script).stream().await.rest().await;
    ended.assert_error(400, "context_length_exceeded");
    stack.released(PATIENCE).await;
    assert!(stack.used(&key).await > NanoUsd::ZERO, "what it delivered is billed");
}

/// A request that llama.cpp's server refuses: a description, the messages before the script's, the script, and the
/// location of the fault.
type Refused = (&'static str, Vec<Value>, Script, &'static str);

fn refused_by_llama_cpp() -> [Refused; 3] {
    let script = || Script { style: Style::llama_cpp(), takes_no_images: true, ..Script::tokens(12, 9) };
    let call =
        json!({"id": "c", "type": "function", "function": {"name": "lookup", "arguments": r#"{"q": "ca"#}});
    let cut = vec![
        json!({"role": "user", "content": "a"}),
        json!({"role": "assistant", "content": "", "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "c", "content": "x"}),
    ];
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let raises = script().fault(Fault::Error { status: 500, shape: Shape::Template });
    [
        ("a call that was cut", cut, script(), "messages[1].tool_calls[0].function.arguments"),
        (
            "an image",
            vec![json!({"role": "user", "content": [image]})],
            script(),
            "messages[0].content[0].image_url.url",
        ),
        ("a template that raises", Vec::new(), raises, "messages"),
    ]
}

#[apply(fact)]
async fn a_request_that_llama_cpp_fails_at_is_refused_with_its_place_and_counts_against_no_server() {
    let second = Upstream::start();
    let models = Models::Also(second.url());
    let stack = Stack::with(Options { kind: "llama_cpp", models, ..Options::default() }).await;
    let key = stack.key().await;
    for (what, before, script, place) in refused_by_llama_cpp() {
        for streamed in [false, true, false, true] {
            let mut call = stack.call(&key, script.clone()).with("stream", streamed);
            call.body["messages"].as_array_mut().unwrap().splice(0..0, before.clone());
            let tag = call.tag.clone();
            let answer = call.send().await;
            assert_eq!(answer.status, 400, "{what}: {answer}");
            answer.assert_error(400, "invalid_value").assert_param(Some(place));
            assert!(!answer.text().contains("Exception"), "a sentence of ours: {answer}");
            let asked = stack.upstream.tagged(&tag).len() + second.tagged(&tag).len();
            assert_eq!(asked, 1, "{what}: no other server is asked");
        }
    }
    assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
    let metrics = stack.http.get(&format!("{}/metrics", stack.server().admin())).await;
    let aside = metrics.text().lines().find(|line| line.starts_with("gateway_upstreams_set_aside_total "));
    assert_eq!(aside, Some("gateway_upstreams_set_aside_total 0"));
}

#[apply(fact)]
async fn a_chat_with_system_messages_in_any_order_is_answered_by_strict_templates() {
    let stack = stack("llama_cpp").await;
    let key = stack.key().await;
    let script = Script { style: Style::llama_cpp(), ..Script::tokens(12, 9) };
    let mut call = stack.call(&key, script);
    let system = |text: &str| json!({"role": "system", "content": text});
    let before = [system("One."), json!({"role": "user", "content": "Hi"}), system("Two.")];
    call.body["messages"].as_array_mut().unwrap().splice(0..0, before);
    let tag = call.tag.clone();
    let answer = call.send().await;
    assert_eq!(answer.status, 200, "{answer}");
    let sent = stack.upstream.tagged(&tag)[0].json()["messages"].take();
    let user = json!({"role": "user", "content": "Hi\n\nTwo."});
    assert_eq!((&sent[0], &sent[1], sent.as_array().unwrap().len()), (&system("One."), &user, 3), "{sent}");
}

#[apply(fact)]
async fn a_prompt_that_is_too_long_is_told_in_the_numbers_of_the_server() {
    let stack = stack("llama_cpp").await;
    let key = stack.key().await;
    let fault = Fault::Error { status: 400, shape: Shape::TooLong };
    for dialect in Dialect::ALL {
        let answer = stack.call(&key, Script::tokens(12, 9).fault(fault)).speaking(dialect).send().await;
        let message = answer.json()["error"]["message"].to_string();
        assert_eq!(answer.status, 400, "{dialect:?}: {answer}");
        assert!(message.contains("5000 tokens") && message.contains("4096"), "{dialect:?}: {message}");
        if dialect == Dialect::Messages {
            assert_eq!(message, "\"prompt is too long: 5000 tokens > 4096 maximum\"");
        } else {
            let place = if dialect == Dialect::Chat { "messages" } else { "input" };
            answer.assert_error(400, "context_length_exceeded").assert_param(Some(place));
        }
    }
}

#[apply(fact)]
async fn errors_that_are_bare_texts_are_understood_too() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    for (status, shape, ours, code) in [
        (422, Shape::Text, 400, "invalid_value"),
        (400, Shape::Detail, 400, "invalid_value"),
        (500, Shape::Text, 502, "upstream_error"),
        (500, Shape::TooLong, 400, "context_length_exceeded"),
    ] {
        let script = Script::tokens(12, 9).fault(Fault::Error { status, shape });
        let answer = stack.call(&key, script).send().await;
        answer.assert_error(ours, code);
        assert_eq!(
            answer.text().contains("the scripted upstream refuses"),
            code == "invalid_value",
            "{answer}"
        );
    }
    assert_eq!(stack.used(&key).await, NanoUsd::ZERO);
}

#[apply(fact)]
async fn words_of_an_upstream_that_name_what_is_inside_reach_no_client() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let ours = "The model refused the request as invalid.";
    for status in [400, 422] {
        let script = Script::tokens(12, 9).fault(Fault::Error { status, shape: Shape::Telling });
        let answer = stack.call(&key, script).send().await;
        assert_eq!(answer.assert_error(400, "invalid_value").json()["error"]["message"], ours, "{answer}");
    }
}

#[apply(fact)]
async fn no_account_finds_what_another_one_has_sent() {
    let stack = Stack::start().await;
    let other = stack.open_account("other", NanoUsd::parse("1").unwrap());
    let (key, same, strange) = (stack.key().await, stack.key().await, stack.key_of(&other, json!({})).await);
    let long = json!({"role": "system", "content": "All of this is secret. ".repeat(100)});
    let mut salts = Vec::new();
    let mut cached = Vec::new();
    for key in [&key, &same, &strange, &strange] {
        let mut call = stack.call(key, Script { caches: true, ..Script::default() });
        call.body["messages"].as_array_mut().unwrap().insert(0, long.clone());
        let tag = call.tag.clone();
        let usage = call.send().await.json()["usage"].take();
        cached.push(usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap());
        salts.push(stack.upstream.tagged(&tag)[0].json()["cache_salt"].as_str().unwrap().to_owned());
    }
    assert_eq!((cached[0], cached[2]), (0, 0), "each account's first time");
    assert!(cached[1] > 500 && cached[3] > 500, "{cached:?}");
    assert!(salts[0] == salts[1] && salts[1] != salts[2] && salts[2] == salts[3], "{salts:?}");
}
