//! Blocks of an answer in dialects in which one block is open at a time: reasoning, text, a refusal, or a call.

use bytes::BytesMut;
use raw_json::{Nesting, RawString, is_strict_object};
use reply::carried::ServerId;
use shared::{error::ApiError, generation::FinishReason, json::RawValue};

use crate::{
    generation::Settled,
    pieces::{
        call_ids::AnswerCallIds,
        parts::{Delta, NO_ARGUMENTS},
        signed::Carry,
    },
};

/// Writes blocks in one dialect.
pub(crate) trait TurnWriter: Send {
    /// Writes the beginning of the stream. `prompt` is the number of tokens in the prompt, if the upstream has reported
    /// it.
    fn begin(&mut self, prompt: Option<u64>, out: &mut BytesMut);
    fn open(&mut self, block: &Block, out: &mut BytesMut);
    /// Adds a piece to the open block.
    fn add(&mut self, block: &Block, piece: Piece<'_>, out: &mut BytesMut);
    /// Closes the open block. It is incomplete if the answer was cut within it.
    fn close(&mut self, block: &Block, is_complete: bool, out: &mut BytesMut);
    /// Ends a stream that succeeded.
    fn done(&mut self, end: &TurnEnd, settled: Settled, out: &mut BytesMut);
    /// Ends a stream that failed.
    fn fail(&mut self, error: &ApiError, settled: Option<Settled>, out: &mut BytesMut);
    /// Returns bytes that clients ignore, to keep a connection alive.
    fn keep_alive(&self) -> &'static str;
    /// Counts the bytes kept until the end.
    fn held_bytes(&self) -> usize;
}

/// A block of an answer.
pub(crate) struct Block {
    /// Index among the blocks of the answer, from 0 without gaps.
    pub(crate) index: u64,
    pub(crate) content: BlockContent,
}

pub(crate) enum BlockContent {
    Reasoning {
        /// What the server wants back in the next request, known once the block is closed.
        carried: Option<String>,
    },
    /// What the server wants back in the next request, without a thought that the client may read.
    Carried(String),
    Text,
    /// Text in which the model refuses the request.
    Refusal,
    /// A call of a tool. Its pieces are arguments; id and name are spelled as in JSON, without quotes.
    Call {
        place: u64,
        id: String,
        name: String,
    },
}

/// An addition to a block.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    /// Text, spelled as in JSON.
    pub(crate) text: RawString<'a>,
    /// Log probabilities of the text.
    pub(crate) logprobs: Option<&'a RawValue>,
}

/// The reason why an answer ended.
#[derive(Clone, Debug)]
pub(crate) struct TurnEnd {
    pub(crate) finish: FinishReason,
    /// Sequence that ended the answer, if the upstream reports it.
    pub(crate) stop: Option<String>,
}

/// A whole answer of a single choice.
pub(crate) struct WholeTurn<'a> {
    pub(crate) message: &'a Delta<'a>,
    pub(crate) logprobs: Option<&'a RawValue>,
    pub(crate) end: TurnEnd,
}

impl BlockContent {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// Lists the texts of a message or a delta with their kinds, in the order in which an answer shows them.
pub(crate) fn texts<'a>(
    delta: &Delta<'a>,
    shows_reasoning: bool,
) -> impl Iterator<Item = (BlockContent, RawString<'a>)> {
    let texts = [
        (BlockContent::Reasoning { carried: None }, delta.reasoning.filter(|_| shows_reasoning)),
        (BlockContent::Text, delta.content),
        (BlockContent::Refusal, delta.refusal),
    ];
    let filled = |(content, text): (_, Option<RawString<'a>>)| {
        text.filter(|text| !text.is_empty()).map(|text| (content, text))
    };
    texts.into_iter().filter_map(filled)
}

/// Lists the blocks of a whole message with their texts, in order.
pub(crate) fn blocks<'a>(
    turn: &WholeTurn<'a>,
    mut call_ids: AnswerCallIds,
    shows_reasoning: bool,
    server: ServerId,
) -> impl Iterator<Item = (Block, RawString<'a>)> {
    let message = turn.message;
    // The arguments of a call that was cut may be missing.
    let none = if turn.end.finish == FinishReason::Length { RawString::EMPTY } else { NO_ARGUMENTS };
    let mut carry = Carry::of(message, server);
    let calls = message.calls().iter().enumerate().map(move |(place, call)| {
        let place = place as u64;
        let id = call_ids.next(call.id(), place);
        let name = call.name().map(|name| name.sound().into_owned()).unwrap_or_default();
        let arguments = call.arguments().filter(|arguments| !arguments.is_empty());
        (BlockContent::Call { place, id, name }, arguments.unwrap_or(none))
    });
    let calls: Vec<_> = calls.collect();
    let mut contents: Vec<_> = texts(message, shows_reasoning).collect();
    if let Some((BlockContent::Reasoning { carried }, _)) = contents.first_mut() {
        *carried = carry.take();
    }
    let carried = carry.take().filter(|_| shows_reasoning || !calls.is_empty());
    contents.extend(carried.map(|carried| (BlockContent::Carried(carried), RawString::EMPTY)));
    contents.extend(calls);
    contents.into_iter().zip(0..).map(|((content, text), index)| (Block { index, content }, text))
}

/// Returns whether a call's arguments are complete, even if the answer was cut.
pub(crate) fn is_complete(content: &BlockContent, text: RawString<'_>) -> bool {
    let mut arguments = Nesting::default();
    arguments.push(&text.decoded());
    matches!(content, BlockContent::Call { .. }) && arguments.is_complete()
}

/// Returns a call's arguments as a JSON object that strict readers accept: an empty object if there are none, and
/// `None` if they are anything else.
pub(crate) fn object_of(arguments: &str) -> Option<&str> {
    let trimmed = arguments.trim();
    if trimmed.is_empty() || trimmed == "null" {
        return Some("{}");
    }
    is_strict_object(trimmed).then_some(trimmed)
}
