//! Answers as JSON: whole ones, and the parts that streamed ones share with them.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::Response,
};
use serde_json::{Map, Value, json};

use super::error::ApiError;
use crate::{
    answer::Piece,
    engine::{Engine, Event, FinishReason, Generation, News, Usage},
    sampler::Likelihood,
    vocabulary::Vocabulary,
};

/// So many events are taken at once, as they may have gathered meanwhile: enough for every choice to have had its turn.
pub(crate) const EVENTS_AT_ONCE: usize = 64;

/// What every object of one reply repeats.
pub(crate) struct Head {
    id: String,
    created: u64,
    model: String,
    vocabulary: Arc<Vocabulary>,
}

/// One choice of a whole answer, as far as it has come.
#[derive(Default)]
struct Choice {
    text: String,
    reasoning: String,
    calls: Vec<Value>,
    /// Of each of the calls.
    arguments: Vec<String>,
    likelihoods: Vec<(Likelihood, Vec<Likelihood>)>,
    finish_reason: Option<FinishReason>,
}

/// The whole answer, once it is complete.
pub(crate) async fn whole(
    mut generation: Generation,
    head: Head,
    logprobs: bool,
) -> Result<Response, ApiError> {
    let mut choices = BTreeMap::<usize, Choice>::new();
    let mut used = Usage::default();
    loop {
        let events = generation.next(EVENTS_AT_ONCE).await?;
        let Some(last) = events.last() else { break };
        used = last.usage;
        for event in events {
            choices.entry(event.choice).or_default().add(event);
        }
    }
    let choices: Vec<Value> =
        choices.into_iter().map(|(index, choice)| choice.into_json(index, &head, logprobs)).collect();
    let mut object = head.object("chat.completion", choices);
    object.insert("usage".to_owned(), usage(used));
    Ok(json(StatusCode::OK, &Value::Object(object)))
}

/// The tokens of a prompt, in the form that vLLM gives them.
pub(crate) fn tokens(tokens: &[u32], context: usize) -> Response {
    json(StatusCode::OK, &json!({"count": tokens.len(), "max_model_len": context, "tokens": tokens}))
}

/// The one model that is served.
pub(crate) fn models(engine: &Engine) -> Response {
    let mut model = json!({
        "id": engine.name(),
        "object": "model",
        "created": engine.now(),
        "owned_by": "faregate",
        "max_model_len": engine.context(),
    });
    if let Some(sentence) = engine.sentence() {
        model["description"] = sentence.into();
    }
    json(StatusCode::OK, &json!({"object": "list", "data": [model]}))
}

/// A response with this JSON.
pub(crate) fn json(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The tokens of a request in the OpenAI API's words.
pub(crate) fn usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}

/// A tool call without arguments, which follow.
pub(crate) fn tool_call(id: &str, name: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": ""}})
}

impl Head {
    pub(crate) fn new(engine: &Engine) -> Self {
        let id = format!("chatcmpl-{:016x}", engine.random());
        let (model, vocabulary) = (engine.name().to_owned(), Arc::clone(engine.vocabulary()));
        Self { id, created: engine.now(), model, vocabulary }
    }

    pub(crate) fn object(&self, kind: &str, choices: Vec<Value>) -> Map<String, Value> {
        let fields = [
            ("id", self.id.as_str().into()),
            ("object", kind.into()),
            ("created", self.created.into()),
            ("model", self.model.as_str().into()),
            ("choices", Value::Array(choices)),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// How likely some tokens were, and the likeliest beside each.
    pub(crate) fn logprobs(&self, likelihoods: &[(Likelihood, Vec<Likelihood>)]) -> Value {
        let content = likelihoods.iter().map(|(taken, top)| {
            let mut token = self.logprob(taken);
            let top = top.iter().map(|likelihood| Value::Object(self.logprob(likelihood)));
            token.insert("top_logprobs".to_owned(), top.collect());
            Value::Object(token)
        });
        json!({"content": content.collect::<Vec<_>>(), "refusal": null})
    }

    fn logprob(&self, likelihood: &Likelihood) -> Map<String, Value> {
        let bytes = self.vocabulary.bytes(likelihood.token);
        let fields = [
            ("token", String::from_utf8_lossy(bytes).into()),
            ("logprob", likelihood.logprob.into()),
            ("bytes", bytes.into()),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl Choice {
    fn add(&mut self, event: Event) {
        self.likelihoods.extend(event.likelihoods);
        match event.news {
            News::Piece(Piece::Text(text)) => self.text.push_str(&text),
            News::Piece(Piece::Reasoning(reasoning)) => self.reasoning.push_str(&reasoning),
            News::Piece(Piece::Call { id, name, .. }) => {
                self.calls.push(tool_call(&id, &name));
                self.arguments.push(String::new());
            }
            News::Piece(Piece::Arguments { index, text }) => self.arguments[index].push_str(&text),
            News::Finished(reason) => self.finish_reason = Some(reason),
        }
    }

    fn into_json(self, index: usize, head: &Head, logprobs: bool) -> Value {
        let only_calls = self.text.is_empty() && !self.calls.is_empty();
        let content = if only_calls { Value::Null } else { self.text.into() };
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = self.reasoning.into();
        }
        if !self.calls.is_empty() {
            let whole = |(mut call, arguments): (Value, String)| {
                call["function"]["arguments"] = arguments.into();
                call
            };
            message["tool_calls"] = self.calls.into_iter().zip(self.arguments).map(whole).collect();
        }
        json!({
            "index": index,
            "message": message,
            "logprobs": logprobs.then(|| head.logprobs(&self.likelihoods)),
            "finish_reason": self.finish_reason.map(FinishReason::name),
        })
    }
}
