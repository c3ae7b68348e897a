//! Whole answers as JSON, and the parts that they share with streamed ones.

use std::{collections::BTreeMap, sync::Arc};

use axum::response::Response;
use serde_json::{Map, Value, json};
use shared::{error::ApiError, process::http::ok};

use super::failed;
use crate::{
    about,
    engine::{Engine, Event, EventKind, FinishReason, Generation, Usage},
    output::Delta,
    sampler::{Logprob, TokenLogprobs},
    tokenizer::Tokenizer,
};

/// Events that are taken at once: enough for every choice to have had its turn.
pub(super) const EVENTS_AT_ONCE: usize = 64;

/// Answer to a request, or the error of one that failed before it.
pub(super) type Reply = Result<Response, ApiError>;

/// Fields that all objects of one reply repeat.
pub(super) struct Header {
    id: String,
    created: i64,
    tokenizer: Arc<Tokenizer>,
}

/// One choice of a whole answer.
#[derive(Default)]
struct Choice {
    text: String,
    /// Tool calls, with their arguments beside them.
    calls: Vec<(Value, String)>,
    logprobs: Vec<TokenLogprobs>,
    finish_reason: Option<FinishReason>,
}

/// Waits for the whole answer.
pub(super) async fn whole(mut generation: Generation, header: Header, logprobs: bool) -> Reply {
    let mut choices = BTreeMap::<usize, Choice>::new();
    let mut used = Usage::default();
    loop {
        let events = generation.next(EVENTS_AT_ONCE).await.map_err(failed)?;
        let Some(last) = events.last() else { break };
        used = last.usage;
        for event in events {
            choices.entry(event.choice).or_default().add(event);
        }
    }
    let choices = choices.into_iter().map(|(index, choice)| choice.into_json(index, &header, logprobs));
    let mut object = header.object("chat.completion", choices.collect());
    object.insert("usage".to_owned(), usage(used));
    Ok(ok(&object))
}

/// Tokens of a prompt, as vLLM reports them.
pub(super) fn tokens(tokens: &[u32], context: usize) -> Response {
    ok(&json!({"count": tokens.len(), "max_model_len": context, "tokens": tokens}))
}

/// List of the one model that is served.
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
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    })
}

/// Tool call without its arguments.
pub(super) fn tool_call(id: &str, name: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": ""}})
}

impl Header {
    pub(super) fn new(engine: &Engine) -> Self {
        let id = format!("chatcmpl-{:016x}", engine.random());
        Self { id, created: engine.now(), tokenizer: Arc::clone(engine.tokenizer()) }
    }

    pub(super) fn object(&self, kind: &str, choices: Vec<Value>) -> Map<String, Value> {
        let fields = [
            ("id", self.id.as_str().into()),
            ("object", kind.into()),
            ("created", self.created.into()),
            ("model", about().name.into()),
            ("choices", Value::Array(choices)),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Logprobs of tokens, and of the likeliest beside each.
    pub(super) fn logprobs(&self, logprobs: &[TokenLogprobs]) -> Value {
        let content = logprobs.iter().map(|(chosen, top)| {
            let mut token = self.logprob(chosen);
            token["top_logprobs"] = top.iter().map(|logprob| self.logprob(logprob)).collect();
            token
        });
        json!({"content": content.collect::<Vec<_>>(), "refusal": null})
    }

    fn logprob(&self, logprob: &Logprob) -> Value {
        let bytes = self.tokenizer.bytes(logprob.token);
        json!({"token": String::from_utf8_lossy(bytes), "logprob": logprob.logprob, "bytes": bytes})
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

    fn into_json(self, index: usize, header: &Header, logprobs: bool) -> Value {
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
            "logprobs": logprobs.then(|| header.logprobs(&self.logprobs)),
            "finish_reason": self.finish_reason,
        })
    }
}
