//! Reads answers in OpenAI's Responses API.

use raw_json::RawString;
use serde::Deserialize;
use shared::json::{RawValue, each_element};
use upstream_error::UpstreamError;

use super::{calls::CallPlaces, ends, messages::read, pieces::Pieces};
use crate::{
    fold::WholeAnswer,
    nonsense::Nonsense,
    pieces::parts::{Delta, SignedPart, even_null, short},
    sse::payload::PayloadEnds,
    stream::{Chunk, ChunkChoice, Edited, Event, Original},
};

/// Empty line between two parts of a summary, as a JSON string.
const EMPTY_LINE: &str = r#""\n\n""#;

/// Reader of a response's events.
#[derive(Default)]
pub(super) struct ResponsesReader {
    calls: CallPlaces,
    /// Place of the item whose reasoning came last, and whether its summary is shown. Servers that send both send the
    /// same thoughts twice.
    reasoning: Option<(u64, bool)>,
}

/// Members of all events. Those that only some events have are read once the type is known.
#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<RawString<'a>>,
    sequence_number: Option<&'a RawValue>,
    output_index: Option<&'a RawValue>,
    summary_index: Option<&'a RawValue>,
    item: Option<&'a RawValue>,
    delta: Option<&'a RawValue>,
    logprobs: Option<&'a RawValue>,
    arguments: Option<&'a RawValue>,
    input: Option<&'a RawValue>,
    response: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

/// A whole response, or its state so far.
#[derive(Deserialize)]
struct RawResponse<'a> {
    id: Option<RawString<'a>>,
    status: Option<RawString<'a>>,
    incomplete_details: Option<RawDetails<'a>>,
    output: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    model: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawDetails<'a> {
    #[serde(borrow)]
    reason: Option<RawString<'a>>,
}

/// An item of the output. Only messages, reasoning and calls are shown.
#[derive(Deserialize)]
struct RawItem<'a> {
    #[serde(borrow, rename = "type")]
    kind: RawString<'a>,
    #[serde(borrow, default, deserialize_with = "short")]
    call_id: Option<RawString<'a>>,
    #[serde(borrow, default, deserialize_with = "short")]
    name: Option<RawString<'a>>,
    arguments: Option<RawString<'a>>,
    input: Option<&'a RawValue>,
    content: Option<&'a RawValue>,
    summary: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    encrypted_content: Option<&'a RawValue>,
}

/// A part of a message or of reasoning.
#[derive(Deserialize)]
struct RawPart<'a> {
    #[serde(borrow, rename = "type")]
    kind: RawString<'a>,
    text: Option<&'a RawValue>,
    refusal: Option<RawString<'a>>,
    logprobs: Option<&'a RawValue>,
}

impl ResponsesReader {
    pub(super) fn event<'a>(&mut self, payload: &'a str) -> Result<Event<'a>, Nonsense> {
        let raw: RawEvent<'_> = serde_json::from_str(payload)?;
        // An unknown event may have any value under this name.
        let response = raw.response.and_then(|told| serde_json::from_str::<RawResponse<'_>>(told.get()).ok());
        let (model, usage) = response.as_ref().map_or((None, None), |told| (told.model, told.usage));
        let [object, model, usage] = [raw.response, model, usage].map(|value| value.map(RawValue::get));
        let original = Original {
            payload,
            kind: raw.kind.map_or("", RawString::inner),
            number: raw.sequence_number,
            index: raw.output_index,
            edited: Edited { object, model, usage },
            item: raw.item,
            id: response.as_ref().and_then(|told| told.id),
            delta: raw.delta,
        };
        Ok(self.read(&raw, response, &original)?.with_original(original))
    }

    fn read<'a>(
        &mut self,
        raw: &RawEvent<'a>,
        response: Option<RawResponse<'a>>,
        event: &Original<'a>,
    ) -> Result<Event<'a>, Nonsense> {
        let index = || read::<u64>(raw.output_index);
        let kind = event.kind;
        let delta = match kind {
            "response.output_text.delta" => {
                let choice = ChunkChoice::of(Delta::of_text(read(raw.delta)?), raw.logprobs);
                return Ok(Event::Chunk(Chunk::new(vec![choice], None, None)));
            }
            "response.refusal.delta" => Some(Delta::of_refusal(read(raw.delta)?)),
            "response.reasoning_text.delta" => self.thought(index()?, false, raw.delta),
            "response.reasoning_summary_text.delta" => self.thought(index()?, true, raw.delta),
            "response.reasoning_summary_part.added" if self.goes_on(index()?, raw.summary_index) => {
                serde_json::from_str(EMPTY_LINE).ok().map(Delta::of_reasoning)
            }
            "response.output_item.done" => raw.item.and_then(encrypted),
            "response.output_item.added" => self.begin(index()?, &read(raw.item)?)?,
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.calls.add(index()?, read(raw.delta)?)
            }
            "response.function_call_arguments.done" | "response.custom_tool_call_input.done" => {
                self.calls.end(index()?, raw.arguments.or(raw.input).and_then(RawString::of))
            }
            "response.completed" | "response.incomplete" => {
                let response = response.map_or_else(|| read(raw.response), Ok)?;
                let reason = response.reason(kind == "response.completed", !self.calls.is_empty());
                return Ok(Event::end(reason, None, response.usage));
            }
            "response.failed" | "response.cancelled" | "response.error" | "error" => {
                return Ok(failed(event, response.and_then(|told| told.usage)));
            }
            "" if raw.error.is_some() => {
                return Ok(failed(event, response.and_then(|told| told.usage)));
            }
            // Events that repeat earlier ones, and those that a later version of the API adds.
            _ => None,
        };
        Ok(Event::piece(delta))
    }

    /// Reads what the ends of an event tell. Only the last event tells usage: others repeat the request, in which a client
    /// may write anything.
    pub(super) fn ends<'a>(&self, ends: &'a PayloadEnds) -> Event<'a> {
        let kind = ends::kind(ends);
        let word = match kind.as_deref().unwrap_or_default() {
            "response.completed" if self.calls.is_empty() => "stop",
            "response.completed" => "tool_calls",
            "response.incomplete" => "length",
            "response.failed" | "response.cancelled" | "response.error" | "error" => {
                let chunk = Chunk::new(Vec::new(), ends::usage(ends), None);
                return Event::Failed(UpstreamError::default(), chunk);
            }
            _ => return Event::piece(None),
        };
        Event::end(word, None, ends::usage(ends))
    }

    fn begin<'a>(&mut self, index: u64, item: &RawItem<'a>) -> Result<Option<Delta<'a>>, Nonsense> {
        match item.kind.inner() {
            "function_call" | "custom_tool_call" => {
                self.calls.begin(index, [item.call_id, item.name]).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Makes a piece of reasoning, unless the same thoughts came in the other form.
    fn thought<'a>(
        &mut self,
        index: u64,
        is_summary: bool,
        delta: Option<&'a RawValue>,
    ) -> Option<Delta<'a>> {
        if self.reasoning.is_none_or(|(of, _)| of != index) {
            self.reasoning = Some((index, is_summary));
        }
        delta.filter(|_| self.reasoning == Some((index, is_summary))).map(Delta::of_reasoning)
    }

    /// Returns whether this part of a summary comes after another part that is shown.
    fn goes_on(&self, index: u64, part: Option<&RawValue>) -> bool {
        self.reasoning == Some((index, true)) && part.is_some_and(|part| part.get() != "0")
    }
}

impl<'a> RawResponse<'a> {
    /// Returns why a response ended, as a word of chat if its status says no more.
    fn reason(&self, is_completed: bool, has_calls: bool) -> &'a str {
        let told = self.incomplete_details.as_ref().and_then(|details| details.reason);
        match told {
            _ if is_completed && has_calls => "tool_calls",
            _ if is_completed => "stop",
            Some(reason) => reason.inner(),
            None => "length",
        }
    }
}

/// Returns the encrypted part of an item that is whole, if it is reasoning. Items of other types may have any members.
fn encrypted(item: &RawValue) -> Option<Delta<'_>> {
    #[derive(Deserialize)]
    struct RawReasoning<'a> {
        #[serde(borrow, rename = "type")]
        kind: Option<&'a RawValue>,
        id: Option<&'a RawValue>,
        encrypted_content: Option<&'a RawValue>,
    }
    let item: RawReasoning<'_> = serde_json::from_str(item.get()).ok()?;
    item.kind.filter(|kind| kind.get() == r#""reasoning""#)?;
    encrypted_of(item.id, item.encrypted_content)
}

fn encrypted_of<'a>(id: Option<&'a RawValue>, content: Option<&'a RawValue>) -> Option<Delta<'a>> {
    let content = content.and_then(RawString::of).filter(|content| !content.is_empty())?;
    let id = id.and_then(RawString::of).unwrap_or(RawString::EMPTY);
    Some(Delta::of_signed(SignedPart::Encrypted { id, content }))
}

fn failed<'a>(event: &Original<'a>, usage: Option<&'a RawValue>) -> Event<'a> {
    Event::Failed(UpstreamError::read(event.payload.as_bytes()), Chunk::new(Vec::new(), usage, None))
}

pub(super) fn whole<'a>(body: &'a str, take: Pieces<'_>) -> Result<WholeAnswer<'a>, Nonsense> {
    let response: RawResponse<'_> = serde_json::from_str(body)?;
    let status = response.status.map_or("", RawString::inner);
    match status {
        "completed" | "incomplete" => {}
        _ if response.error.is_some() => return Err(Nonsense::Error),
        _ => return Err(Nonsense::Unfinished),
    }
    let (mut calls, mut is_read) = (0, Ok(()));
    each_element(response.output.ok_or(Nonsense::Choices)?, |item: RawItem<'_>| {
        is_read = add_item(&item, &mut calls, take);
        is_read.is_ok()
    })?;
    is_read?;
    let word = response.reason(status == "completed", calls > 0);
    Ok(WholeAnswer { word, usage: response.usage, model: response.model })
}

fn add_item(item: &RawItem<'_>, calls: &mut u64, take: Pieces<'_>) -> Result<(), serde_json::Error> {
    match item.kind.inner() {
        "function_call" | "custom_tool_call" => {
            let arguments = item.arguments.or(item.input.and_then(RawString::of));
            let arguments = arguments.unwrap_or(RawString::EMPTY);
            take(Delta::of_call(*calls, [item.call_id, item.name], arguments), None);
            *calls += 1;
        }
        "message" => each_part(item.content, |part| match part.kind.inner() {
            "output_text" => {
                let text = part.text.and_then(RawString::of).unwrap_or(RawString::EMPTY);
                take(Delta::of_text(text), part.logprobs);
            }
            "refusal" => {
                take(Delta::of_refusal(part.refusal.unwrap_or(RawString::EMPTY)), None);
            }
            _ => {}
        })?,
        "reasoning" => {
            if let Some(delta) = encrypted_of(item.id, item.encrypted_content) {
                take(delta, None);
            }
            let are_whole = add_thoughts(item.content, take)?;
            add_thoughts(item.summary.filter(|_| !are_whole), take)?;
        }
        _ => {}
    }
    Ok(())
}

/// Adds the parts of reasoning, with empty lines between them. Returns whether there are any.
fn add_thoughts(parts: Option<&RawValue>, take: Pieces<'_>) -> Result<bool, serde_json::Error> {
    let empty_line: &RawValue = serde_json::from_str(EMPTY_LINE)?;
    let mut before = None;
    each_part(parts, |part| {
        if let Some(text) = part.text {
            for text in before.into_iter().chain([text]) {
                take(Delta::of_reasoning(text), None);
            }
            before = Some(empty_line);
        }
    })?;
    Ok(before.is_some())
}

/// Passes on the parts of an item, if there are any.
fn each_part<'a>(
    parts: Option<&'a RawValue>,
    mut take: impl FnMut(RawPart<'a>),
) -> Result<(), serde_json::Error> {
    let Some(parts) = parts else { return Ok(()) };
    each_element(parts, |part| {
        take(part);
        true
    })
}
