//! Reads answers in OpenAI's Responses API.

mod items;
mod state;

use raw_json::RawString;
use serde::Deserialize;
use shared::json::RawValue;
use upstream_error::UpstreamError;

pub(super) use self::state::ResponsesReader;
use self::{
    items::{RawItem, is_call},
    state::EMPTY_LINE,
};
use super::{
    content::{self, ContentPlace, TextKind},
    ends,
    pieces::Pieces,
    progress::{PartKey, PartKind},
};
use crate::{
    pieces::{
        loose::{Raw, filled, is_hollow, number, object, text, word},
        nonsense::Nonsense,
        oddity::Oddity,
        parts::{CallArguments, Delta, even_null},
    },
    sse::payload::PayloadEnds,
    stream::{Chunk, Edited, Event, Original},
};

/// Events that only repeat other events, or report the progress of the vendor's own tools.
const ADD_NOTHING: [&str; 8] = [
    "response.created",
    "response.in_progress",
    "response.queued",
    "response.content_part.added",
    "response.content_part.done",
    "response.reasoning_summary_part.done",
    "response.output_text.annotation.added",
    "keepalive",
];

/// Members common to all events. Other members are read once the type is known.
#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    sequence_number: Raw<'a>,
    output_index: Raw<'a>,
    content_index: Raw<'a>,
    summary_index: Raw<'a>,
    item: Raw<'a>,
    delta: Raw<'a>,
    text: Raw<'a>,
    refusal: Raw<'a>,
    logprobs: Raw<'a>,
    arguments: Raw<'a>,
    input: Raw<'a>,
    response: Raw<'a>,
    error: Raw<'a>,
    output: Raw<'a>,
    status: Raw<'a>,
}

/// A whole response, or its state so far.
#[derive(Deserialize)]
struct RawResponse<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
    status: Raw<'a>,
    incomplete_details: Raw<'a>,
    output: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    model: Option<&'a RawValue>,
    error: Raw<'a>,
}

#[derive(Deserialize)]
struct RawDetails<'a> {
    #[serde(borrow)]
    reason: Raw<'a>,
}

enum ResponseStatus<'a> {
    Completed,
    Incomplete(&'a str),
    Failed,
    /// The response has not ended, or its status is unknown.
    Other,
}

impl ResponsesReader {
    pub(super) fn next(&mut self) {
        self.progress.next();
        self.before = self.state;
    }

    pub(super) fn again(&mut self) {
        self.progress.again();
        self.state = self.before;
    }

    pub(super) fn event<'a>(&mut self, payload: &'a str) -> Result<Event<'a>, Nonsense> {
        let raw: RawEvent<'_> = serde_json::from_str(payload)?;
        let kind = word(raw.kind);
        if (kind.is_empty() || kind == "response") && (raw.output.is_some() || raw.status.is_some()) {
            return self.whole(payload);
        }
        // An unknown event may have any value under this name.
        let response: Option<RawResponse<'_>> = object(raw.response);
        let (model, usage) = response.as_ref().map_or((None, None), |told| (told.model, told.usage));
        let [object, model, usage] = [raw.response, model, usage].map(|value| value.map(RawValue::get));
        let original = Original {
            payload,
            kind,
            number: raw.sequence_number,
            index: raw.output_index,
            edited: Edited { object, model, usage },
            item: raw.item,
            id: response.as_ref().and_then(|told| text(told.id)),
            delta: raw.delta,
        };
        Ok(self.read(&raw, response.as_ref(), &original)?.with_original(original))
    }

    fn read<'a>(
        &mut self,
        raw: &RawEvent<'a>,
        response: Option<&RawResponse<'a>>,
        event: &Original<'a>,
    ) -> Result<Event<'a>, Nonsense> {
        self.state.item = number(raw.output_index).unwrap_or(self.state.item);
        let item = self.state.item;
        let key = |kind, part| PartKey { kind, item, part: number(part).unwrap_or(0) };
        let usage = response.and_then(|told| told.usage);
        let mut out = Pieces::default();
        match event.kind {
            "response.output_text.delta" => {
                self.said(key(PartKind::Text, raw.content_index), raw.delta, &mut out);
                if let Some(piece) = out.list.first_mut() {
                    piece.list_tokens(raw.logprobs);
                }
            }
            "response.output_text.done" => {
                self.late(key(PartKind::Text, raw.content_index), raw.text, &mut out);
            }
            "response.refusal.delta" => {
                self.said(key(PartKind::Refusal, raw.content_index), raw.delta, &mut out);
            }
            "response.refusal.done" => {
                self.late(key(PartKind::Refusal, raw.content_index), raw.refusal, &mut out);
            }
            "response.reasoning_text.delta" => self.thought(item, false, raw.delta, &mut out),
            "response.reasoning_summary_text.delta" => self.thought(item, true, raw.delta, &mut out),
            "response.reasoning_summary_part.added" if self.goes_on(item, raw.summary_index) => {
                out.add(Delta::of_reasoning(EMPTY_LINE));
            }
            "response.reasoning_text.done" | "response.reasoning_summary_text.done" => {
                let is_summary = event.kind == "response.reasoning_summary_text.done";
                if self.state.reasoning.is_none_or(|(of, _)| of != item) {
                    self.thought(item, is_summary, raw.text, &mut out);
                    out.odd.add_if(Oddity::LateOutput, !out.list.is_empty());
                }
            }
            "response.reasoning_summary_part.added" => {}
            "response.output_item.added" => self.begin(raw.item, &mut out)?,
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.arguments(key(PartKind::Call, None), raw.delta, &mut out);
            }
            "response.function_call_arguments.done" | "response.custom_tool_call_input.done" => {
                let told = raw.arguments.or(raw.input);
                self.late_arguments(key(PartKind::Call, None), told, &mut out);
            }
            "response.output_item.done" => {
                if let Some(done) = object(raw.item) {
                    self.done(&done, item, &mut out)?;
                }
            }
            "response.failed" | "response.cancelled" | "response.error" | "error" => {
                return Ok(failed(event, usage));
            }
            "" if raw.error.is_some_and(|error| !is_hollow(error)) => return Ok(failed(event, usage)),
            kind => return self.last(kind, response, event, out),
        }
        Ok(Event::Chunk(out.into_chunk(None)))
    }

    /// Reads the last event, whatever its name, or an event that adds nothing.
    fn last<'a>(
        &mut self,
        kind: &str,
        response: Option<&RawResponse<'a>>,
        event: &Original<'a>,
        mut out: Pieces<'a>,
    ) -> Result<Event<'a>, Nonsense> {
        let is_known = matches!(kind, "response.completed" | "response.incomplete");
        let status = response.map_or(ResponseStatus::Other, RawResponse::status);
        if ADD_NOTHING.contains(&kind) || (!is_known && matches!(status, ResponseStatus::Other)) {
            let is_of_a_tool = kind.ends_with("_call.in_progress") || kind.contains("_call.");
            out.odd.add_if(Oddity::UnknownItem, !ADD_NOTHING.contains(&kind) && !is_of_a_tool);
            return Ok(Event::Chunk(out.into_chunk(None)));
        }
        if let Some(output) = response.and_then(|told| told.output) {
            self.output(output, &mut out)?;
        }
        let usage = response.and_then(|told| told.usage);
        let is_completed = kind == "response.completed";
        let (agrees, reason) = match status {
            ResponseStatus::Failed => {
                return Ok(failed(event, usage));
            }
            ResponseStatus::Completed => (is_completed, self.reason()),
            ResponseStatus::Incomplete(reason) => (kind == "response.incomplete", reason),
            ResponseStatus::Other if is_completed => (true, self.reason()),
            ResponseStatus::Other => (true, "length"),
        };
        self.end_calls(&mut out);
        out.odd.add_if(Oddity::TerminalEvent, !agrees);
        Ok(ended(reason, usage, out))
    }

    /// Reads the beginning and the end of an event. Usage counts only in the last event: other events repeat the
    /// request, in which a client may have written anything.
    pub(super) fn ends<'a>(&self, ends: &'a PayloadEnds) -> Event<'a> {
        let kind = ends::kind(ends);
        let word = match kind.as_deref().unwrap_or_default() {
            "response.completed" => self.reason(),
            "response.incomplete" => "length",
            "response.failed" | "response.cancelled" | "response.error" | "error" => {
                let chunk = Chunk::new(Vec::new(), ends::usage(ends), None);
                return Event::Failed(UpstreamError::default(), chunk);
            }
            _ => return Event::nothing(),
        };
        Event::end(word, None, ends::usage(ends))
    }

    /// Returns why a completed response ended.
    const fn reason(&self) -> &'static str {
        if self.progress.has_calls() { "tool_calls" } else { "stop" }
    }

    fn whole<'a>(&mut self, body: &'a str) -> Result<Event<'a>, Nonsense> {
        let response: RawResponse<'_> = serde_json::from_str(body)?;
        // Some servers send the response so far as an event without a type.
        let is_begun = matches!(word(response.status), "queued" | "in_progress");
        if is_begun && response.output.is_none_or(is_hollow) && response.error.is_none_or(is_hollow) {
            return Ok(Event::nothing());
        }
        let mut out = Pieces::default();
        if let Some(output) = response.output {
            self.output(output, &mut out)?;
        }
        self.end_calls(&mut out);
        out.odd = out.odd.without(&[Oddity::LateOutput, Oddity::LateArguments]);
        let is_failed = response.error.is_some_and(|error| !is_hollow(error));
        let mut event = match response.status() {
            ResponseStatus::Failed | ResponseStatus::Other if is_failed => {
                let chunk = Chunk::new(Vec::new(), response.usage, None);
                Event::Failed(UpstreamError::read(body.as_bytes()), chunk)
            }
            ResponseStatus::Failed => {
                Event::Failed(UpstreamError::default(), Chunk::new(Vec::new(), response.usage, None))
            }
            ResponseStatus::Completed if response.output.is_some() => {
                ended(self.reason(), response.usage, out)
            }
            ResponseStatus::Incomplete(reason) => ended(reason, response.usage, out),
            ResponseStatus::Completed | ResponseStatus::Other => Event::Chunk(out.into_chunk(response.usage)),
        };
        if let Event::Chunk(chunk) | Event::Failed(_, chunk) = &mut event {
            chunk.model = response.model.map(RawValue::get);
            chunk.is_whole = true;
        }
        Ok(event)
    }

    /// Adds a piece of a text. The value of the piece may have any form.
    fn said<'a>(&mut self, key: PartKey, delta: Raw<'a>, out: &mut Pieces<'a>) {
        let from = out.list.len();
        match (text(delta), delta) {
            (Some(text), _) => out.add(delta_of(key.kind, text)),
            (None, Some(other)) => content::add(other, ContentPlace { choice: 0, kind: TextKind::Said }, out),
            (None, None) => {}
        }
        for piece in &out.list[from..] {
            if let Some(text) = piece.delta.content.or(piece.delta.refusal) {
                self.progress.add(key, text);
            }
        }
    }

    /// Adds the rest of a whole text, after the pieces that were already passed on.
    fn late<'a>(&mut self, key: PartKey, whole: Raw<'a>, out: &mut Pieces<'a>) {
        if let Some(rest) = self.progress.rest(key, text(whole)) {
            out.odd.add(Oddity::LateOutput);
            out.add(delta_of(key.kind, rest));
        }
    }

    /// Adds a piece of reasoning, unless the same thoughts already came in the other form.
    fn thought<'a>(&mut self, item: u64, is_summary: bool, delta: Raw<'a>, out: &mut Pieces<'a>) {
        if self.state.reasoning.is_none_or(|(of, _)| of != item) {
            self.state.reasoning = Some((item, is_summary));
        }
        if self.state.reasoning != Some((item, is_summary)) {
            return;
        }
        match (text(delta), delta) {
            (Some(text), _) => out.add(Delta::of_reasoning(text)),
            (None, Some(other)) => {
                content::add(other, ContentPlace { choice: 0, kind: TextKind::Thought }, out);
            }
            (None, None) => {}
        }
    }

    /// Returns whether this part of a summary follows another part that is shown.
    fn goes_on(&self, item: u64, part: Raw<'_>) -> bool {
        self.state.reasoning == Some((item, true)) && number(part) != Some(0)
    }

    fn begin<'a>(&mut self, item: Raw<'a>, out: &mut Pieces<'a>) -> Result<(), Nonsense> {
        if let Some(item) = object::<RawItem<'_>>(item).filter(|item| is_call(word(item.kind))) {
            let key = PartKey { kind: PartKind::Call, item: self.state.item, part: 0 };
            self.begin_call(&item, key, out)?;
        }
        Ok(())
    }

    fn arguments<'a>(&mut self, key: PartKey, delta: Raw<'a>, out: &mut Pieces<'a>) {
        let Some(place) = self.progress.call(key) else { return };
        let Some(arguments) = delta.and_then(|delta| CallArguments::read(delta, &mut out.odd)) else {
            return;
        };
        self.progress.add(key, arguments.raw());
        out.add(Delta::of_call(place, [None, None], Some(arguments)));
    }
}

impl<'a> RawResponse<'a> {
    fn status(&self) -> ResponseStatus<'a> {
        match word(self.status) {
            "completed" | "complete" => ResponseStatus::Completed,
            "incomplete" => {
                let reason = object::<RawDetails<'_>>(self.incomplete_details)
                    .and_then(|details| filled(details.reason))
                    .map_or("length", RawString::inner);
                ResponseStatus::Incomplete(reason)
            }
            "failed" | "cancelled" => ResponseStatus::Failed,
            _ => ResponseStatus::Other,
        }
    }
}

fn delta_of(kind: PartKind, text: RawString<'_>) -> Delta<'_> {
    if kind == PartKind::Refusal { Delta::of_refusal(text) } else { Delta::of_text(text) }
}

/// Ends a response with its last pieces.
fn ended<'a>(reason: &'a str, usage: Option<&'a RawValue>, pieces: Pieces<'a>) -> Event<'a> {
    let mut event = Event::end(reason, None, usage);
    if let Event::Chunk(chunk) | Event::Failed(_, chunk) = &mut event {
        chunk.prepend(pieces.list, pieces.odd);
    }
    event
}

fn failed<'a>(event: &Original<'a>, usage: Option<&'a RawValue>) -> Event<'a> {
    Event::Failed(UpstreamError::read(event.payload.as_bytes()), Chunk::new(Vec::new(), usage, None))
}
