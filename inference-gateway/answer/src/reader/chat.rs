//! Reads answers in OpenAI's chat API, as OpenAI and some fifty other servers write them.

mod forms;
mod raw;

use raw_json::RawString;
use reply::MAX_CHOICES;
use shared::{
    generation::FinishReason,
    json::{RawValue, from_slice},
};
use upstream_error::UpstreamError;

use self::{
    forms::of_vendor,
    raw::{RawCall, RawChoice, RawChunk, RawMessage},
};
use super::{
    content::{self, ContentPlace, TextKind},
    pieces::Pieces,
    progress::{PartKey, PartKind, Progress},
};
use crate::{
    pieces::{
        finish::FinishWord,
        loose::{Loose, filled, number, text},
        nonsense::Nonsense,
        oddity::Oddity,
        parts::{CallArguments, Delta, ToolCall, short},
    },
    sse::payload::is_done,
    stream::{Chunk, ChunkChoice, Event},
};

/// Reader of chunks and of whole completions.
#[derive(Default)]
pub(crate) struct ChatReader {
    /// Number of requested choices; 0 if unknown.
    pub(super) choices: u64,
    /// Whether more events may come. These may repeat what whole messages contained.
    remembers: bool,
    /// What whole messages contained. Deltas are not recorded, since nearly every chunk is a delta.
    messages: Progress,
    /// Three sets of choices, as bits: those to which a delta added a text, a thought, or a call.
    added: [u64; 3],
}

impl ChatReader {
    /// Makes a reader of a stream, or of a body that may turn out to be a stream.
    pub(super) fn of_events() -> Self {
        Self { remembers: true, ..Self::default() }
    }

    pub(super) fn next(&mut self) {
        self.messages.next();
    }

    pub(super) fn again(&mut self) {
        self.messages.again();
    }

    /// Reads the payload of an event, or a whole completion.
    pub(crate) fn event<'a>(&mut self, payload: &'a [u8]) -> Result<Event<'a>, Nonsense> {
        if is_done(payload) {
            return Ok(Event::Done);
        }
        let trimmed = payload.trim_ascii();
        // Without this check, serde would read a list as the struct's members, in the order of their declaration.
        if trimmed.first() == Some(&b'[') {
            let error = UpstreamError::read(trimmed);
            let chunk = Chunk::new(Vec::new(), None, None);
            return if error.message.is_empty() {
                Err(Nonsense::Malformed { line: 1, column: 1 })
            } else {
                Ok(Event::Failed(error, chunk))
            };
        }
        let raw = from_slice::<RawChunk<'_>>(payload)?.unwrapped();
        let mut out = Pieces::default();
        if raw.is_failure(&mut out) {
            let chunk = Chunk::new(Vec::new(), raw.usage, raw.timings);
            return Ok(Event::Failed(UpstreamError::read(payload), chunk));
        }
        let RawChunk { choices, model, usage, timings, .. } = raw;
        let mut end = ChatEnd::default();
        let mut told = usage;
        for (place, choice) in choices.0.into_iter().enumerate() {
            told = told.or(choice.usage);
            self.choice(place, choice, &mut end, &mut out)?;
        }
        if self.choices == 1 {
            out.end_once();
        }
        let is_last = out.list.iter().any(|piece| piece.finish.is_some());
        let told = told.or_else(|| if is_last { of_vendor(payload) } else { None });
        out.odd.add_if(Oddity::UsagePlace, told.is_some() && usage.is_none());
        let mut chunk = Chunk::new(out.list, told, timings);
        (chunk.model, chunk.unknown_finish) = (model.map(RawValue::get), end.unknown);
        chunk.odd = out.odd;
        // After a reason such as `abort`, the generated text must not count as an answer.
        Ok(if end.failed { Event::Failed(UpstreamError::default(), chunk) } else { Event::Chunk(chunk) })
    }

    /// Adds a choice, or a part of a choice.
    fn choice<'a>(
        &mut self,
        place: usize,
        choice: RawChoice<'a>,
        end: &mut ChatEnd<'a>,
        out: &mut Pieces<'a>,
    ) -> Result<(), Nonsense> {
        let told = number(choice.index).map_or(place, |index| usize::try_from(index).unwrap_or(usize::MAX));
        let index = if self.choices == 1 { 0 } else { told };
        out.odd.add_if(Oddity::ChoicesMerged, index != told);
        if index >= usize::from(MAX_CHOICES) {
            out.odd.add(Oddity::UnknownItem);
            return Ok(());
        }
        let first = out.list.len();
        if let Loose::Object(delta) = choice.delta {
            let from = out.list.len();
            add_message(*delta, index, out)?;
            self.note_added(index, &out.list[from..]);
        }
        if let Loose::Object(message) = choice.message {
            out.odd.add(Oddity::MessageInStream);
            self.message(*message, index, out)?;
        }
        if let Some(text) = filled(choice.text) {
            self.whole(Delta::of_text(text), index, false, out);
            out.odd.add(Oddity::MessageInStream);
        }
        if out.list.len() == first {
            out.push(index, Delta::default(), None);
        }
        let pieces = &mut out.list[first..];
        pieces[0].list_tokens(choice.logprobs);
        let calls = pieces.iter().any(|piece| !piece.delta.calls().is_empty());
        if let (Some(reason), Some(last)) = (filled(choice.finish_reason), pieces.last_mut()) {
            let (reason, read) = (reason.inner(), FinishWord::read(reason.inner()));
            end.failed |= read == FinishWord::Failure;
            end.unknown = end.unknown.or(Some(reason).filter(|_| read == FinishWord::Unknown));
            out.odd.add_if(Oddity::FinishUnknown, read == FinishWord::Unknown);
            let has_calls = self.added[2] & bit(index) != 0 || calls;
            // Some servers report `stop` for calls too.
            let is_call = has_calls && read.reason() == Some(FinishReason::Stop);
            last.finish = if is_call { Some(FinishReason::ToolCalls) } else { read.reason() };
            last.stop = text(choice.stop_reason).or(text(choice.matched_stop));
        }
        Ok(())
    }

    /// Adds the content of a whole message that was not passed on earlier.
    fn message<'a>(
        &mut self,
        message: RawMessage<'a>,
        index: usize,
        out: &mut Pieces<'a>,
    ) -> Result<(), Nonsense> {
        let mut whole = Pieces::default();
        add_message(message, index, &mut whole)?;
        out.odd.join(whole.odd);
        // A message contains all of its calls, and the next message may repeat them.
        let key = PartKey { kind: PartKind::Call, item: index as u64, part: 0 };
        let has_calls = self.messages.is_given(key);
        let name = whole.list.iter().flat_map(|piece| piece.delta.calls()).find_map(|call| call.name);
        if let Some(name) = name.filter(|_| self.remembers) {
            self.messages.add(key, name);
        }
        for piece in whole.list {
            self.whole(piece.delta, index, has_calls, out);
        }
        Ok(())
    }

    fn whole<'a>(&mut self, mut delta: Delta<'a>, index: usize, has_calls: bool, out: &mut Pieces<'a>) {
        let (item, part, remembers) = (index as u64, out.list.len() as u64, self.remembers);
        let [texts, thoughts, calls] = self.added.map(|lane| lane & bit(index) != 0);
        let mut fresh = |kind, text: Option<RawString<'a>>, is_added: bool| {
            let text = text.filter(|_| !is_added);
            let is_empty = text.is_some_and(RawString::is_empty);
            if is_empty || !remembers { text } else { self.messages.more(PartKey { kind, item, part }, text) }
        };
        delta.content = fresh(PartKind::Text, delta.content, texts);
        delta.refusal = fresh(PartKind::Refusal, delta.refusal, texts);
        delta.reasoning = fresh(PartKind::Thought, delta.reasoning, thoughts);
        if calls || has_calls {
            delta.tool_calls.clear();
        }
        if thoughts {
            delta.reasoning_details = None;
        }
        if !delta.is_nothing() || delta.is_carried() {
            out.push(index, delta, None);
        }
    }

    fn note_added(&mut self, index: usize, pieces: &[ChunkChoice<'_>]) {
        for delta in pieces.iter().map(|piece| &piece.delta) {
            let has = [
                delta.content.or(delta.refusal).is_some_and(|text| !text.is_empty()),
                delta.reasoning.is_some_and(|text| !text.is_empty()) || delta.reasoning_details.is_some(),
                !delta.tool_calls.is_empty(),
            ];
            for (lane, has) in self.added.iter_mut().zip(has) {
                *lane |= if has { bit(index) } else { 0 };
            }
        }
    }
}

impl<'a> Event<'a> {
    /// Reads one event of a chat stream, without its context.
    pub fn read(payload: &'a [u8]) -> Result<Self, Nonsense> {
        ChatReader::default().event(payload)
    }
}

/// How an event ends its choices.
#[derive(Default)]
struct ChatEnd<'a> {
    failed: bool,
    unknown: Option<&'a str>,
}

/// Adds the content of a message or a delta.
fn add_message<'a>(message: RawMessage<'a>, index: usize, out: &mut Pieces<'a>) -> Result<(), Nonsense> {
    let (thoughts, formed) = message.thoughts();
    let mut delta = Delta {
        content: text(message.content),
        refusal: text(message.refusal),
        reasoning: thoughts,
        tool_calls: Vec::with_capacity(message.tool_calls.0.len()),
        reasoning_details: message.reasoning_details,
        extra_content: message.extra_content,
        parts: message.faregate_parts,
        signed: None,
    };
    for call in message.tool_calls.0 {
        delta.tool_calls.push(read_call(call, out)?);
    }
    if let Loose::Object(old) = message.function_call
        && (filled(old.name).is_some() || filled(old.arguments).is_some())
        && delta.tool_calls.is_empty()
    {
        out.odd.add(Oddity::OldCall);
        let call = RawCall { function: Loose::Object(old), ..RawCall::default() };
        delta.tool_calls.push(ToolCall { index: Some(0), ..read_call(call, out)? });
    }
    if let Some(value) = formed {
        content::add(value, ContentPlace { choice: index, kind: TextKind::Thought }, out);
    }
    let content = message.content.filter(|_| delta.content.is_none());
    if let Some(content) = content {
        // Thoughts come before the text, and calls after it.
        let calls = std::mem::take(&mut delta.tool_calls);
        if !delta.is_nothing() {
            out.push(index, std::mem::take(&mut delta), None);
        }
        content::add(content, ContentPlace { choice: index, kind: TextKind::Said }, out);
        delta.tool_calls = calls;
    }
    if !delta.is_nothing() || delta.is_carried() {
        out.push(index, delta, None);
    }
    Ok(())
}

fn read_call<'a>(call: RawCall<'a>, out: &mut Pieces<'a>) -> Result<ToolCall<'a>, Nonsense> {
    let function = call.function.object().unwrap_or_default();
    let arguments = function.arguments.or(call.arguments);
    // Some proxies write the word `null` for an absent id or name.
    let told = |text: Option<RawString<'a>>| text.filter(|text| text.inner() != "null");
    Ok(ToolCall {
        index: number(call.index),
        id: told(short(call.id)?),
        name: told(short(function.name.or(call.name))?),
        arguments: arguments.and_then(|arguments| CallArguments::read(arguments, &mut out.odd)),
        extra_content: call.extra_content,
    })
}

const fn bit(index: usize) -> u64 {
    1 << (index % 64)
}
