//! An answer as a sequence of blocks, for dialects in which one block is open at a time: reasoning, text, a refusal, or
//! a call.
//!
//! Upstreams send pieces of all kinds in any order, and pieces of parallel calls interleaved. A piece waits if another
//! block is open, until that block is complete.

use std::collections::VecDeque;

use bytes::BytesMut;
use raw_json::{RawString, is_strict_object};
use reply::carried::ServerId;
use shared::{error::ApiError, generation::FinishReason, json::RawValue};

use crate::{
    generation::Settled,
    pieces::nonsense::Nonsense,
    pieces::{
        call_ids::AnswerCallIds,
        calls::{Calls, PieceId, ToolCallDelta},
        parts::{Delta, ToolCall},
        signed::Carry,
    },
    stream::ChunkChoice,
};

/// Writes blocks in one dialect.
pub(crate) trait TurnWriter: Send {
    /// Writes the beginning of the stream. `prompt` is the prompt's tokens, if the upstream has reported them.
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
    /// Text of a refusal.
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

/// The blocks of an unfinished answer.
pub(crate) struct Turn {
    shows_reasoning: bool,
    calls: Calls,
    call_ids: AnswerCallIds,
    carry: Carry,
    open: Option<TurnLane>,
    waiting: VecDeque<TurnLane>,
    closed: Vec<u64>,
    blocks: u64,
    end: Option<TurnEnd>,
}

/// A block that is open, or waits until it can open.
struct TurnLane {
    block: Block,
    /// Text that waits, spelled as in JSON with only the opening quote.
    waiting: String,
    arguments: ObjectScan,
}

impl Turn {
    pub(crate) fn new(call_ids: AnswerCallIds, shows_reasoning: bool, server: ServerId) -> Self {
        Self {
            shows_reasoning,
            calls: Calls::default(),
            call_ids,
            carry: Carry::new(server),
            open: None,
            waiting: VecDeque::new(),
            closed: Vec::new(),
            blocks: 0,
            end: None,
        }
    }

    /// Returns the reason to report if the upstream gave no finish reason.
    pub(crate) const fn untold_reason(&self) -> FinishReason {
        if self.calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls }
    }

    pub(crate) const fn end(&self) -> Option<&TurnEnd> {
        self.end.as_ref()
    }

    /// Counts the bytes of waiting pieces.
    pub(crate) fn held_bytes(&self) -> usize {
        self.waiting.iter().map(|lane| lane.waiting.len()).sum::<usize>() + self.carry.held_bytes()
    }

    pub(crate) fn chunk(
        &mut self,
        choice: &ChunkChoice<'_>,
        writer: &mut dyn TurnWriter,
        out: &mut BytesMut,
    ) -> Result<(), Nonsense> {
        self.carry.add(&choice.delta);
        for (content, text) in texts(&choice.delta, self.shows_reasoning) {
            self.text(content, Piece { text, logprobs: choice.logprobs }, writer, out);
        }
        // Text after the finish reason is still shown. A call would contradict the reason.
        if self.end.is_some() {
            return Ok(());
        }
        for (place, call) in choice.delta.calls().iter().enumerate() {
            self.call(call, place, writer, out)?;
        }
        if let Some(finish) = choice.finish {
            let stop = choice.stop.map(|stop| stop.decoded().into_owned());
            self.finish(TurnEnd { finish, stop }, writer, out);
        }
        Ok(())
    }

    fn text(
        &mut self,
        content: BlockContent,
        piece: Piece<'_>,
        writer: &mut dyn TurnWriter,
        out: &mut BytesMut,
    ) {
        let is_same = |lane: &&mut TurnLane| lane.block.content.is_same(&content);
        if let Some(open) = self.open.as_mut().filter(is_same) {
            writer.add(&open.block, piece, out);
            return;
        }
        if self.waiting.is_empty() && self.may_close() {
            self.close(true, writer, out);
            let lane = self.open(TurnLane::new(content), writer, out);
            writer.add(&lane.block, piece, out);
            return;
        }
        let at = self.waiting.iter_mut().position(|lane| is_same(&lane));
        waiting_at(&mut self.waiting, at, || content).wait(piece.text);
        self.advance(writer, out);
    }

    fn call(
        &mut self,
        call: &ToolCall<'_>,
        at: usize,
        writer: &mut dyn TurnWriter,
        out: &mut BytesMut,
    ) -> Result<(), Nonsense> {
        let ToolCallDelta { index, id, name_is_new } = self.calls.place(call, at);
        let arguments = call.arguments().unwrap_or(RawString::EMPTY);
        self.carry.call(call, index);
        let is_this = |lane: &&mut TurnLane| matches!(lane.block.content, BlockContent::Call { place, .. } if place == index);
        if let Some(open) = self.open.as_mut().filter(is_this) {
            if !arguments.is_empty() {
                open.arguments.push(&arguments.decoded());
                writer.add(&open.block, Piece { text: arguments, logprobs: None }, out);
            }
            return Ok(());
        }
        if self.closed.contains(&index) {
            // Blanks after complete arguments are harmless. Anything else would change arguments that the client
            // already has.
            let is_blank = arguments.decoded().trim().is_empty();
            return if is_blank { Ok(()) } else { Err(Nonsense::Interleaved) };
        }
        let name = call.name().filter(|_| name_is_new);
        let at = self.waiting.iter_mut().position(|lane| is_this(&lane));
        if at.is_none() {
            self.carry_before_call();
        }
        let lane = waiting_at(&mut self.waiting, at, || {
            let id = self.call_ids.next(call.id().filter(|_| id == PieceId::Upstream), index);
            BlockContent::Call { place: index, id, name: String::new() }
        });
        if let (BlockContent::Call { name: known, .. }, Some(name)) = (&mut lane.block.content, name) {
            known.push_str(&name.sound());
        }
        lane.arguments.push(&arguments.decoded());
        lane.wait(arguments);
        self.advance(writer, out);
        Ok(())
    }

    /// Queues what the server wants back before a call, unless open reasoning will take it.
    fn carry_before_call(&mut self) {
        let is_reasoning = |lane: &TurnLane| matches!(lane.block.content, BlockContent::Reasoning { .. });
        if self.open.as_ref().is_some_and(is_reasoning) && self.waiting.is_empty() {
            return;
        }
        if let Some(carried) = self.carry.take() {
            self.waiting.push_back(TurnLane::new(BlockContent::Carried(carried)));
        }
    }

    /// Opens the next waiting block as soon as the open one is complete.
    fn advance(&mut self, writer: &mut dyn TurnWriter, out: &mut BytesMut) {
        // A call opens with its first arguments, since its name may continue until then.
        while self.waiting.front().is_some_and(|next| !next.is_call() || !next.waiting.is_empty()) {
            if !self.may_close() {
                return;
            }
            self.close(true, writer, out);
            self.open_next(writer, out);
        }
    }

    /// Returns whether the open block, if any, may be closed.
    fn may_close(&self) -> bool {
        self.open.as_ref().is_none_or(|open| !open.is_call() || open.arguments.is_complete())
    }

    fn open_next(&mut self, writer: &mut dyn TurnWriter, out: &mut BytesMut) {
        let Some(mut next) = self.waiting.pop_front() else { return };
        let mut waiting = std::mem::take(&mut next.waiting);
        let lane = self.open(next, writer, out);
        if !waiting.is_empty() {
            waiting.push('"');
            writer.add(&lane.block, Piece { text: RawString::trusted(&waiting), logprobs: None }, out);
        }
    }

    fn open(&mut self, mut lane: TurnLane, writer: &mut dyn TurnWriter, out: &mut BytesMut) -> &TurnLane {
        lane.block.index = self.blocks;
        self.blocks += 1;
        writer.open(&lane.block, out);
        self.open.insert(lane)
    }

    fn close(&mut self, is_complete: bool, writer: &mut dyn TurnWriter, out: &mut BytesMut) {
        let Some(mut lane) = self.open.take() else { return };
        if let BlockContent::Reasoning { carried } = &mut lane.block.content {
            *carried = self.carry.take();
        }
        writer.close(&lane.block, is_complete, out);
        if let BlockContent::Call { place, .. } = lane.block.content {
            self.closed.push(place);
        }
    }

    /// Writes what the server wants back if no block took it.
    fn end_with_carried(&mut self, writer: &mut dyn TurnWriter, out: &mut BytesMut) {
        if let Some(carried) = self.carry.take() {
            self.open(TurnLane::new(BlockContent::Carried(carried)), writer, out);
            self.close(true, writer, out);
        }
    }

    /// Closes every block and sets the end, unless it is already set.
    pub(crate) fn finish(&mut self, end: TurnEnd, writer: &mut dyn TurnWriter, out: &mut BytesMut) {
        let end = self.end.take().unwrap_or(end);
        loop {
            let is_whole = self.open.as_ref().is_some_and(|open| open.arguments.is_complete());
            self.close(is_whole || end.finish != FinishReason::Length, writer, out);
            if self.waiting.is_empty() {
                break;
            }
            self.open_next(writer, out);
        }
        if self.shows_reasoning || self.carry.has_calls() {
            self.end_with_carried(writer, out);
        }
        self.end = Some(end);
    }
}

/// Finds the waiting call at this place, or adds one.
fn waiting_at(
    waiting: &mut VecDeque<TurnLane>,
    at: Option<usize>,
    content: impl FnOnce() -> BlockContent,
) -> &mut TurnLane {
    let at = at.unwrap_or_else(|| {
        waiting.push_back(TurnLane::new(content()));
        waiting.len() - 1
    });
    &mut waiting[at]
}

impl TurnLane {
    fn new(content: BlockContent) -> Self {
        let block = Block { index: 0, content };
        Self { block, waiting: String::new(), arguments: ObjectScan::default() }
    }

    fn is_call(&self) -> bool {
        matches!(self.block.content, BlockContent::Call { .. })
    }

    fn wait(&mut self, text: RawString<'_>) {
        if text.is_empty() {
            return;
        }
        if self.waiting.is_empty() {
            self.waiting.push('"');
        }
        self.waiting.push_str(&text.sound());
    }
}

impl BlockContent {
    fn is_same(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// Lists the texts of a message or a delta with their kinds, in the order of an answer.
fn texts<'a>(
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
    message: &'a Delta<'a>,
    mut call_ids: AnswerCallIds,
    shows_reasoning: bool,
    server: ServerId,
) -> impl Iterator<Item = (Block, RawString<'a>)> {
    let mut carry = Carry::of(message, server);
    let calls = message.calls().iter().enumerate().map(move |(place, call)| {
        let place = place as u64;
        let id = call_ids.next(call.id(), place);
        let name = call.name().map(|name| name.sound().into_owned()).unwrap_or_default();
        (BlockContent::Call { place, id, name }, call.arguments().unwrap_or(RawString::EMPTY))
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

/// Finds the end of a JSON object that comes in pieces.
#[derive(Default)]
struct ObjectScan {
    depth: usize,
    in_string: bool,
    escaped: bool,
    begun: bool,
}

impl ObjectScan {
    fn push(&mut self, text: &str) {
        for byte in text.bytes() {
            if self.in_string {
                self.in_string = self.escaped || byte != b'"';
                self.escaped = !self.escaped && byte == b'\\';
                continue;
            }
            match byte {
                b'{' | b'[' => {
                    self.begun = true;
                    self.depth += 1;
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => self.in_string = byte == b'"',
            }
        }
    }

    const fn is_complete(&self) -> bool {
        self.begun && self.depth == 0 && !self.in_string
    }
}

/// Returns whether a call's arguments are complete, although the answer was cut.
pub(crate) fn is_complete(content: &BlockContent, text: RawString<'_>) -> bool {
    let mut scan = ObjectScan::default();
    scan.push(&text.decoded());
    matches!(content, BlockContent::Call { .. }) && scan.is_complete()
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
