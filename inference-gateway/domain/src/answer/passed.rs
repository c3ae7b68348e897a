//! Answers of the API that the client speaks itself: passed on as they came, but for the model's name and the cost.

use bytes::BytesMut;
use serde::Deserialize;
use shared::{
    error::ApiError,
    json::{Kind, Object, RawValue},
};

use super::{
    Chunk, FinishReason, Generation, Settled,
    parts::RawString,
    put,
    stream::Original,
    turn::{TurnEnd, TurnWriter},
};
use crate::splice::Splice;

/// Writer of what an upstream does not say itself: an end that it did not reach.
pub(super) trait PassedWriter: TurnWriter {
    /// Takes note of an event that passes.
    fn pass(&mut self, event: &Original<'_>);
    /// Closes what is open.
    fn close_passed(&mut self, out: &mut BytesMut);
    /// Bytes behind the upstream's last event.
    fn behind(&self) -> &'static str;
    /// The usage that clients read.
    fn usage(&self) -> UsageOf;
}

/// Writer of usage in the members of an API.
pub(super) type UsageOf = fn(Settled, &mut BytesMut);

/// Writer of a stream that is passed on.
pub struct PassedStream {
    writer: Box<dyn PassedWriter>,
    /// Model as a JSON string.
    model: String,
    has_begun: bool,
    end: Option<PassedEnd>,
}

enum PassedEnd {
    /// The upstream's last event, kept back until its cost is known.
    Told(String),
    /// The stream was cut.
    Cut,
}

impl PassedStream {
    pub(super) fn new(generation: Generation<'_>, writer: Box<dyn PassedWriter>) -> Self {
        Self { writer, model: generation.model_json(), has_begun: false, end: None }
    }

    /// Writes the event of a chunk. The last one is kept back, and what comes behind it means nothing.
    pub(super) fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut BytesMut) {
        let Some(event) = chunk.original.filter(|_| self.end.is_none()) else { return };
        self.writer.pass(&event);
        if chunk.finish_reasons().next().is_some() {
            self.end = Some(PassedEnd::Told(event.payload.to_owned()));
        } else if event.object.is_some() {
            self.has_begun = true;
            put_event(event.kind, &edited(event.payload, event.object, &self.model, None), out);
        } else {
            put_event(event.kind, event.payload, out);
        }
    }

    pub(super) const fn is_finished(&self) -> bool {
        self.end.is_some()
    }

    /// Ends what goes on, with an incomplete block.
    pub(super) fn cut(&mut self, out: &mut BytesMut) {
        if self.end.is_some() {
            return;
        }
        if !self.has_begun {
            self.writer.begin(None, out);
        }
        self.writer.close_passed(out);
        self.end = Some(PassedEnd::Cut);
    }

    pub(super) fn done(&mut self, settled: Settled, out: &mut BytesMut) {
        self.cut(out);
        let Some(PassedEnd::Told(event)) = &self.end else {
            let end = TurnEnd { finish: FinishReason::Length, stop: None };
            return self.writer.done(&end, settled, out);
        };
        let told: LastEvent<'_> = serde_json::from_str(event).unwrap_or_default();
        let edited = edited(event, told.response, &self.model, Some((self.writer.usage(), settled)));
        put_event(told.kind.map_or("", RawString::inner), &edited, out);
        put(out, self.writer.behind());
    }

    pub(super) fn fail(&mut self, error: &ApiError, settled: Option<Settled>, out: &mut BytesMut) {
        self.writer.fail(error, settled, out);
    }

    pub(super) fn keep_alive(&self) -> &'static str {
        self.writer.keep_alive()
    }

    pub(super) fn held_bytes(&self) -> usize {
        let end = match &self.end {
            Some(PassedEnd::Told(event)) => event.len(),
            Some(PassedEnd::Cut) | None => 0,
        };
        end + self.writer.held_bytes()
    }
}

/// Members of a last event.
#[derive(Default, Deserialize)]
struct LastEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<RawString<'a>>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
}

/// Members of a message, a response or an event that are edited.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

/// Writes the client's name of the model into an object within a text, or into the text itself; at the end of an answer also
/// the cost into the usage, or a usage where the upstream has none.
pub(super) fn edited(
    source: &str,
    object: Option<&RawValue>,
    model: &str,
    end: Option<(UsageOf, Settled)>,
) -> String {
    let mut splice = Splice::of(source);
    let Ok(members) = serde_json::from_str::<Members<'_>>(object.map_or(source, RawValue::get)) else {
        return source.to_owned();
    };
    if let Some(known) = members.model {
        splice.replace(known, model);
    }
    if let Some((put_usage, settled)) = end {
        let ours = || {
            let mut out = BytesMut::new();
            put_usage(settled, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        };
        let told = members.usage.filter(|usage| Kind::of(usage) == Kind::Object);
        let cost = settled.cost.map(|cost| cost.to_string());
        let known = told.and_then(|usage| Object::from_raw(usage).ok()?.get("cost"));
        match (told, known, cost, members.usage) {
            (Some(_), Some(known), Some(cost), _) => splice.replace(known, cost),
            (Some(usage), None, Some(cost), _) => splice.insert(usage, "cost", cost),
            (Some(_), _, None, _) => {}
            (None, _, _, Some(other)) => splice.replace(other, ours()),
            (None, _, _, None) => match object {
                Some(object) => splice.insert(object, "usage", ours()),
                None => splice.insert_at_root("usage", ours()),
            },
        }
    }
    splice.finish()
}

/// Writes an event with this payload, which may have several lines.
fn put_event(kind: &str, payload: &str, out: &mut BytesMut) {
    if !kind.is_empty() {
        put(out, "event: ");
        put(out, kind);
        put(out, "\n");
    }
    let mut rest = payload.as_bytes();
    loop {
        put(out, "data: ");
        let Some(end) = memchr::memchr(b'\n', rest) else { break };
        out.extend_from_slice(&rest[..=end]);
        rest = &rest[end + 1..];
    }
    out.extend_from_slice(rest);
    put(out, "\n\n");
}
