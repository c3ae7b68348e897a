//! Streamed answers: server-sent events.

use std::{collections::BTreeSet, convert::Infallible};

use axum::{
    body::Body,
    http::header::{CACHE_CONTROL, CONTENT_TYPE},
    response::IntoResponse,
};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};

use super::{
    failed,
    reply::{self, EVENTS_AT_ONCE, Header, Reply},
};
use crate::{
    engine::{Event, EventKind, FinishReason, Generation, Usage},
    output::Delta,
};

/// Form of the answer that a client asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) streams: bool,
    pub(super) logprobs: bool,
    pub(super) usage: UsageReports,
}

/// Place of the usage in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageReports {
    Nowhere,
    /// In a last chunk of its own; in the others it is null.
    AtTheEnd,
    /// In every chunk, as far as it has come.
    Everywhere,
}

/// Stream on its way to the client.
struct Chunks {
    generation: Generation,
    header: Header,
    form: Form,
    /// Choices whose first chunk, which names the role, was sent.
    begun: BTreeSet<usize>,
    usage: Usage,
    is_ended: bool,
}

/// Answers as a stream. It begins with the first token: a failure before that is an ordinary error.
pub(super) async fn reply(mut generation: Generation, header: Header, form: Form) -> Reply {
    let first = generation.next(EVENTS_AT_ONCE).await.map_err(failed)?;
    let (begun, usage) = (BTreeSet::new(), Usage::default());
    let mut chunks = Chunks { generation, header, form, begun, usage, is_ended: false };
    let first = chunks.write(first);
    let rest = stream::unfold(chunks, |mut chunks| async { Some((chunks.next().await?, chunks)) });
    let body = stream::once(async { first }).chain(rest).map(Ok::<_, Infallible>);
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    Ok((headers, [("x-accel-buffering", "no")], Body::from_stream(body)).into_response())
}

impl Chunks {
    /// Waits for events and returns their chunks in one piece; None at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_ended {
            return None;
        }
        match self.generation.next(EVENTS_AT_ONCE).await {
            Ok(events) if !events.is_empty() => Some(self.write(events)),
            Ok(_) => {
                self.is_ended = true;
                Some(self.write_end())
            }
            Err(error) => {
                // Without [DONE], so that the part is not taken for the whole.
                self.is_ended = true;
                Some(format!("data: {}\n\n", failed(error).to_json()).into())
            }
        }
    }

    fn write(&mut self, events: Vec<Event>) -> Bytes {
        let mut written = String::new();
        for Event { choice, kind, logprobs, usage } in events {
            self.usage = usage;
            if self.begun.insert(choice) {
                let delta = json!({"role": "assistant", "content": ""});
                written.push_str(&self.chunk(choice, &delta, &Value::Null, None));
            }
            let (delta, finish_reason) = match kind {
                EventKind::Delta(Delta::Text(text)) => (json!({"content": text}), None),
                EventKind::Delta(Delta::ToolCall { index, id, name }) => {
                    let mut call = reply::tool_call(&id, &name);
                    call["index"] = index.into();
                    (json!({"tool_calls": [call]}), None)
                }
                EventKind::Delta(Delta::Arguments { index, text }) => {
                    (json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]}), None)
                }
                EventKind::Finished(reason) => (json!({}), Some(reason)),
            };
            let logprobs = if logprobs.is_empty() { Value::Null } else { self.header.logprobs(&logprobs) };
            written.push_str(&self.chunk(choice, &delta, &logprobs, finish_reason));
        }
        written.into()
    }

    fn write_end(&self) -> Bytes {
        let mut written = String::new();
        if self.form.usage != UsageReports::Nowhere {
            let mut chunk = self.header.object("chat.completion.chunk", Vec::new());
            chunk.insert("usage".to_owned(), reply::usage(self.usage));
            written = format!("data: {}\n\n", Value::Object(chunk));
        }
        written.push_str("data: [DONE]\n\n");
        written.into()
    }

    fn chunk(&self, index: usize, delta: &Value, logprobs: &Value, finish: Option<FinishReason>) -> String {
        let choice = json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
        let mut chunk = self.header.object("chat.completion.chunk", vec![choice]);
        let usage = match self.form.usage {
            UsageReports::Nowhere => None,
            UsageReports::AtTheEnd => Some(Value::Null),
            UsageReports::Everywhere => Some(reply::usage(self.usage)),
        };
        chunk.extend(usage.map(|usage| ("usage".to_owned(), usage)));
        format!("data: {}\n\n", Value::Object(chunk))
    }
}
