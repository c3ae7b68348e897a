//! Whole answers as JSON, and the parts in common with streamed answers.

use axum::response::Response;
use serde_json::{Value, json};
use shared::error::ApiError;
use shared_door::http::ok;

use super::failed;
use crate::{
    about,
    engine::{Engine, Event, EventKind, Events, FinishReason, Usage},
    output::Delta,
    sampler::TokenLogprob,
};

/// Answer to a request, or the error of a request that failed.
pub(super) type Reply = Result<Response, ApiError>;

/// Fields that all objects of a reply repeat.
pub(super) struct Header {
    id: String,
    created: i64,
}

/// A choice of a whole answer.
#[derive(Default)]
struct Choice {
    text: String,
    /// Tool calls, each with its arguments.
    calls: Vec<(Value, String)>,
    logprobs: Vec<TokenLogprob>,
    finish_reason: Option<FinishReason>,
}

/// Waits for the whole answer.
pub(super) async fn whole(mut events: Events, header: Header, with_logprobs: bool) -> Reply {
    let (mut choices, mut used) = (Vec::new(), Usage::default());
    while let Some(event) = events.next().await.map_err(failed)? {
        if event.choice >= choices.len() {
            choices.resize_with(event.choice + 1, Choice::default);
        }
        used = event.usage;
        choices[event.choice].add(event);
    }
    let choices = choices.into_iter().enumerate();
    let choices: Vec<Value> = choices.map(|(index, choice)| choice.into_json(index, with_logprobs)).collect();
    let mut object = header.object("chat.completion", &choices);
    object["usage"] = usage(used);
    Ok(ok(&object))
}

/// Reports the tokens of a prompt in vLLM's form.
pub(super) fn tokens(tokens: &[u32], context: usize) -> Response {
    ok(&json!({"count": tokens.len(), "max_model_len": context, "tokens": tokens}))
}

/// Lists the served model.
pub(super) fn models(engine: &Engine) -> Response {
    let model = json!({
        "id": about().name,
        "object": "model",
        "created": engine.now(),
        "owned_by": "faregate",
        "max_model_len": engine.context(),
        "description": about().sentence,
    });
    ok(&json!({"object": "list", "data": [model]}))
}

/// Usage in the OpenAI API's words.
pub(super) fn usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    })
}

/// Logprobs of the tokens of a choice, in the OpenAI API's form.
pub(super) fn logprobs(logprobs: &[TokenLogprob]) -> Value {
    json!({"content": logprobs, "refusal": null})
}

/// Tool call without arguments.
pub(super) fn tool_call(id: &str, name: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": ""}})
}

impl Header {
    pub(super) fn new(engine: &Engine) -> Self {
        Self { id: format!("chatcmpl-{:016x}", engine.random()), created: engine.now() }
    }

    pub(super) fn object(&self, kind: &str, choices: &[Value]) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": about().name,
            "choices": choices,
        })
    }
}

impl Choice {
    fn add(&mut self, event: Event) {
        self.logprobs.extend(event.logprobs);
        match event.kind {
            EventKind::Delta(Delta::Text(text)) => self.text.push_str(&text),
            EventKind::Delta(Delta::ToolCall { id, name, .. }) => {
                self.calls.push((tool_call(&id, &name), String::new()));
            }
            EventKind::Delta(Delta::Arguments { index, text }) => self.calls[index].1.push_str(&text),
            EventKind::Finished(reason) => self.finish_reason = Some(reason),
        }
    }

    fn into_json(self, index: usize, with_logprobs: bool) -> Value {
        let only_calls = self.text.is_empty() && !self.calls.is_empty();
        let content = if only_calls { Value::Null } else { self.text.into() };
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !self.calls.is_empty() {
            let whole = |(mut call, arguments): (Value, String)| {
                call["function"]["arguments"] = arguments.into();
                call
            };
            message["tool_calls"] = self.calls.into_iter().map(whole).collect();
        }
        json!({
            "index": index,
            "message": message,
            "logprobs": with_logprobs.then(|| logprobs(&self.logprobs)),
            "finish_reason": self.finish_reason,
        })
    }
}
