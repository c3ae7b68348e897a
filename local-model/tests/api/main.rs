//! Tests of the model through its HTTP API, compared with PyTorch's answers.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod formats;
mod support;
mod tools;

use std::time::Duration;

use axum::{
    Router,
    body::{Body, Bytes},
    http::{Request, StatusCode},
};
use serde_json::{Value, json};
use support::{
    Recorded, ask, begin, endless, get, joined, post, question, reference, request, router, router_for, send,
    stream, text,
};
use tower::ServiceExt;

#[tokio::test]
async fn greedy_answers_and_their_tokens_are_those_of_pytorch() {
    let router = router();
    for case in reference().into_iter().filter(Recorded::follows_its_schemas) {
        let answer = ask(&router, &case).await;
        let (choice, expected) = (&answer["choices"][0], case.answer.as_str());
        if choice["finish_reason"] == "tool_calls" {
            let function = &choice["message"]["tool_calls"][0]["function"];
            let (name, arguments) = (&function["name"], function["arguments"].as_str().unwrap());
            let call = format!("{{\"name\": {name}, \"arguments\": {arguments}}}");
            assert_eq!(format!("<tool_call>\n{call}\n</tool_call>"), expected);
            assert_eq!(choice["message"]["content"], Value::Null);
        } else {
            assert_eq!(choice["message"]["content"], expected);
        }
        // The token that ends an answer counts as written, although it is not shown.
        let completion = case.answer_tokens.len() + usize::from(choice["finish_reason"] != "length");
        assert_eq!(answer["usage"]["prompt_tokens"], case.prompt_tokens);
        assert_eq!(answer["usage"]["completion_tokens"], completion);
    }
}

#[tokio::test]
async fn a_streamed_answer_is_the_whole_answer_in_parts() {
    let router = router();
    for case in reference() {
        let mut whole = ask(&router, &case).await;
        let chunks = stream(&router, &case).await;
        let mut message = joined(&chunks, 0);
        // Every call has a separate id.
        for message in [&mut message, &mut whole["choices"][0]["message"]] {
            for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
                assert!(call["id"].take().as_str().unwrap().starts_with("call_"));
            }
        }
        assert_eq!(message, whole["choices"][0]["message"]);
        assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
        let last = &chunks.last().unwrap()["choices"][0];
        assert_eq!(last["finish_reason"], whole["choices"][0]["finish_reason"]);
        assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"] && chunk.get("usage").is_none()));
    }
}

#[tokio::test]
async fn the_same_seed_gives_the_same_text() {
    let router = router();
    let seeded = |seed: i64| endless(json!({"temperature": 1.5, "seed": seed, "max_tokens": 60}));
    let first = ask(&router, &seeded(-7)).await;
    assert_eq!(text(&ask(&router, &seeded(-7)).await), text(&first));
    assert_ne!(text(&ask(&router, &seeded(8)).await), text(&first));
    assert_eq!(joined(&stream(&router, &seeded(-7)).await, 0)["content"], text(&first));
}

#[tokio::test]
async fn characters_arrive_whole_however_wild_the_text() {
    let router = router();
    for seed in 0..20 {
        let body = question("Hi", json!({"temperature": 2, "seed": seed, "max_tokens": 60}));
        let chunks = stream(&router, &body).await;
        assert_eq!(joined(&chunks, 0)["content"], text(&ask(&router, &body).await));
    }
}

#[tokio::test]
async fn stop_strings_end_the_answer_and_are_never_shown() {
    let router = router();
    let whole = ask(&router, &question("How do I create an API key?", json!({}))).await;
    let all = text(&whole);
    for stop in [&all[6..15], &all[20..27], &all[33..34], &all[all.len() - 6..]] {
        let body = question("How do I create an API key?", json!({"stop": ["zebra", stop]}));
        let stopped = ask(&router, &body).await;
        assert_eq!(text(&stopped), all.split_once(stop).unwrap().0);
        assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
        assert!(
            stopped["usage"]["completion_tokens"].as_u64() < whole["usage"]["completion_tokens"].as_u64()
        );
        assert_eq!(joined(&stream(&router, &body).await, 0)["content"], text(&stopped));
    }
}

#[tokio::test]
async fn max_tokens_bounds_the_answer() {
    let router = router();
    for field in ["max_tokens", "max_completion_tokens"] {
        let answer = ask(&router, &question("Tell me a story.", json!({field: 5}))).await;
        assert_eq!(answer["usage"]["completion_tokens"], 5);
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
    }
}

#[tokio::test]
async fn the_context_bounds_the_answer_whatever_is_asked_for() {
    let answer = ask(&router(), &endless(json!({"max_tokens": 131_072}))).await;
    assert_eq!(answer["usage"]["total_tokens"], 2048);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn a_prompt_that_leaves_no_room_is_refused() {
    let router = router();
    let (status, answer) =
        post(&router, "/v1/chat/completions", &question(&"word ".repeat(3000), json!({}))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let error = &answer["error"];
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .starts_with("This model's maximum context length is 2048 tokens. ")
    );
    assert_eq!(error["type"], "invalid_request_error");
    assert_eq!(error["param"], "messages");
    assert_eq!(error["code"], "context_length_exceeded");
}

#[tokio::test]
async fn a_prompt_that_is_far_too_long_is_refused_before_it_is_parsed_or_counted() {
    let router = router();
    let refused = async |path: &str, body: String| {
        let (status, answer) = send(&router, request(path, body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(answer["error"]["code"], "context_length_exceeded");
    };
    for path in ["/v1/chat/completions", "/tokenize"] {
        refused(path, question(&"word ".repeat(100_000), json!({})).to_string()).await;
        refused(path, "[".repeat(2 << 20)).await;
    }
}

#[tokio::test]
async fn the_last_place_of_the_context_is_used() {
    let router = router();
    // The template takes a few tokens; each digit is one token.
    let around = counted(&router, "").await;
    let fits = "1".repeat(2047 - around);
    let answer = ask(&router, &question(&fits, json!({}))).await;
    assert_eq!(answer["usage"]["completion_tokens"], 1);
    let (status, _) = post(&router, "/v1/chat/completions", &question(&format!("{fits}1"), json!({}))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn of_an_agents_conversation_the_last_question_is_read() {
    let router = router();
    let long = "word ".repeat(3000);
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "description": long}});
    let mut agent = question("", json!({"tools": [tool("shell"), tool("patch")]}));
    agent["messages"] = json!([
        {"role": "system", "content": long},
        {"role": "user", "content": long},
        {"role": "assistant", "content": long},
        {"role": "user", "content": [{"type": "text", "text": long}, {"type": "text", "text": "What is an API key?"}]},
    ]);
    let alone = ask(&router, &question("What is an API key?", json!({}))).await;
    let answer = ask(&router, &agent).await;
    assert_eq!(answer["choices"], alone["choices"]);
    assert_eq!(answer["usage"], alone["usage"]);
    let (_, counted) = post(&router, "/tokenize", &agent).await;
    assert_eq!(counted["count"], alone["usage"]["prompt_tokens"]);

    // Messages after the question are left out as well.
    let call = json!({"id": "call_0", "type": "function", "function": {"name": "shell", "arguments": "{}"}});
    let messages = agent["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    messages.push(json!({"role": "tool", "tool_call_id": "call_0", "content": long}));
    assert_eq!(ask(&router, &agent).await["choices"], alone["choices"]);

    agent["tool_choice"] = json!("required");
    agent["max_tokens"] = json!(100);
    let answer = ask(&router, &agent).await;
    assert!(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"].is_string(), "{answer}");

    agent["messages"] = json!([{"role": "user", "content": "Hi"}, {"role": "user", "content": long}]);
    let (status, answer) = post(&router, "/v1/chat/completions", &agent).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "the question itself is too long: {answer}");
    assert_eq!(answer["error"]["code"], "context_length_exceeded");
}

async fn counted(router: &Router, text: &str) -> usize {
    let (status, counted) = post(router, "/tokenize", &question(text, json!({}))).await;
    assert_eq!(status, StatusCode::OK, "{counted}");
    usize::try_from(counted["count"].as_u64().unwrap()).unwrap()
}

#[tokio::test]
async fn tokenize_counts_what_a_chat_would_use() {
    let router = router();
    for case in reference() {
        let (_, counted) = post(&router, "/tokenize", &case).await;
        assert_eq!(counted["count"], case.prompt_tokens);
        assert_eq!(counted["tokens"].as_array().unwrap().len(), case.prompt_tokens);
        assert_eq!(counted["max_model_len"], 2048);
    }
}

#[tokio::test]
async fn usage_is_reported_where_the_client_asks_for_it() {
    let router = router();
    let whole = ask(&router, &question("Hello!", json!({}))).await;

    let chunks =
        stream(&router, &question("Hello!", json!({"stream_options": {"include_usage": true}}))).await;
    let (last, others) = chunks.split_last().unwrap();
    assert!(others.iter().all(|chunk| chunk["usage"].is_null() && chunk.get("usage").is_some()));
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"], whole["usage"]);

    let options = json!({"include_usage": true, "continuous_usage_stats": true});
    let chunks = stream(&router, &question("Hello!", json!({"stream_options": options}))).await;
    let counts: Vec<u64> =
        chunks.iter().map(|chunk| chunk["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert!(counts.is_sorted());
    assert_eq!(counts.first(), Some(&1));
    assert_eq!(counts.last(), Some(&whole["usage"]["completion_tokens"].as_u64().unwrap()));
}

#[tokio::test]
async fn tools_that_may_not_be_called_are_not_offered() {
    let router = router();
    let tools = json!([{"type": "function", "function": {"name": "get_time", "parameters": {}}}]);
    let (_, with) = post(&router, "/tokenize", &question("Hi", json!({"tools": tools}))).await;
    assert!(with["count"].as_u64().unwrap() > 20);
    let answer = ask(&router, &question("Hi", json!({"tools": tools, "tool_choice": "none"}))).await;
    assert_eq!(answer["usage"]["prompt_tokens"], counted(&router, "Hi").await);
}

#[tokio::test]
async fn requests_that_cannot_be_answered_say_why() {
    let router = router();
    let image = json!([{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "https://x"}}]);
    let cases = [
        (json!({}), "invalid_type"),
        (json!({"messages": [{"content": "Hi"}]}), "invalid_type"),
        (question("Hi", json!({"stream": "yes"})), "invalid_type"),
        (question("Hi", json!({"n": 2})), "unsupported_value"),
        (question("Hi", json!({"logit_bias": {"1": "a"}})), "invalid_type"),
        (json!({"messages": [{"role": "user", "content": image}]}), "unsupported_value"),
        (question("Hi", json!({"tools": [{"type": "function"}]})), "invalid_type"),
    ];
    for (body, code) in cases {
        let (status, answer) = post(&router, "/v1/chat/completions", &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {answer}");
        assert_eq!(answer["error"]["code"], code, "{body}: {answer}");
    }
}

#[tokio::test]
async fn numbers_beyond_their_range_are_taken_as_the_nearest_within() {
    let router = router();
    let beyond = json!({"n": 0, "max_tokens": 0, "temperature": -1, "logit_bias": {"5000": 1, "7": -1000}});
    let answer = ask(&router, &question("Hi", beyond)).await;
    assert_eq!(answer["choices"].as_array().unwrap().len(), 1);
    assert_eq!(answer["usage"]["completion_tokens"], 1);
}

#[tokio::test]
async fn a_body_that_is_no_json_or_does_not_come_whole_is_refused_in_json() {
    let router = router();
    let broken = Body::from_stream(futures_util::stream::once(async {
        Err::<Bytes, _>(std::io::Error::other("gone"))
    }));
    for (body, code) in [(Body::from("{\"messages\": [}"), "invalid_json"), (broken, "invalid_json")] {
        let request = Request::post("/v1/chat/completions").body(body).unwrap();
        let (status, answer) = send(&router, request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
}

#[tokio::test]
async fn text_that_spells_markers_neither_ends_its_message_nor_begins_another() {
    let router = router();
    let call = |text: &str| json!({"id": "1", "type": "function", "function": {"name": text, "arguments": format!("{{\"a\": \"{text}\"}}")}});
    let said = |text: &str| {
        json!({
            "messages": [
                {"role": "system", "content": text},
                {"role": "user", "content": [{"type": "text", "text": text}]},
                {"role": "assistant", "content": null, "tool_calls": [call(text)]},
                {"role": "tool", "tool_call_id": "1", "content": text},
                {"role": "assistant", "content": text},
            ],
            "tools": [{"type": "function", "function": {"name": text, "parameters": {"properties": {text: {"enum": [text]}}}}}],
        })
    };
    let markers = async |text: &str| {
        let (_, prompt) = post(&router, "/tokenize", &said(text)).await;
        let tokens: Vec<u64> = serde_json::from_value(prompt["tokens"].clone()).unwrap();
        tokens.into_iter().filter(|&token| token < 10).collect::<Vec<_>>()
    };
    let plain = markers("text").await;
    assert_eq!(plain.iter().filter(|&&token| token == 2).count(), 5, "each message ends once");
    for spelled in ["<|im_end|>", "<|im_start|>system", "<|image|>", "<|<|im_end|>im_end|>", "<tool_call>"] {
        assert_eq!(markers(spelled).await, plain, "{spelled}");
    }
}

#[tokio::test]
async fn fields_that_are_not_known_are_ignored() {
    let body =
        question("Hello!", json!({"top_k": 3, "metadata": {"a": [1]}, "response_format": {"type": "text"}}));
    assert_eq!(text(&ask(&router(), &body).await), "Hello! How can I help you?");
}

#[tokio::test]
async fn the_service_describes_itself() {
    let router = router();
    assert_eq!(get(&router, "/health").await, (StatusCode::OK, json!({"status": "ok"})));
    let (_, models) = get(&router, "/v1/models").await;
    assert_eq!(models["data"][0]["id"], "tiny-demo");
    assert_eq!(get(&router, "/v1/nothing").await.0, StatusCode::NOT_FOUND);
    assert_eq!(get(&router, "/v1/chat/completions").await.0, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn one_request_too_many_is_refused_for_a_second_until_another_s_client_leaves() {
    let router = router_for(1);
    let begun = begin(&router, &endless(json!({"stream": true}))).await;
    let refused = || request("/v1/chat/completions", question("Hi", json!({})).to_string());
    let refused = router.clone().oneshot(refused()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "1");
    drop(begun);
    let is_full = async || {
        let (status, _) = post(&router, "/v1/chat/completions", &question("Hi", json!({}))).await;
        status == StatusCode::SERVICE_UNAVAILABLE
    };
    tokio::time::timeout(Duration::from_secs(10), async {
        while is_full().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("the permit becomes free long before the answer would have ended");
}

#[tokio::test]
async fn a_request_that_waits_for_memory_is_answered_when_clients_leave() {
    let router = router();
    let mut begun = Vec::new();
    for _ in 0..32 {
        begun.push(begin(&router, &endless(json!({"stream": true}))).await);
    }
    let waits = router.clone();
    let waits = tokio::spawn(async move { ask(&waits, &question("Hello!", json!({}))).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waits.is_finished());
    drop(begun);
    assert_eq!(text(&waits.await.unwrap()), "Hello! How can I help you?");
}

#[tokio::test]
async fn a_long_prompt_is_read_while_others_write() {
    let router = router();
    let long = router.clone();
    let long = tokio::spawn(async move { ask(&long, &question(&"1".repeat(2000), json!({}))).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    ask(&router, &question("Hi", json!({"max_tokens": 5}))).await;
    assert!(!long.is_finished());
    long.await.unwrap();
}

#[tokio::test]
async fn sixteen_streams_at_once_give_what_each_gives_alone() {
    let router = router();
    let body = |seed: u64| endless(json!({"temperature": 1.2, "seed": seed, "max_tokens": 40}));
    let streams: Vec<_> = (0..16)
        .map(|seed| {
            let router = router.clone();
            tokio::spawn(async move { joined(&stream(&router, &body(seed)).await, 0) })
        })
        .collect();
    for (seed, streamed) in (0..).zip(streams) {
        let alone = ask(&router, &body(seed)).await;
        assert_eq!(streamed.await.unwrap(), alone["choices"][0]["message"]);
    }
}
