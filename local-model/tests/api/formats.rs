//! Text that must be JSON is JSON, whatever the model considers likely.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::support::{ask, joined, post, question, router, stream, text};

fn person() -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "person", "strict": true, "schema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
            "home": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
        },
        "required": ["name", "age", "tags", "home"],
        "additionalProperties": false,
    }}})
}

#[tokio::test]
async fn a_json_schema_is_followed_however_wild_the_text() {
    let router = router();
    for seed in 0..20 {
        let body = json!({"response_format": person(), "temperature": 2, "seed": seed});
        let answer = ask(&router, &question("Tell me a story.", body)).await;
        assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}");
        let person: Value = serde_json::from_str(text(&answer)).unwrap();
        assert_eq!(person.as_object().unwrap().len(), 4);
        assert!(person["name"].is_string());
        assert!((0..=150).contains(&person["age"].as_i64().unwrap()));
        assert!(person["tags"].as_array().unwrap().len() <= 3);
        assert!(person["home"].is_null() || person["home"].is_boolean());
    }
}

#[tokio::test]
async fn json_is_spelled_with_a_blank_after_commas_and_colons() {
    let body = json!({"response_format": person()});
    let answer = ask(&router(), &question("Make JSON with name Mara and age 31", body)).await;
    assert!(text(&answer).starts_with("{\"name\": \"Mara\", \"age\": 31, \"tags\": ["), "{answer}");
}

#[tokio::test]
async fn a_stream_of_json_is_the_same_json() {
    let router = router();
    let body =
        question("Tell me a story.", json!({"response_format": person(), "temperature": 1.5, "seed": 3}));
    let answer = ask(&router, &body).await;
    assert_eq!(joined(&stream(&router, &body).await, 0)["content"], text(&answer));
}

#[tokio::test]
async fn max_tokens_without_room_for_the_json_cut_it_and_say_so() {
    let body = question("Hi", json!({"response_format": person(), "max_tokens": 7}));
    let answer = ask(&router(), &body).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 7);
}

#[tokio::test]
async fn no_bias_leads_out_of_the_schema() {
    let bias: Value =
        (0..200).map(|token| (token.to_string(), json!(100))).collect::<serde_json::Map<_, _>>().into();
    let body = json!({"response_format": person(), "logit_bias": bias, "max_tokens": 200});
    let answer = ask(&router(), &question("Hi", body)).await;
    assert!(text(&answer).starts_with("{\"name\": \""), "{answer}");
}

#[tokio::test]
async fn with_tools_the_answer_is_json_or_a_call() {
    let router = router();
    let tools = json!([{"type": "function", "function": {"name": "ping"}}]);
    for seed in 0..10 {
        let body = json!({"response_format": person(), "tools": tools, "temperature": 2, "seed": seed, "parallel_tool_calls": false});
        let answer = ask(&router, &question("Tell me a story.", body)).await;
        let message = &answer["choices"][0]["message"];
        match message["content"].as_str() {
            Some(content) => assert!(serde_json::from_str::<Value>(content).unwrap()["age"].is_number()),
            None => assert_eq!(message["tool_calls"][0]["function"]["arguments"], "{}"),
        }
    }
}

#[tokio::test]
async fn formats_that_cannot_be_forced_are_refused() {
    let router = router();
    let cases = [
        json!({"type": "json_schema", "json_schema": {"name": "x"}}),
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}),
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"format": "poem", "type": "string"}}}),
    ];
    for format in cases {
        let body = question("Hi", json!({"response_format": format}));
        let (status, answer) = post(&router, "/v1/chat/completions", &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{format}: {answer}");
    }
}
