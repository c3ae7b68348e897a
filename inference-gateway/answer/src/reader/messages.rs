//! Reads answers in Anthropic's Messages API.

use raw_json::RawString;
use serde::Deserialize;
use serde_json::Value;
use shared::json::RawValue;
use upstream_error::UpstreamError;

use super::{calls::CallPlaces, pieces::Pieces};
use crate::{
    fold::WholeAnswer,
    nonsense::Nonsense,
    pieces::parts::{AtMost, Delta, SignedPart, even_null, short},
    stream::{Chunk, Edited, Event, Original},
};

/// Most blocks of a message: more than any model makes.
const MAX_BLOCKS: usize = 4096;

/// Reader of a message's events.
#[derive(Default)]
pub(super) struct MessagesReader {
    calls: CallPlaces,
}

/// Members of all events. Those that only some events have are read once the type is known, so that events of unknown
/// types may have any members.
#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<RawString<'a>>,
    index: Option<&'a RawValue>,
    message: Option<&'a RawValue>,
    content_block: Option<&'a RawValue>,
    delta: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    usage: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

/// A whole message, or the beginning of one.
#[derive(Deserialize)]
struct RawMessage<'a> {
    content: Option<AtMost<RawBlock<'a>, MAX_BLOCKS>>,
    stop_reason: Option<RawString<'a>>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    model: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

/// A block of a message. Only texts, thoughts and calls are shown.
#[derive(Deserialize)]
struct RawBlock<'a> {
    #[serde(borrow, rename = "type")]
    kind: RawString<'a>,
    #[serde(borrow, default, deserialize_with = "short")]
    id: Option<RawString<'a>>,
    #[serde(borrow, default, deserialize_with = "short")]
    name: Option<RawString<'a>>,
    text: Option<RawString<'a>>,
    thinking: Option<&'a RawValue>,
    signature: Option<&'a RawValue>,
    data: Option<&'a RawValue>,
    input: Option<&'a RawValue>,
}

/// An addition to a block, or the end of a message.
#[derive(Deserialize)]
struct RawDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<RawString<'a>>,
    text: Option<RawString<'a>>,
    thinking: Option<&'a RawValue>,
    signature: Option<&'a RawValue>,
    partial_json: Option<RawString<'a>>,
    stop_reason: Option<RawString<'a>>,
    stop_sequence: Option<RawString<'a>>,
}

impl MessagesReader {
    pub(super) fn event<'a>(&mut self, payload: &'a str) -> Result<Event<'a>, Nonsense> {
        let raw: RawEvent<'_> = serde_json::from_str(payload)?;
        let kind = raw.kind.map_or("", RawString::inner);
        let message = if kind == "message_start" { Some(read::<RawMessage<'_>>(raw.message)?) } else { None };
        let (model, usage) = match &message {
            Some(message) => (message.model, message.usage),
            None => (None, raw.usage),
        };
        let [object, model, usage] =
            [raw.message.filter(|_| message.is_some()), model, usage].map(|value| value.map(RawValue::get));
        let edited = Edited { object, model, usage };
        let index = raw.index;
        let original =
            Original { payload, kind, number: None, index, edited, item: None, id: None, delta: None };
        Ok(self.read(&raw, message, &original)?.with_original(original))
    }

    fn read<'a>(
        &mut self,
        raw: &RawEvent<'a>,
        message: Option<RawMessage<'a>>,
        event: &Original<'a>,
    ) -> Result<Event<'a>, Nonsense> {
        let index = || read::<u64>(raw.index);
        let delta = match event.kind {
            "content_block_delta" => self.addition(index()?, &read(raw.delta)?),
            "content_block_start" => self.begin(index()?, &read(raw.content_block)?)?,
            "content_block_stop" => self.calls.end(index()?, None),
            "message_start" => {
                let usage = message.and_then(|message| message.usage);
                return Ok(Event::Chunk(Chunk::new(Vec::new(), usage, None)));
            }
            "message_delta" => {
                let RawDelta { stop_reason, stop_sequence, .. } = read(raw.delta)?;
                return Ok(match stop_reason {
                    Some(reason) => Event::end(reason.inner(), stop_sequence, raw.usage),
                    None => Event::Chunk(Chunk::new(Vec::new(), raw.usage, None)),
                });
            }
            "message_stop" => return Ok(Event::Done),
            "error" => return Ok(failed(event.payload)),
            // Errors of proxies on the way do not have this form.
            "" if raw.error.is_some() => return Ok(failed(event.payload)),
            // `ping`, and events that a later version of the API adds.
            _ => None,
        };
        Ok(Event::piece(delta))
    }

    fn begin<'a>(&mut self, index: u64, block: &RawBlock<'a>) -> Result<Option<Delta<'a>>, Nonsense> {
        Ok(match block.kind.inner() {
            "tool_use" => Some(self.calls.begin(index, [block.id, block.name])?),
            "redacted_thinking" => block.redacted(),
            _ => block.text_delta(),
        })
    }

    fn addition<'a>(&mut self, index: u64, delta: &RawDelta<'a>) -> Option<Delta<'a>> {
        match delta.kind.map_or("", RawString::inner) {
            "text_delta" => delta.text.map(Delta::of_text),
            "thinking_delta" => delta.thinking.map(Delta::of_thought),
            "signature_delta" => delta.signature.and_then(signature),
            "input_json_delta" => self.calls.add(index, delta.partial_json.unwrap_or(RawString::EMPTY)),
            // Citations are not shown.
            _ => None,
        }
    }
}

impl<'a> RawBlock<'a> {
    /// Returns the text or the thought of a block; `None` for an empty block, and for any other kind.
    fn text_delta(&self) -> Option<Delta<'a>> {
        let delta = match self.kind.inner() {
            "text" => self.text.map(Delta::of_text),
            "thinking" => self.thinking.map(Delta::of_thought),
            _ => None,
        };
        delta.filter(|delta| delta.added_bytes() > 0)
    }

    /// Returns an encrypted thought.
    fn redacted(&self) -> Option<Delta<'a>> {
        self.data.and_then(RawString::of).map(|data| Delta::of_signed(SignedPart::Redacted(data)))
    }
}

/// Returns the signature of the thought before it.
fn signature(signature: &RawValue) -> Option<Delta<'_>> {
    let signature = RawString::of(signature).filter(|signature| !signature.is_empty())?;
    Some(Delta::of_signed(SignedPart::Signature(signature)))
}

fn failed(payload: &str) -> Event<'_> {
    Event::Failed(UpstreamError::read(payload.as_bytes()), Chunk::new(Vec::new(), None, None))
}

/// Reads a member that an event of this type must have.
pub(super) fn read<'a, T: Deserialize<'a>>(member: Option<&'a RawValue>) -> Result<T, Nonsense> {
    Ok(serde_json::from_str(member.map_or("null", RawValue::get))?)
}

pub(super) fn whole<'a>(body: &'a str, take: Pieces<'_>) -> Result<WholeAnswer<'a>, Nonsense> {
    let message: RawMessage<'_> = serde_json::from_str(body)?;
    if message.error.is_some() {
        return Err(Nonsense::Error);
    }
    let mut calls = 0;
    for block in message.content.ok_or(Nonsense::Choices)?.0 {
        if block.kind.inner() == "tool_use" {
            let input = Value::from(block.input.map_or("{}", RawValue::get)).to_string();
            take(Delta::of_call(calls, [block.id, block.name], RawString::trusted(&input)), None);
            calls += 1;
        } else {
            let text =
                if block.kind.inner() == "redacted_thinking" { block.redacted() } else { block.text_delta() };
            let signed = block.signature.filter(|_| block.kind.inner() == "thinking").and_then(signature);
            for delta in text.into_iter().chain(signed) {
                take(delta, None);
            }
        }
    }
    let word = message.stop_reason.ok_or(Nonsense::Unfinished)?.inner();
    Ok(WholeAnswer { word, usage: message.usage, model: message.model })
}
