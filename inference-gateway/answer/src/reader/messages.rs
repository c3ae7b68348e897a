//! Reads answers in Anthropic's Messages API.

use raw_json::RawString;
use serde::Deserialize;
use shared::json::{Kind, RawValue, each_element};
use upstream_error::UpstreamError;

use super::{
    content::{self, ContentPlace, TextKind},
    pieces::Pieces,
    progress::{Given, PartKey, PartKind, Progress},
};
use crate::{
    pieces::{
        loose::{Raw, filled, is_hollow, number, object, text, word},
        nonsense::Nonsense,
        oddity::Oddity,
        parts::{CallArguments, Delta, SignedPart, even_null, short},
    },
    stream::{Chunk, Edited, Event, Original},
};

/// Maximum number of blocks in a message: more than any model makes.
const MAX_BLOCKS: u64 = 4096;
/// Types of blocks that belong to the vendor's own tools. Clients of other APIs cannot read them.
const NOT_SHOWN: [&str; 11] = [
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "mcp_tool_use",
    "mcp_tool_result",
    "container_upload",
    "compaction",
];

/// Reader of a message's events.
#[derive(Default)]
pub(super) struct MessagesReader {
    pub(super) progress: Progress,
    state: MessageState,
    before: MessageState,
}

/// State that the last event may have changed, so that it can be undone.
#[derive(Clone, Copy, Default)]
struct MessageState {
    /// Number of messages that have begun so far in this stream. The blocks of each message are numbered from zero
    /// again.
    messages: u64,
    /// Id of the most recent message.
    id: Option<Given>,
    /// Index of the last block.
    block: u64,
}

/// Members common to all events. Other members are read once the type is known, so that events of unknown types may
/// contain anything.
#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    index: Raw<'a>,
    message: Raw<'a>,
    content_block: Raw<'a>,
    delta: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    usage: Option<&'a RawValue>,
    error: Raw<'a>,
    content: Raw<'a>,
    stop_reason: Raw<'a>,
}

/// A whole message, or the beginning of a message.
#[derive(Deserialize)]
struct RawMessage<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
    content: Raw<'a>,
    stop_reason: Raw<'a>,
    stop_sequence: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    model: Option<&'a RawValue>,
}

/// A block of a message. Only texts, thoughts and calls are shown.
#[derive(Deserialize)]
struct RawBlock<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    id: Raw<'a>,
    name: Raw<'a>,
    text: Raw<'a>,
    thinking: Raw<'a>,
    signature: Raw<'a>,
    /// A thought that only the vendor can decrypt.
    data: Raw<'a>,
    input: Raw<'a>,
}

/// A delta of a block, or the end of a message.
#[derive(Deserialize)]
struct RawDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    text: Raw<'a>,
    thinking: Raw<'a>,
    signature: Raw<'a>,
    partial_json: Raw<'a>,
    stop_reason: Raw<'a>,
    stop_sequence: Raw<'a>,
}

impl MessagesReader {
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
        if kind == "message" || (kind.is_empty() && (raw.content.is_some() || raw.stop_reason.is_some())) {
            return self.whole(payload);
        }
        let message: Option<RawMessage<'_>> =
            if kind == "message_start" { object(raw.message) } else { None };
        let (model, usage) = match &message {
            Some(message) => (message.model, message.usage),
            None => (None, raw.usage),
        };
        let [object, model, usage] =
            [raw.message.filter(|_| message.is_some()), model, usage].map(|value| value.map(RawValue::get));
        let edited = Edited { object, model, usage };
        let original = Original {
            payload,
            kind,
            number: None,
            index: raw.index,
            edited,
            item: raw.content_block,
            id: None,
            delta: raw.delta,
        };
        Ok(self.read(&raw, message.as_ref(), &original)?.with_original(original))
    }

    fn read<'a>(
        &mut self,
        raw: &RawEvent<'a>,
        message: Option<&RawMessage<'a>>,
        event: &Original<'a>,
    ) -> Result<Event<'a>, Nonsense> {
        let block = number(raw.index).unwrap_or(self.state.block);
        self.state.block = block;
        let mut out = Pieces::default();
        match event.kind {
            "content_block_delta" => self.addition(block, raw.delta, &mut out),
            "content_block_start" => {
                if let Some(started) = object(raw.content_block) {
                    self.begin(block, &started, &mut out)?;
                    let has_arguments = out.list.iter().any(|piece| piece.delta.has_arguments());
                    out.odd.add_if(Oddity::LateArguments, has_arguments);
                }
            }
            "content_block_stop" => self.end_call(block, &mut out),
            "message_start" => {
                self.start(message, &mut out);
                return Ok(Event::Chunk(out.into_chunk(message.and_then(|message| message.usage))));
            }
            "message_delta" => {
                let delta: Option<RawDelta<'_>> = object(raw.delta);
                let delta = delta.as_ref();
                return Ok(match filled(delta.and_then(|delta| delta.stop_reason)) {
                    Some(reason) => {
                        let stop = text(delta.and_then(|delta| delta.stop_sequence));
                        Event::end(reason.inner(), stop, raw.usage)
                    }
                    None => Event::Chunk(out.into_chunk(raw.usage)),
                });
            }
            "message_stop" => return Ok(Event::Done),
            "error" => return Ok(failed(event.payload)),
            // Errors from proxies between gateway and vendor have a different form.
            "" if raw.error.is_some_and(|error| !is_hollow(error)) => return Ok(failed(event.payload)),
            kind => out.odd.add_if(Oddity::UnknownItem, kind != "ping"),
        }
        Ok(Event::Chunk(out.into_chunk(None)))
    }

    /// Begins a message. If the id differs from the last id, this is a new message, whose blocks are numbered from zero
    /// again.
    fn start(&mut self, message: Option<&RawMessage<'_>>, out: &mut Pieces<'_>) {
        let id = message.map(|message| Given::of(word(message.id)));
        if self.state.messages > 0 && self.state.id != id {
            out.odd.add(Oddity::Restarted);
            out.add(Delta::of_signed(SignedPart::Restarted));
        }
        if self.state.messages == 0 || self.state.id != id {
            self.state.messages += 1;
        }
        self.state.id = id;
    }

    fn key(&self, kind: PartKind, block: u64) -> PartKey {
        PartKey { kind, item: self.state.messages, part: block }
    }

    fn begin<'a>(
        &mut self,
        block: u64,
        started: &RawBlock<'a>,
        out: &mut Pieces<'a>,
    ) -> Result<(), Nonsense> {
        match word(started.kind) {
            "tool_use" => {
                let key = self.key(PartKind::Call, block);
                let place = self.progress.begin_call(key)?;
                let name = [short(started.id)?, short(started.name)?];
                // Some servers send the whole input at once. After that, they send no pieces, or the same input again
                // in pieces.
                let input = started.input.filter(|input| has_members(input) && !self.progress.is_given(key));
                let arguments = input.map_or(CallArguments::Text(RawString::EMPTY), CallArguments::of_input);
                if input.is_some() {
                    self.progress.add(key, arguments.raw());
                    self.progress.add(PartKey { kind: PartKind::Text, ..key }, arguments.raw());
                }
                out.add(Delta::of_call(place, name, Some(arguments)));
            }
            "text" => add_text(TextKind::Said, started.text, out),
            "thinking" => {
                add_text(TextKind::Thought, started.thinking, out);
                add_signature(started.signature, out);
            }
            "redacted_thinking" => {
                if let Some(data) = filled(started.data) {
                    out.add(Delta::of_signed(SignedPart::Redacted(data)));
                }
            }
            kind => out.odd.add_if(Oddity::UnknownItem, !NOT_SHOWN.contains(&kind)),
        }
        Ok(())
    }

    fn addition<'a>(&mut self, block: u64, delta: Raw<'a>, out: &mut Pieces<'a>) {
        let Some(delta) = object::<RawDelta<'_>>(delta) else { return };
        match word(delta.kind) {
            "text_delta" => add_text(TextKind::Said, delta.text, out),
            "thinking_delta" => add_text(TextKind::Thought, delta.thinking, out),
            "input_json_delta" => {
                let key = self.key(PartKind::Call, block);
                // An input that arrived whole is recorded under a second key, of kind `Text`.
                let is_whole = self.progress.is_given(PartKey { kind: PartKind::Text, ..key });
                let Some(place) = self.progress.call(key).filter(|_| !is_whole) else { return };
                let Some(raw) = delta.partial_json else { return };
                let Some(arguments) = CallArguments::read(raw, &mut out.odd) else { return };
                self.progress.add(key, arguments.raw());
                out.add(Delta::of_call(place, [None, None], Some(arguments)));
            }
            "signature_delta" => add_signature(delta.signature, out),
            // Citations are not shown.
            "citations_delta" => {}
            _ => out.odd.add(Oddity::UnknownItem),
        }
    }

    /// Ends the call in a block. Only here is it known whether a call has no arguments.
    fn end_call(&mut self, block: u64, out: &mut Pieces<'_>) {
        let key = self.key(PartKind::Call, block);
        if let Some(place) = self.progress.call(key).filter(|_| !self.progress.is_given(key)) {
            self.progress.add(key, RawString::trusted(r#""{}""#));
            out.add(Delta::of_call(place, [None, None], Some(CallArguments::NONE)));
        }
    }

    fn whole<'a>(&mut self, body: &'a str) -> Result<Event<'a>, Nonsense> {
        let message: RawMessage<'_> = serde_json::from_str(body)?;
        let mut out = Pieces::default();
        if let Some(content) = message.content {
            self.blocks(content, &mut out)?;
        }
        let mut event = match filled(message.stop_reason) {
            Some(reason) => Event::end(reason.inner(), text(message.stop_sequence), message.usage),
            None => Event::Chunk(Chunk::new(Vec::new(), message.usage, None)),
        };
        if let Event::Chunk(chunk) | Event::Failed(_, chunk) = &mut event {
            chunk.prepend(out.list, out.odd);
            chunk.model = message.model.map(RawValue::get);
            chunk.is_whole = true;
        }
        Ok(event)
    }

    fn blocks<'a>(&mut self, content: &'a RawValue, out: &mut Pieces<'a>) -> Result<(), Nonsense> {
        if Kind::of(content) != Kind::Array {
            content::add(content, ContentPlace { choice: 0, kind: TextKind::Said }, out);
            return Ok(());
        }
        let (mut read, mut place) = (Ok(()), 0);
        let _ = each_element(content, |block: &RawValue| {
            match object(Some(block)) {
                Some(block) => {
                    read = self.begin(place, &block, out);
                    self.end_call(place, out);
                }
                None => out.odd.add(Oddity::UnknownItem),
            }
            place += 1;
            if place > MAX_BLOCKS {
                read = Err(Nonsense::Beyond);
            }
            read.is_ok()
        });
        read
    }
}

/// Adds a text that is not empty.
fn add_text<'a>(kind: TextKind, raw: Raw<'a>, out: &mut Pieces<'a>) {
    let from = out.list.len();
    match (text(raw), raw) {
        (Some(text), _) if !text.is_empty() => out.add(content::delta(kind, text)),
        (None, Some(other)) => content::add(other, ContentPlace { choice: 0, kind }, out),
        (Some(_), _) | (None, None) => {}
    }
    for Delta { reasoning, signed, .. } in out.list[from..].iter_mut().map(|piece| &mut piece.delta) {
        *signed = reasoning.map(SignedPart::Thought);
    }
}

/// Adds the signature of the preceding thought.
fn add_signature<'a>(raw: Raw<'a>, out: &mut Pieces<'a>) {
    if let Some(signature) = filled(raw) {
        out.add(Delta::of_signed(SignedPart::Signature(signature)));
    }
}

/// Returns whether an input has members. A call begins with an empty input.
fn has_members(input: &RawValue) -> bool {
    match Kind::of(input) {
        Kind::Null => false,
        Kind::String => filled(Some(input)).is_some(),
        Kind::Object | Kind::Array => !is_hollow(input),
        Kind::Bool | Kind::Number => true,
    }
}

fn failed(payload: &str) -> Event<'_> {
    Event::Failed(UpstreamError::read(payload.as_bytes()), Chunk::new(Vec::new(), None, None))
}
