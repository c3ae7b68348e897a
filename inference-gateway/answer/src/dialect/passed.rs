//! Passes on answers in the client's own API, unchanged except for the model's name and the cost.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use raw_json::Splice;
use serde::Deserialize;
use shared::{
    error::ApiError,
    generation::FinishReason,
    json::{Kind, Object, RawValue},
    tokens::Usage,
};

use super::{
    block::{TurnEnd, TurnWriter},
    turn::Turn,
};
use crate::{
    generation::{Generation, Settled, put},
    pieces::{loose::is_hollow, nonsense::Nonsense, oddity::Oddity, parts::even_null},
    sse::payload::is_too_deep,
    stream::{Chunk, Edited, Original},
    usage::Reported,
};

/// Ends a passed answer that the upstream did not finish.
pub(crate) trait PassedWriter: TurnWriter {
    /// Records an event that is passed on.
    fn pass(&mut self, event: &Original<'_>);
    /// Closes the blocks or items that are open.
    fn close_passed(&mut self, out: &mut BytesMut);
    /// Returns the output passed on so far; `None` in APIs whose last event does not repeat the output.
    fn output(&mut self) -> Option<String>;
    /// Returns the bytes that follow the upstream's last event.
    fn behind(&self) -> &'static str;
    fn usage(&self) -> UsageOf;
}

/// Writes usage with the member names of one API.
pub(crate) type UsageOf = fn(Settled, &mut BytesMut);

pub(crate) struct PassedStream {
    writer: Box<dyn PassedWriter>,
    /// Name of the model, spelled as a JSON string.
    model: String,
    /// Writes an answer that arrived whole, without events to pass on.
    turn: Turn,
    is_whole: bool,
    has_begun: bool,
    /// Whether an event of the upstream was passed on.
    has_passed: bool,
    end: Option<PassedEnd>,
}

enum PassedEnd {
    /// The upstream's last event, held back until its cost is known.
    Told(LastEvent),
    /// The upstream's last event could not be kept, or the gateway cut the stream before its end.
    Ours(TurnEnd),
}

impl PassedStream {
    pub(crate) fn new(generation: Generation<'_>, turn: Turn, writer: Box<dyn PassedWriter>) -> Self {
        let model = generation.model_json();
        Self { writer, model, turn, is_whole: false, has_begun: false, has_passed: false, end: None }
    }

    /// Writes the event of a chunk. Holds the stream's last event back, and ignores any event after that.
    pub(crate) fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut BytesMut) -> Result<(), Nonsense> {
        if self.end.is_some() {
            return Ok(());
        }
        if chunk.is_whole && !self.has_passed {
            return self.whole(chunk, out);
        }
        let finish = chunk.finish_reasons().next();
        // Clients recognise the last event only by the API's own names for it.
        let is_misnamed = chunk.odd.has(Oddity::TerminalEvent);
        let Some(event) = chunk.original.filter(|event| !is_misnamed && !event.kind.is_empty()) else {
            self.left_out(finish, out);
            return Ok(());
        };
        self.has_passed = true;
        self.writer.pass(&event);
        if finish.is_some() {
            self.end = Some(PassedEnd::Told(LastEvent::of(&event)));
        } else if event.edited.object.is_some() || event.edited.usage.is_some() {
            self.has_begun |= event.edited.object.is_some();
            let mut splice = Splice::of(event.payload);
            if event.edited.object.is_some() {
                event.edited.rename(&self.model, &mut splice);
            }
            event.edited.tell_once(chunk, self.writer.usage(), &mut splice);
            put_event(event.kind, &splice.finish(), out);
        } else {
            put_event(event.kind, event.payload, out);
        }
        Ok(())
    }

    fn whole(&mut self, chunk: &Chunk<'_>, out: &mut BytesMut) -> Result<(), Nonsense> {
        self.begin(out);
        self.is_whole = true;
        for choice in &chunk.choices {
            self.turn.chunk(choice, &mut *self.writer, out)?;
        }
        self.end = self.turn.end().cloned().map(PassedEnd::Ours);
        Ok(())
    }

    /// Writes a replacement for a first or last event that cannot be passed on.
    fn left_out(&mut self, finish: Option<FinishReason>, out: &mut BytesMut) {
        self.begin(out);
        if let Some(finish) = finish {
            self.writer.close_passed(out);
            self.end = Some(PassedEnd::Ours(TurnEnd { finish, stop: None }));
        }
    }

    fn begin(&mut self, out: &mut BytesMut) {
        if !self.has_begun {
            self.has_begun = true;
            self.writer.begin(None, out);
        }
    }

    pub(crate) const fn is_finished(&self) -> bool {
        self.end.is_some()
    }

    /// Ends the open block as incomplete.
    pub(crate) fn cut(&mut self, out: &mut BytesMut) {
        self.end(FinishReason::Length, out);
    }

    /// Ends the open block, since nothing more comes.
    pub(crate) fn end(&mut self, finish: FinishReason, out: &mut BytesMut) {
        if self.end.is_some() {
            return;
        }
        self.begin(out);
        let end = TurnEnd { finish, stop: None };
        if self.is_whole {
            self.turn.finish(end.clone(), &mut *self.writer, out);
        } else {
            self.writer.close_passed(out);
        }
        self.end = Some(PassedEnd::Ours(end));
    }

    pub(crate) fn done(&mut self, settled: Settled, out: &mut BytesMut) {
        self.cut(out);
        let event = match &self.end {
            Some(PassedEnd::Told(event)) => event,
            Some(PassedEnd::Ours(end)) => return self.writer.done(end, settled, out),
            None => return,
        };
        let output = self.writer.output();
        let (edited, mut splice) = (event.edited(), Splice::of(&event.payload));
        edited.rename(&self.model, &mut splice);
        edited.repeat(output, &mut splice);
        edited.settle(settled, self.writer.usage(), &mut splice);
        put_event(&event.kind, &splice.finish(), out);
        put(out, self.writer.behind());
    }

    pub(crate) fn fail(&mut self, error: &ApiError, settled: Option<Settled>, out: &mut BytesMut) {
        self.writer.fail(error, settled, out);
    }

    pub(crate) fn keep_alive(&self) -> &'static str {
        self.writer.keep_alive()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        let end = match &self.end {
            Some(PassedEnd::Told(event)) => event.payload.len(),
            Some(PassedEnd::Ours(_)) | None => 0,
        };
        end + self.writer.held_bytes()
    }
}

/// The upstream's last event, with the positions to edit.
struct LastEvent {
    payload: String,
    kind: String,
    object: Option<Range<usize>>,
    model: Option<Range<usize>>,
    usage: Option<Range<usize>>,
}

impl LastEvent {
    fn of(event: &Original<'_>) -> Self {
        let place = |part: Option<&str>| {
            let start = (part?.as_ptr() as usize).checked_sub(event.payload.as_ptr() as usize)?;
            Some(start..start + part?.len())
        };
        let Edited { object, model, usage } = event.edited;
        let (payload, kind) = (event.payload.to_owned(), event.kind.to_owned());
        Self { payload, kind, object: place(object), model: place(model), usage: place(usage) }
    }

    fn edited(&self) -> Edited<'_> {
        let part = |place: &Option<Range<usize>>| self.payload.get(place.clone()?);
        Edited { object: part(&self.object), model: part(&self.model), usage: part(&self.usage) }
    }
}

impl Edited<'_> {
    /// Replaces the upstream's name for the model with the client's, which is a JSON string.
    fn rename<'s>(&self, model: &'s str, splice: &mut Splice<'s>) {
        if let Some(known) = self.model {
            splice.replace(known, model);
        }
    }

    /// Writes the output into a last event that has none. Servers may leave it out, but SDKs read the output only
    /// there.
    fn repeat(&self, output: Option<String>, splice: &mut Splice<'_>) {
        let (Some(object), Some(output)) = (self.object, output) else { return };
        let Ok(RawOutput { output: known }) = serde_json::from_str(object) else { return };
        match known {
            Some(known) if is_hollow(known) => splice.replace(known.get(), output),
            Some(_) => {}
            None => splice.insert(object, "output", output),
        }
    }

    /// Rewrites a usage in which a member occurs twice, since a client might read one value while the other is billed.
    fn tell_once(&self, chunk: &Chunk<'_>, put_usage: UsageOf, splice: &mut Splice<'_>) {
        let repeats = |usage: &&str| usage.starts_with('{') && unique_members(usage).is_none();
        let Some(usage) = self.usage.filter(repeats) else { return };
        let Reported { prompt, cached, completion, .. } = chunk.usage().unwrap_or_default();
        let [prompt, cached, completion] = [prompt, cached, completion].map(Option::unwrap_or_default);
        let (told, mut out) = (Usage::of(prompt, cached, completion), BytesMut::new());
        put_usage(Settled { usage: told, cost: None, completed: 0 }, &mut out);
        splice.replace(usage, String::from_utf8_lossy(&out).into_owned());
    }

    /// Writes the cost into the usage, or a whole usage if the upstream has none.
    fn settle(&self, settled: Settled, put_usage: UsageOf, splice: &mut Splice<'_>) {
        let members = self.usage.and_then(unique_members);
        let (Some(usage), Some(members)) = (self.usage, members) else {
            let mut out = BytesMut::new();
            put_usage(settled, &mut out);
            let ours = String::from_utf8_lossy(&out).into_owned();
            return match (self.usage, self.object) {
                (Some(other), _) => splice.replace(other, ours),
                (None, Some(object)) => splice.insert(object, "usage", ours),
                (None, None) => splice.insert_at_root("usage", ours),
            };
        };
        let Some(cost) = settled.cost else { return };
        match members.get("cost") {
            Some(known) => splice.replace(known.get(), cost.to_string()),
            None => splice.insert(usage, "cost", cost.to_string()),
        }
    }
}

/// Number of a usage's nesting levels whose members are compared. Vendors use three levels.
const USAGE_LEVELS: usize = 8;

/// Reads a usage if no object in it repeats a name; `None` otherwise. When a name repeats, the larger count is billed,
/// but a client may read either.
fn unique_members(usage: &str) -> Option<Object<'_>> {
    fn read(json: &str, levels: usize) -> Option<Object<'_>> {
        let members = serde_json::from_str::<Object<'_>>(json).ok()?;
        let is_unique = |value: &RawValue| {
            Kind::of(value) != Kind::Object || (levels > 0 && read(value.get(), levels - 1).is_some())
        };
        let are_unique = members.iter().all(|(_, value)| is_unique(value));
        are_unique.then_some(members)
    }
    read(usage, USAGE_LEVELS)
}

/// The output in the last event of a stream. If it is `null`, this contains the text `null`.
#[derive(Deserialize)]
struct RawOutput<'a> {
    #[serde(borrow, default, deserialize_with = "even_null")]
    output: Option<&'a RawValue>,
}

pub(crate) struct PassedAnswer<'a> {
    source: &'a str,
    edited: Edited<'a>,
    put_usage: UsageOf,
}

impl<'a> PassedAnswer<'a> {
    /// Builds an answer from its text, with the model and the usage to edit.
    pub(crate) fn of(source: &'a str, edited: [Option<&'a RawValue>; 2], put_usage: UsageOf) -> Self {
        let [model, usage] = edited.map(|value| value.map(RawValue::get));
        let edited = Edited { object: None, model, usage };
        Self { source, edited, put_usage }
    }

    /// Returns whether the answer is nested more deeply than clients can be expected to read.
    pub(crate) fn is_too_deep(&self) -> bool {
        is_too_deep(self.source)
    }

    pub(crate) fn write(&self, generation: Generation<'_>, settled: Settled) -> Bytes {
        let model = generation.model_json();
        let mut splice = Splice::of(self.source);
        self.edited.rename(&model, &mut splice);
        self.edited.settle(settled, self.put_usage, &mut splice);
        Bytes::from(splice.finish())
    }
}

/// Writes an event whose payload may have several lines.
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
