//! The exact bytes that clients read in responses and that upstreams receive in requests.

use std::time::Instant;

use serde_json::{Value, json};
use tests::{
    harness::{Ended, FLASH, Options, PATIENCE, Stack, UPSTREAM_KEY, cost_of},
    upstream::{Fault, ReasoningField, Script, Style, text},
};

fn is_generation_id(id: &str) -> bool {
    let hex = id.strip_prefix("gen_").unwrap_or_default();
    hex.len() == 32 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[track_caller]
fn assert_nothing_leaks(text: &str) {
    for secret in ["chatcmpl", "fp_scripted", "scripted/", "worker-7"] {
        assert!(!text.contains(secret), "{secret} leaks: {text}");
    }
}

#[apply(fact)]
async fn a_whole_answer_has_our_ids_and_nothing_of_the_upstream() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let answer = stack.call(&key, Script::tokens(12, 5)).send().await;
    answer.assert_request_id();
    let body = answer.json();
    assert!(is_generation_id(body["id"].as_str().unwrap()), "{answer}");
    assert_eq!(answer.header("x-generation-id"), body["id"]);
    assert_eq!((&body["object"], &body["model"]), (&json!("chat.completion"), &json!(FLASH)));
    assert!(body["created"].as_u64().unwrap() > 1_700_000_000, "our time, not the upstream's: {answer}");
    let expected = json!([{"index": 0, "message": {"role": "assistant", "content": text(5), "refusal": null},
        "logprobs": null, "finish_reason": "stop"}]);
    assert_eq!(body["choices"], expected);
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("content-length"), answer.body.len().to_string());
    assert_eq!(answer.header("x-max-tokens"), "", "nothing was lowered");
    assert_nothing_leaks(&format!("{answer}"));
}

#[apply(fact)]
async fn a_stream_has_one_id_one_role_one_finish_and_usage_at_its_end() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let stream = stack.call(&key, Script::tokens(12, 5)).stream().await;
    assert_eq!(stream.header("content-type"), "text/event-stream");
    assert_eq!(stream.header("cache-control"), "no-cache");
    assert_eq!(stream.header("x-accel-buffering"), "no");
    assert!(stream.header("x-request-id").starts_with("req_"));
    let id = stream.header("x-generation-id").to_owned();
    let ended = stream.rest().await;
    assert_whole_shape(&ended, &id);
    let (last, others) = ended.chunks.split_last().unwrap();
    assert!(others.iter().all(|chunk| chunk.get("usage") == Some(&Value::Null)), "{others:?}");
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["total_tokens"], 17);
}

#[apply(fact)]
async fn a_stream_that_was_not_asked_for_usage_says_none() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let stream = stack.call(&key, Script::tokens(12, 5)).stream_without_usage().await;
    let id = stream.header("x-generation-id").to_owned();
    let ended = stream.rest().await;
    assert_whole_shape(&ended, &id);
    assert!(ended.chunks.iter().all(|chunk| chunk.get("usage").is_none()), "{ended:?}");
    assert!(ended.chunks.iter().all(|chunk| chunk["choices"] != json!([])), "{ended:?}");
}

#[track_caller]
fn assert_whole_shape(ended: &Ended, id: &str) {
    ended.assert_done();
    assert!(is_generation_id(id));
    assert_eq!(ended.text(), text(5));
    assert_eq!(ended.finish_reasons(), ["stop"]);
    let first = &ended.chunks[0];
    for chunk in &ended.chunks {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!((&chunk["id"], &chunk["model"]), (&json!(id), &json!(FLASH)));
        assert_eq!(chunk["created"], first["created"]);
    }
    let roles: Vec<_> = ended.deltas(0).filter(|delta| delta.get("role").is_some()).collect();
    assert_eq!(roles.len(), 1, "{ended:?}");
    assert_eq!(first["choices"][0]["delta"]["role"], "assistant");
    assert_nothing_leaks(&Value::from(ended.chunks.clone()).to_string());
}

#[apply(fact)]
async fn habits_of_servers_do_not_show() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let habits = [
        Style { role_everywhere: true, ..Style::default() },
        Style { no_role: true, ..Style::default() },
        Style { text_on_finish: true, ..Style::default() },
        Style { comments: true, ..Style::default() },
        Style { crlf: true, ..Style::default() },
        Style { usage_at_end_only: true, no_cached_tokens: true, ..Style::default() },
    ];
    for style in habits {
        let stream = stack.call(&key, Script { style, ..Script::tokens(12, 5) }).stream().await;
        let id = stream.header("x-generation-id").to_owned();
        let ended = stream.rest().await;
        assert_whole_shape(&ended, &id);
        assert!(ended.comments.is_empty(), "{style:?}: {ended:?}");
        assert_eq!(ended.usage().unwrap()["prompt_tokens_details"]["cached_tokens"], 0, "{style:?}");
    }
}

#[apply(fact)]
async fn reasoning_has_one_name_whatever_the_upstream_calls_it() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    for reasoning in [ReasoningField::Reasoning, ReasoningField::ReasoningContent] {
        let style = Style { reasoning, ..Style::default() };
        let script = Script { reasoning_tokens: 3, style, ..Script::tokens(12, 5) };
        let whole = stack.call(&key, script.clone()).send().await;
        let message = &whole.json()["choices"][0]["message"];
        assert_eq!((&message["reasoning_content"], &message["content"]), (&json!(text(3)), &json!(text(2))));
        assert!(message.get("reasoning").is_none(), "{whole}");
        let ended = stack.call(&key, script).stream().await.rest().await;
        assert_eq!((ended.joined("reasoning_content"), ended.joined("reasoning")), (text(3), String::new()));
        assert_eq!(ended.text(), text(2));
    }
}

#[apply(fact)]
async fn tool_calls_and_several_choices_pass_through() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let tools =
        json!([{"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}]);
    let script = Script { tool_calls: 2, ..Script::tokens(12, 0) };
    let call = stack.call(&key, script).with("tools", tools).with("tool_choice", "auto");
    let whole = call.clone().send().await;
    let choice = &whole.json()["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{whole}");
    assert_eq!(choice["message"]["tool_calls"][1]["function"]["arguments"], r#"{"q":"x"}"#);
    assert_eq!(choice["message"]["content"], Value::Null);
    let ended = call.stream().await.rest().await;
    ended.assert_done();
    let arguments: String = ended
        .deltas(0)
        .filter_map(|delta| delta["tool_calls"][0]["function"]["arguments"].as_str())
        .collect();
    assert_eq!(arguments, r#"{"q":"x"}{"q":"x"}"#);
    assert_eq!(ended.finish_reasons(), ["tool_calls"]);

    let script = Script { style: Style::vllm(), ..Script::tokens(12, 5) };
    let three = stack.call(&key, script).with("n", 3);
    let whole = three.clone().send().await;
    assert_eq!(whole.json()["usage"]["completion_tokens"], 15);
    assert_eq!(whole.json()["choices"].as_array().unwrap().len(), 3);
    let ended = three.stream().await.rest().await;
    ended.assert_done();
    for choice in 0..3 {
        let said: String = ended.deltas(choice).filter_map(|delta| delta["content"].as_str()).collect();
        assert_eq!(said, text(5), "choice {choice}");
    }
    assert_eq!(ended.finish_reasons(), ["stop"; 3]);
}

#[apply(fact)]
async fn what_is_allowed_is_forwarded_and_nothing_else() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let forwarded = json!({
        "temperature": 0.5, "top_p": 0.9, "stop": ["a", "b"], "seed": -3, "frequency_penalty": 1, "presence_penalty": -1,
        "logprobs": true, "top_logprobs": 2, "logit_bias": {"5": 1}, "n": 1, "parallel_tool_calls": false,
        "tools": [{"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}],
        "tool_choice": "none", "response_format": {"type": "json_object"}, "reasoning_effort": "low", "top_k": 5,
    });
    let dropped = json!({
        "user": "u", "metadata": {"a": "b"}, "store": false, "service_tier": "auto", "prompt_cache_key": "p",
        "safety_identifier": "s", "verbosity": "low", "prediction": {"type": "content", "content": "x"},
        "chat_template": "evil", "kv_transfer_params": {}, "lora_path": "/etc", "made_up": 1,
    });
    let mut call = stack.call(&key, Script::tokens(12, 5)).with("max_completion_tokens", 50);
    for (name, value) in forwarded.as_object().unwrap().iter().chain(dropped.as_object().unwrap()) {
        call = call.with(name, value.clone());
    }
    let tag = call.tag.clone();
    let answer = call.header("x-made-up", "1").send().await;
    assert_eq!(answer.status, 200, "{answer}");

    let sent = stack.upstream.tagged(&tag).pop().unwrap();
    let body = sent.json();
    for (name, value) in forwarded.as_object().unwrap() {
        assert_eq!(&body[name], value, "{name}: {body}");
    }
    for name in dropped.as_object().unwrap().keys() {
        assert!(body.get(name).is_none(), "{name} is forwarded: {body}");
    }
    assert_eq!(body["model"], "scripted/model-flash");
    let max_tokens = body.get("max_tokens").or(body.get("max_completion_tokens"));
    assert_eq!(max_tokens, Some(&json!(50)), "{body}");
    assert!(!sent.headers.contains_key("x-made-up"), "a header is forwarded: {:?}", sent.headers);
    let credential = sent.headers.get("authorization").map(|value| value.to_str().unwrap());
    assert_eq!(
        credential,
        Some(format!("Bearer {UPSTREAM_KEY}").as_str()),
        "the upstream's, not the client's"
    );
}

#[apply(fact)]
async fn messages_reach_the_upstream_as_they_were_but_for_the_developer() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let call = stack.call(&key, Script::tokens(12, 5));
    let (tag, script) = (call.tag.clone(), call.body["messages"][0]["content"].clone());
    let messages = json!([
        {"role": "developer", "content": "Be short. \u{1F600} \\ \" \n"},
        {"role": "user", "content": [{"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}]},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "found"},
        {"role": "user", "content": script},
    ]);
    let answer = call.with("messages", messages.clone()).send().await;
    assert_eq!(answer.status, 200, "{answer}");
    let mut expected = messages;
    expected[0]["role"] = "system".into();
    assert_eq!(stack.upstream.tagged(&tag).pop().unwrap().json()["messages"], expected);
}

#[apply(fact)]
async fn upstreams_are_always_asked_for_usage() {
    for (kind, continuous) in [("vllm", Some(true)), ("sglang", Some(true)), ("openai", None)] {
        let stack = Stack::with(Options { kind, ..Options::default() }).await;
        let key = stack.key().await;
        let call = stack.call(&key, Script::tokens(12, 5));
        let tag = call.tag.clone();
        call.stream_without_usage().await.rest().await.assert_done();
        let options = stack.upstream.tagged(&tag).pop().unwrap().json()["stream_options"].clone();
        assert_eq!(options["include_usage"], true, "{kind}");
        assert_eq!(options["continuous_usage_stats"].as_bool(), continuous, "{kind}");
    }
}

#[apply(fact)]
async fn every_kind_of_upstream_answers_whole_and_streamed() {
    for kind in ["openai", "vllm", "sglang", "llama_cpp", "ollama"] {
        let stack = Stack::with(Options { kind, ..Options::default() }).await;
        let key = stack.key().await;
        let whole = stack.call(&key, Script::tokens(12, 5)).send().await;
        assert_eq!((whole.status, whole.cost()), (200, cost_of(12, 5)), "{kind}: {whole}");
        let ended = stack.call(&key, Script::tokens(12, 5).pace(1)).stream().await.rest().await;
        assert_eq!((ended.assert_done().text(), ended.cost()), (text(5), cost_of(12, 5)), "{kind}");
    }
}

#[apply(fact)]
async fn silence_is_bridged_every_fifteen_seconds() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let mut stream = stack.call(&key, Script::tokens(12, 9).fault(Fault::Stall { after: 3 })).stream().await;
    stream.read_tokens(3).await;
    let silent = Instant::now();
    assert_eq!(stream.read_comment().await, "keep-alive");
    let after = silent.elapsed().as_secs_f64();
    assert!((13.0..18.0).contains(&after), "after {after} s");
    drop(stream);
    stack.released(PATIENCE).await;
    assert_eq!(stack.used(&key).await, cost_of(12, 3));
}

#[apply(fact)]
async fn a_prompt_of_a_million_tokens_takes_memory_in_proportion_to_its_body() {
    const BODY: usize = 8 << 20;
    let stack = Stack::start().await;
    let key = stack.key().await;
    stack.call(&key, Script::tokens(12, 5)).send().await;
    let before = stack.server().peak_memory();

    let call = stack.call(&key, Script::tokens(1_000_000, 5));
    let script = call.body["messages"][0].clone();
    let long = json!({"role": "system", "content": "word ".repeat(BODY / 5)});
    let answer = call.with("messages", json!([long, script])).with("max_tokens", 5).send().await;

    assert_eq!((answer.status, answer.cost()), (200, cost_of(1_000_000, 5)), "{answer}");
    let took = stack.server().peak_memory() - before;
    // Pages that were freed count as resident until the allocator returns them to the system.
    assert!(took < 6 * BODY as u64, "{took} bytes of memory for {BODY} bytes of body");
}
