//! Answers as they come: server-sent events.

use std::{collections::BTreeSet, convert::Infallible};

use axum::{
    body::Body,
    http::{
        HeaderValue,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::Response,
};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};

use super::{
    error::ApiError,
    reply::{self, EVENTS_AT_ONCE, Head},
};
use crate::{
    answer::Piece,
    engine::{Event, Generation, News, Usage},
};

/// In what form the client wants the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) streams: bool,
    pub(crate) logprobs: bool,
    pub(crate) usage: UsageReports,
}

/// Where a stream says what was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsageReports {
    Nowhere,
    /// In a last chunk of its own; in the others it is null.
    AtTheEnd,
    /// In every chunk, as far as it has come.
    Everywhere,
}

/// A stream on its way to the client.
struct Chunks {
    generation: Generation,
    head: Head,
    form: Form,
    /// The choices whose first chunk, which names the role, is out.
    begun: BTreeSet<usize>,
    usage: Usage,
    ended: bool,
}

/// The answer as a stream. It begins with the first token: what fails before that is an ordinary error.
pub(crate) async fn reply(mut generation: Generation, head: Head, form: Form) -> Result<Response, ApiError> {
    let first = generation.next(EVENTS_AT_ONCE).await?;
    let (begun, usage) = (BTreeSet::new(), Usage::default());
    let mut chunks = Chunks { generation, head, form, begun, usage, ended: false };
    let first = chunks.write(first);

    let rest = stream::unfold(chunks, |mut chunks| async {
        let written = chunks.next().await?;
        Some((Ok::<_, Infallible>(written), chunks))
    });
    let first = stream::once(async { Ok(first) });
    let mut response = Response::new(Body::from_stream(stream::StreamExt::chain(first, rest)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

impl Chunks {
    /// What is ready to be sent, in one piece; None at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        match self.generation.next(EVENTS_AT_ONCE).await {
            Ok(events) if !events.is_empty() => Some(self.write(events)),
            Ok(_) => {
                self.ended = true;
                Some(self.write_end())
            }
            Err(broken) => {
                // Without [DONE], so that nobody takes the part for the whole.
                self.ended = true;
                Some(event(&ApiError::from(broken).to_json()).into())
            }
        }
    }

    fn write(&mut self, events: Vec<Event>) -> Bytes {
        let mut written = String::new();
        for Event { choice, news, likelihoods, usage } in events {
            self.usage = usage;
            if self.begun.insert(choice) {
                let role = json!({"role": "assistant", "content": ""});
                written.push_str(&self.chunk(vec![part(choice, &role, None)]));
            }
            let mut part = match news {
                News::Piece(Piece::Text(text)) => part(choice, &json!({"content": text}), None),
                News::Piece(Piece::Reasoning(text)) => {
                    part(choice, &json!({"reasoning_content": text}), None)
                }
                News::Piece(Piece::Call { index, id, name }) => {
                    let mut told = reply::tool_call(&id, &name);
                    told["index"] = index.into();
                    part(choice, &json!({"tool_calls": [told]}), None)
                }
                News::Piece(Piece::Arguments { index, text }) => {
                    let told = json!({"index": index, "function": {"arguments": text}});
                    part(choice, &json!({"tool_calls": [told]}), None)
                }
                News::Finished(reason) => part(choice, &json!({}), Some(reason.name())),
            };
            if self.form.logprobs && !likelihoods.is_empty() {
                part["logprobs"] = self.head.logprobs(&likelihoods);
            }
            written.push_str(&self.chunk(vec![part]));
        }
        written.into()
    }

    fn write_end(&self) -> Bytes {
        let mut written = String::new();
        if self.form.usage != UsageReports::Nowhere {
            let mut chunk = self.head.object("chat.completion.chunk", Vec::new());
            chunk.insert("usage".to_owned(), reply::usage(self.usage));
            written.push_str(&event(&Value::Object(chunk)));
        }
        written.push_str("data: [DONE]\n\n");
        written.into()
    }

    fn chunk(&self, choices: Vec<Value>) -> String {
        let mut chunk = self.head.object("chat.completion.chunk", choices);
        let usage = match self.form.usage {
            UsageReports::Nowhere => None,
            UsageReports::AtTheEnd => Some(Value::Null),
            UsageReports::Everywhere => Some(reply::usage(self.usage)),
        };
        chunk.extend(usage.map(|usage| ("usage".to_owned(), usage)));
        event(&Value::Object(chunk))
    }
}

/// What a chunk says of one choice.
fn part(choice: usize, delta: &Value, finish_reason: Option<&str>) -> Value {
    json!({"index": choice, "delta": delta, "logprobs": null, "finish_reason": finish_reason})
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}
