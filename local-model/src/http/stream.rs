//! Streamed answers: server-sent events.

use std::{collections::BTreeSet, convert::Infallible, fmt::Display};

use axum::{
    body::Body,
    http::header::{CACHE_CONTROL, CONTENT_TYPE},
    response::IntoResponse,
};
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};

use super::{
    failed,
    reply::{self, Header, Reply},
};
use crate::{
    engine::{Event, EventKind, Events, Usage},
    output::Delta,
};

/// Form of the answer that a client asked for.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) streams: bool,
    pub(super) logprobs: bool,
    pub(super) usage: UsageReports,
}

/// Place of the usage in a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UsageReports {
    Nowhere,
    /// In a last chunk without choices, and null in the others.
    AtTheEnd,
    /// In every chunk, the usage so far.
    Everywhere,
}

/// Stream on its way to the client.
struct Chunks {
    events: Events,
    header: Header,
    form: Form,
    /// Choices whose first chunk, which names the role, was sent.
    begun: BTreeSet<usize>,
    usage: Usage,
    is_ended: bool,
}

/// Answers as a stream. The stream begins with the first token: a failure before that is an ordinary error.
pub(super) async fn reply(mut events: Events, header: Header, form: Form) -> Reply {
    let first = events.next().await.map_err(failed)?;
    let (begun, usage) = (BTreeSet::new(), Usage::default());
    let mut chunks = Chunks { events, header, form, begun, usage, is_ended: false };
    let first = first.map(|event| chunks.write(event)).unwrap_or_default();
    let rest = stream::unfold(chunks, |mut chunks| async { Some((chunks.next().await?, chunks)) });
    let body = stream::once(async { first }).chain(rest).map(Ok::<_, Infallible>);
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    Ok((headers, [("x-accel-buffering", "no")], Body::from_stream(body)).into_response())
}

impl Chunks {
    /// Waits for an event and returns the event's chunks. None after the end.
    async fn next(&mut self) -> Option<String> {
        if self.is_ended {
            return None;
        }
        let event = self.events.next().await;
        self.is_ended = !matches!(event, Ok(Some(_)));
        Some(match event {
            Ok(Some(event)) => self.write(event),
            Ok(None) => self.write_end(),
            // Without [DONE], so that the part is not taken for the whole.
            Err(error) => line(failed(error).to_json()),
        })
    }

    fn write(&mut self, Event { choice, kind, logprobs, usage }: Event) -> String {
        self.usage = usage;
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
        let logprobs = (!logprobs.is_empty()).then(|| reply::logprobs(&logprobs));
        let chunk = |delta: &Value, logprobs: Option<Value>, finish_reason| {
            let choice = json!({"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason});
            let is_reported = self.form.usage == UsageReports::Everywhere;
            self.chunk(&[choice], is_reported.then(|| reply::usage(usage)))
        };
        let written = chunk(&delta, logprobs, finish_reason);
        if self.begun.contains(&choice) {
            return written;
        }
        let first = chunk(&json!({"role": "assistant", "content": ""}), None, None);
        self.begun.insert(choice);
        first + &written
    }

    fn write_end(&self) -> String {
        let is_reported = self.form.usage != UsageReports::Nowhere;
        let usage = is_reported.then(|| self.chunk(&[], Some(reply::usage(self.usage))));
        usage.unwrap_or_default() + &line("[DONE]")
    }

    fn chunk(&self, choices: &[Value], usage: Option<Value>) -> String {
        let mut chunk = self.header.object("chat.completion.chunk", choices);
        if self.form.usage != UsageReports::Nowhere {
            chunk["usage"] = usage.into();
        }
        line(chunk)
    }
}

fn line(data: impl Display) -> String {
    format!("data: {data}\n\n")
}
