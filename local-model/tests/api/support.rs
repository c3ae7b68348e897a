//! A model, requests, and parts of answers, for all tests of the API.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
};
use http_body_util::BodyExt;
use local_model::Engine;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use shared::{clock::Clock, time::Timestamp};
use tower::ServiceExt;

/// A clock that stands still, and whose randomness counts upwards.
struct Fixed(AtomicU8);

impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_795_140_665_000)
    }

    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(self.0.fetch_add(1, Ordering::Relaxed));
    }
}

pub(crate) fn router() -> Router {
    router_for(64)
}

/// Returns a model that accepts at most this many requests at once.
pub(crate) fn router_for(max_requests: usize) -> Router {
    local_model::router(Engine::start(Arc::new(Fixed(AtomicU8::new(1))), max_requests).unwrap())
}

pub(crate) fn request(path: &str, body: String) -> Request<Body> {
    Request::post(path).header("content-type", "application/json").body(Body::from(body)).unwrap()
}

pub(crate) async fn post(router: &Router, path: &str, body: &impl Serialize) -> (StatusCode, Value) {
    send(router, request(path, serde_json::to_string(body).unwrap())).await
}

pub(crate) async fn get(router: &Router, path: &str) -> (StatusCode, Value) {
    send(router, Request::get(path).body(Body::empty()).unwrap()).await
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> (StatusCode, Value) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap())
}

/// Returns a chat request with one question and further fields.
pub(crate) fn question(text: &str, more: Value) -> Value {
    let mut body = json!({"model": "any", "messages": [{"role": "user", "content": text}]});
    let Value::Object(more) = more else { panic!("the fields are an object") };
    body.as_object_mut().unwrap().extend(more);
    body
}

/// Returns a chat request with further fields whose answer ends only at its limits. The prompt is nothing that the
/// model was trained on, so randomness has much to decide.
pub(crate) fn endless(more: Value) -> Value {
    let mut body = question("Hi", more);
    body["logit_bias"] = json!({"0": -100, "2": -100});
    body
}

pub(crate) async fn ask(router: &Router, body: &impl Serialize) -> Value {
    let (status, answer) = post(router, "/v1/chat/completions", body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

pub(crate) fn text(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

/// Begins a stream, and returns it after its first event.
pub(crate) async fn begin(router: &Router, body: &Value) -> Body {
    let response = router.clone().oneshot(request("/v1/chat/completions", body.to_string())).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    body
}

/// Returns the chunks of a streamed answer, which must end with `[DONE]`.
pub(crate) async fn stream(router: &Router, body: &impl Serialize) -> Vec<Value> {
    let body = serde_json::to_string(body).unwrap().replacen('{', r#"{"stream":true,"#, 1);
    let response = router.clone().oneshot(request("/v1/chat/completions", body)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let mut events: Vec<&str> =
        text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap()).collect();
    assert_eq!(events.pop(), Some("[DONE]"));
    events.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

/// Returns the message that the deltas of one choice add up to.
pub(crate) fn joined(chunks: &[Value], choice: usize) -> Value {
    let (mut content, mut calls) = (String::new(), Vec::<Value>::new());
    let of_choice = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap());
    for part in of_choice.filter(|part| part["index"] == choice) {
        let delta = &part["delta"];
        content.push_str(delta["content"].as_str().unwrap_or_default());
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let mut call = call.clone();
            let index = call.as_object_mut().unwrap().remove("index").unwrap().as_u64().unwrap();
            match calls.get_mut(usize::try_from(index).unwrap()) {
                None => calls.push(call),
                Some(begun) => {
                    assert_eq!(call.as_object().unwrap().len(), 1, "the name comes once");
                    let more = call["function"]["arguments"].as_str().unwrap();
                    let arguments = begun["function"]["arguments"].as_str().unwrap();
                    begun["function"]["arguments"] = format!("{arguments}{more}").into();
                }
            }
        }
    }
    let content = if content.is_empty() && !calls.is_empty() { Value::Null } else { content.into() };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

/// A request with PyTorch's answer.
#[derive(Deserialize, Serialize)]
pub(crate) struct Recorded {
    // Raw, since the order of names matters.
    pub(crate) messages: Box<RawValue>,
    pub(crate) tools: Option<Box<RawValue>>,
    pub(crate) reasoning_effort: Option<String>,
    pub(crate) max_tokens: usize,
    #[serde(skip_serializing)]
    pub(crate) prompt_tokens: usize,
    #[serde(skip_serializing)]
    pub(crate) answer_tokens: Vec<u32>,
    #[serde(skip_serializing)]
    pub(crate) answer: String,
}

impl Recorded {
    /// Returns whether PyTorch, although nothing forces it, followed the schemas of its tools.
    pub(crate) fn follows_its_schemas(&self) -> bool {
        let Some(written) = self.answer.split_once("<tool_call>").map(|(_, call)| call) else { return true };
        let written = written.split_once("</tool_call>").map_or(written, |(call, _)| call);
        let Ok(call) = serde_json::from_str::<Value>(written) else { return false };
        let tools: Vec<Value> = serde_json::from_str(self.tools.as_deref().unwrap().get()).unwrap();
        let called = tools.iter().find(|tool| tool["function"]["name"] == call["name"]);
        called.is_some_and(|tool| {
            let listed = &tool["function"]["parameters"]["properties"];
            call["arguments"].as_object().unwrap().keys().all(|key| listed.get(key).is_some())
        })
    }
}

pub(crate) fn reference() -> Vec<Recorded> {
    serde_json::from_str(include_str!("../reference.json")).unwrap()
}
