//! Answers in JSON, whole or as server-sent events.

use std::convert::Infallible;

use axum::{
    body::Body,
    http::header::{CACHE_CONTROL, CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use futures_util::stream::{self, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use shared::error::ApiError;
use shared_door::http::ok;

use crate::{
    answer::AnswerEvent,
    demo::NAME,
    engine::{Engine, Events},
    output::Delta,
};

/// Where a stream reports usage: in a last chunk without choices, or also in every chunk.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamOptions {
    include_usage: bool,
    /// As in vLLM, this does nothing without `include_usage`.
    continuous_usage_stats: bool,
}

struct ChunkWriter {
    /// Object without choices that each chunk is made from.
    header: Value,
    options: StreamOptions,
}

pub(super) async fn whole(engine: &Engine, mut events: Events) -> Result<Response, ApiError> {
    let (mut text, mut calls) = (String::new(), Vec::new());
    let (reason, used) = loop {
        let event = next(&mut events).await?;
        let used = usage(&event);
        match event.delta {
            Delta::Text(more) => text.push_str(&more),
            Delta::ToolCall(_, id, name) => calls.push((id, name, String::new())),
            Delta::Arguments(index, text) => calls[index].2.push_str(&text),
            Delta::Finished(reason) => break (reason, used),
        }
    };
    let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !calls.is_empty() {
        message["tool_calls"] = calls.iter().map(|(id, name, text)| tool_call(id, name, text)).collect();
    }
    let mut object = header(engine, "chat.completion");
    object["choices"] = json!([{"index": 0, "message": message, "logprobs": null, "finish_reason": reason}]);
    object["usage"] = used;
    Ok(ok(&object))
}

/// Answers with a stream, which begins with the first token; an earlier failure is an ordinary error. The stream ends
/// with `[DONE]` only if nothing fails, so that a part is not mistaken for the whole.
pub(super) async fn stream(
    engine: &Engine,
    mut events: Events,
    options: StreamOptions,
) -> Result<Response, ApiError> {
    let first = next(&mut events).await?;
    let writer = ChunkWriter { header: header(engine, "chat.completion.chunk"), options };
    let role = writer.choice(&json!({"role": "assistant", "content": ""}), None, &usage(&first));
    let events = stream::once(async { Ok(first) }).chain(stream::poll_fn(move |task| events.poll_recv(task)));
    let chunks = events.map(move |event| {
        event.map_or_else(|error| format!("data: {}\n\n", error.to_json()), |event| writer.write(event))
    });
    let body = stream::once(async { role }).chain(chunks).map(Ok::<_, Infallible>);
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    Ok((headers, [("x-accel-buffering", "no")], Body::from_stream(body)).into_response())
}

impl ChunkWriter {
    fn write(&self, event: AnswerEvent) -> String {
        let used = usage(&event);
        let delta = match event.delta {
            Delta::Text(text) => json!({"content": text}),
            Delta::ToolCall(index, id, name) => {
                let mut call = tool_call(&id, &name, "");
                call["index"] = index.into();
                json!({"tool_calls": [call]})
            }
            Delta::Arguments(index, text) => {
                json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
            }
            Delta::Finished(reason) => {
                let last = self.choice(&json!({}), Some(reason), &used);
                let usage = self.options.include_usage.then(|| self.chunk(json!([]), Some(&used)));
                return last + &usage.unwrap_or_default() + "data: [DONE]\n\n";
            }
        };
        self.choice(&delta, None, &used)
    }

    fn choice(&self, delta: &Value, reason: Option<&str>, used: &Value) -> String {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason});
        self.chunk(json!([choice]), self.options.continuous_usage_stats.then_some(used))
    }

    fn chunk(&self, choices: Value, used: Option<&Value>) -> String {
        let mut chunk = self.header.clone();
        chunk["choices"] = choices;
        if self.options.include_usage {
            chunk["usage"] = used.cloned().into();
        }
        format!("data: {chunk}\n\n")
    }
}

fn header(engine: &Engine, kind: &str) -> Value {
    let id = format!("chatcmpl-{:016x}", engine.random());
    json!({"id": id, "object": kind, "created": engine.now(), "model": NAME})
}

/// Waits for the next event. If an answer ends without its last event, the engine failed.
async fn next(events: &mut Events) -> Result<AnswerEvent, ApiError> {
    events.recv().await.unwrap_or_else(|| Err(ApiError::internal()))
}

/// Returns the usage so far, in the format of OpenAI's API.
fn usage(&AnswerEvent { prompt_tokens: prompt, written, .. }: &AnswerEvent) -> Value {
    json!({
        "prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0},
    })
}

fn tool_call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}
