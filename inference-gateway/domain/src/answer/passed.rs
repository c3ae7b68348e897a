//! Answers of the API that the client speaks itself: passed on as they came, but for the model's name and the cost.

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use shared::{
    error::ApiError,
    json::{Kind, Object, RawValue},
};

use super::{
    Chunk, FinishReason, Generation, Settled,
    parts::RawString,
    put,
    reader::WholeAnswer,
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
            let mut splice = Splice::of(event.payload);
            Edited::of(event.object).rename(&self.model, &mut splice);
            put_event(event.kind, &splice.finish(), out);
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
        let edited = if told.response.is_some() { Edited::of(told.response) } else { Edited::read(event) };
        let mut splice = Splice::of(event);
        edited.rename(&self.model, &mut splice);
        edited.settle(told.response, settled, self.writer.usage(), &mut splice);
        put_event(told.kind.map_or("", RawString::inner), &splice.finish(), out);
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
#[derive(Default, Deserialize)]
struct Edited<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

impl<'a> Edited<'a> {
    /// Those of an object. Anything else has none.
    fn of(object: Option<&'a RawValue>) -> Self {
        object.map(|object| Self::read(object.get())).unwrap_or_default()
    }

    fn read(json: &'a str) -> Self {
        serde_json::from_str(json).unwrap_or_default()
    }

    /// Writes the client's name of the model, as a JSON string, in place of the upstream's.
    fn rename<'s>(&self, model: &'s str, splice: &mut Splice<'s>) {
        if let Some(known) = self.model {
            splice.replace(known, model);
        }
    }

    /// Writes the cost into the usage, or a usage where the upstream has none into the object, which may be the whole text.
    fn settle(
        &self,
        object: Option<&RawValue>,
        settled: Settled,
        put_usage: UsageOf,
        splice: &mut Splice<'_>,
    ) {
        let Some(usage) = self.usage.filter(|usage| Kind::of(usage) == Kind::Object) else {
            let mut out = BytesMut::new();
            put_usage(settled, &mut out);
            let ours = String::from_utf8_lossy(&out).into_owned();
            return match (self.usage, object) {
                (Some(other), _) => splice.replace(other, ours),
                (None, Some(object)) => splice.insert(object, "usage", ours),
                (None, None) => splice.insert_at_root("usage", ours),
            };
        };
        let Some(cost) = settled.cost else { return };
        // Few upstreams tell a cost, and a search is cheaper than a look at each member.
        let tells = memchr::memmem::find(usage.get().as_bytes(), b"cost").is_some();
        let members = if tells { Object::from_raw(usage).unwrap_or_default() } else { Object::default() };
        match members.get("cost") {
            Some(known) => splice.replace(known, cost.to_string()),
            None => splice.insert(usage, "cost", cost.to_string()),
        }
    }
}

/// A whole answer that is passed on.
pub(super) struct PassedAnswer<'a> {
    source: &'a str,
    edited: Edited<'a>,
    put_usage: UsageOf,
}

impl<'a> PassedAnswer<'a> {
    /// The answer that was read from this text.
    pub(super) fn of(source: &'a str, answer: &WholeAnswer<'a>, put_usage: UsageOf) -> Self {
        let edited = Edited { model: answer.model, usage: answer.usage };
        Self { source, edited, put_usage }
    }

    pub(super) fn write(&self, generation: Generation<'_>, settled: Settled) -> Bytes {
        let model = generation.model_json();
        let mut splice = Splice::of(self.source);
        self.edited.rename(&model, &mut splice);
        self.edited.settle(None, settled, self.put_usage, &mut splice);
        Bytes::from(splice.finish())
    }
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
