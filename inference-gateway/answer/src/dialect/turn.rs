//! Puts the pieces of an answer into the order of its blocks.
//!
//! Upstreams send pieces of all kinds in any order, and pieces of parallel calls interleaved. A piece waits if another
//! block is open, until that block is complete.

use std::collections::VecDeque;

use bytes::BytesMut;
use raw_json::{Nesting, RawString};
use reply::carried::ServerId;
use shared::generation::FinishReason;

use super::block::{Block, BlockContent, Piece, TurnEnd, TurnWriter, texts};
use crate::{
    pieces::{
        call_ids::AnswerCallIds,
        calls::{Calls, PieceId, ToolCallDelta},
        nonsense::Nonsense,
        parts::{NO_ARGUMENTS, ToolCall},
        signed::Carry,
    },
    stream::ChunkChoice,
};

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
    arguments: Nesting,
    has_arguments: bool,
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
                open.argue(arguments);
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
        lane.argue(arguments);
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
        while self.waiting.front().is_some_and(TurnLane::may_open) {
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
        if is_complete && lane.is_call() && !lane.has_arguments {
            writer.add(&lane.block, Piece { text: NO_ARGUMENTS, logprobs: None }, out);
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

/// Finds the waiting call at this position, or adds one.
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
        Self { block, waiting: String::new(), arguments: Nesting::default(), has_arguments: false }
    }

    fn is_call(&self) -> bool {
        matches!(self.block.content, BlockContent::Call { .. })
    }

    /// Returns whether the block may open. A call opens with its first arguments, since its name may continue until
    /// then, and not before it has a name, which some servers send later.
    fn may_open(&self) -> bool {
        let is_nameless = matches!(&self.block.content, BlockContent::Call { name, .. } if name.is_empty());
        !self.is_call() || !is_nameless && !self.waiting.is_empty()
    }

    /// Takes a piece of a call's arguments.
    fn argue(&mut self, arguments: RawString<'_>) {
        self.has_arguments |= !arguments.is_empty();
        self.arguments.push(&arguments.decoded());
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
