mod halves;

use bytes::BytesMut;
use reply::Reply;
use shared::{error::ApiError, generation::FinishReason};

use crate::{
    dialect::{
        block::{TurnEnd, TurnWriter},
        messages::MessagesStream,
        passed::{PassedStream, PassedWriter},
        responses::ResponsesStream,
        turn::Turn,
    },
    generation::{Generation, Settled, put},
    pieces::{call_ids::AnswerCallIds, nonsense::Nonsense},
    rewriter::Rewriter,
    stream::Chunk,
};
use halves::Halves;

/// Writer of the stream that a client reads.
pub struct StreamWriter {
    dialect: DialectWriter,
    halves: Halves,
}

enum DialectWriter {
    /// Chunks of a chat completion, with any number of choices.
    Chat(Rewriter),
    /// Another dialect, with a single choice.
    Turn(Box<TurnStream>),
    /// Another dialect, passed on from an upstream that speaks it.
    Passed(Box<PassedStream>),
}

/// A stream in a dialect made of blocks.
struct TurnStream {
    turn: Turn,
    writer: Box<dyn TurnWriter>,
    has_begun: bool,
}

impl StreamWriter {
    /// Begins a stream. `prompt_tokens` is reported unless the upstream reports the prompt first. `passes` is whether
    /// the upstream was asked in the client's own API, so that its events pass unchanged.
    pub fn new(generation: Generation<'_>, reply: &Reply, prompt_tokens: u64, passes: bool) -> Self {
        match reply {
            Reply::Responses(reply) if passes => {
                let call_ids = AnswerCallIds::new(generation.id, reply.earlier_calls.clone());
                let writer = ResponsesStream::new(generation, reply.clone());
                return Self::passed(generation, Turn::new(call_ids, true, generation.server), writer);
            }
            Reply::Messages(reply) if passes => {
                let call_ids = AnswerCallIds::new(generation.id, reply.earlier_calls.clone());
                let writer = MessagesStream::new(generation, reply.clone(), prompt_tokens);
                return Self::passed(
                    generation,
                    Turn::new(call_ids, reply.thinking, generation.server),
                    writer,
                );
            }
            Reply::Chat { .. } | Reply::Embeddings | Reply::Responses(_) | Reply::Messages(_) => {}
        }
        match reply {
            Reply::Chat { include_usage } => Self::chat(generation, *include_usage),
            Reply::Embeddings => Self::chat(generation, false),
            Reply::Responses(reply) => {
                let call_ids = AnswerCallIds::new(generation.id, reply.earlier_calls.clone());
                let turn = Turn::new(call_ids, true, generation.server);
                Self::turn(turn, ResponsesStream::new(generation, reply.clone()))
            }
            Reply::Messages(reply) => {
                let call_ids = AnswerCallIds::new(generation.id, reply.earlier_calls.clone());
                let writer = MessagesStream::new(generation, reply.clone(), prompt_tokens);
                Self::turn(Turn::new(call_ids, reply.thinking, generation.server), writer)
            }
        }
    }

    fn of(dialect: DialectWriter) -> Self {
        Self { dialect, halves: Halves::default() }
    }

    fn chat(generation: Generation<'_>, include_usage: bool) -> Self {
        Self::of(DialectWriter::Chat(Rewriter::new(generation, include_usage)))
    }

    fn turn(turn: Turn, writer: impl TurnWriter + 'static) -> Self {
        Self::of(DialectWriter::Turn(Box::new(TurnStream {
            turn,
            writer: Box::new(writer),
            has_begun: false,
        })))
    }

    fn passed(generation: Generation<'_>, turn: Turn, writer: impl PassedWriter + 'static) -> Self {
        Self::of(DialectWriter::Passed(Box::new(PassedStream::new(generation, turn, Box::new(writer)))))
    }

    /// Writes a chunk's additions, if any. An error means that the dialect cannot express the answer.
    pub fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut BytesMut) -> Result<(), Nonsense> {
        let Self { dialect, halves } = self;
        if halves.are_none_in(chunk) {
            dialect.chunk(chunk, out)
        } else {
            halves.joined(chunk, |chunk| dialect.chunk(chunk, out))
        }
    }

    /// Ends what is unfinished, since the upstream has sent everything without a finish reason.
    pub fn end_untold(&mut self, out: &mut BytesMut) {
        match &mut self.dialect {
            DialectWriter::Chat(rewriter) => rewriter.end_untold(out),
            DialectWriter::Turn(stream) => stream.end(stream.turn.untold_reason(), out),
            DialectWriter::Passed(stream) => stream.end(FinishReason::Stop, out),
        }
    }

    /// Returns whether the upstream has begun at least one choice and finished all that it began. Any other end is a
    /// failure.
    pub fn is_finished(&self) -> bool {
        match &self.dialect {
            DialectWriter::Chat(rewriter) => rewriter.is_finished(),
            DialectWriter::Turn(stream) => stream.turn.end().is_some(),
            DialectWriter::Passed(stream) => stream.is_finished(),
        }
    }

    /// Counts the choices with a finish reason.
    pub fn finished_choices(&self) -> u64 {
        match &self.dialect {
            DialectWriter::Chat(rewriter) => rewriter.finished_choices(),
            DialectWriter::Turn(_) | DialectWriter::Passed(_) => u64::from(self.is_finished()),
        }
    }

    /// Ends what is unfinished, since nothing more can be granted.
    pub fn cut(&mut self, out: &mut BytesMut) {
        match &mut self.dialect {
            DialectWriter::Chat(rewriter) => rewriter.cut(out),
            DialectWriter::Turn(stream) => stream.cut(out),
            DialectWriter::Passed(stream) => stream.cut(out),
        }
    }

    /// Writes the last events of a stream that succeeded.
    pub fn done(&mut self, settled: Settled, out: &mut BytesMut) {
        match &mut self.dialect {
            DialectWriter::Chat(rewriter) => rewriter.done(settled.usage, settled.cost, out),
            DialectWriter::Turn(stream) => {
                stream.cut(out);
                if let Some(end) = stream.turn.end() {
                    stream.writer.done(end, settled, out);
                }
            }
            DialectWriter::Passed(stream) => stream.done(settled, out),
        }
    }

    /// Writes the last event of a failed stream. `settled` is the bill for the output before the failure, if any.
    pub fn fail(&mut self, error: &ApiError, settled: Option<Settled>, out: &mut BytesMut) {
        match &mut self.dialect {
            DialectWriter::Chat(_) => Rewriter::error(error, out),
            DialectWriter::Turn(stream) => stream.writer.fail(error, settled, out),
            DialectWriter::Passed(stream) => stream.fail(error, settled, out),
        }
    }

    /// Writes bytes that clients ignore, so that proxies in between do not time out.
    pub fn keep_alive(&self, out: &mut BytesMut) {
        match &self.dialect {
            DialectWriter::Chat(_) => put(out, ": keep-alive\n\n"),
            DialectWriter::Turn(stream) => put(out, stream.writer.keep_alive()),
            DialectWriter::Passed(stream) => put(out, stream.keep_alive()),
        }
    }

    /// Counts the bytes kept until the stream ends.
    pub fn held_bytes(&self) -> usize {
        match &self.dialect {
            DialectWriter::Chat(rewriter) => rewriter.held_bytes(),
            DialectWriter::Turn(stream) => stream.turn.held_bytes() + stream.writer.held_bytes(),
            DialectWriter::Passed(stream) => stream.held_bytes(),
        }
    }
}

impl DialectWriter {
    fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut BytesMut) -> Result<(), Nonsense> {
        match self {
            Self::Chat(rewriter) => {
                rewriter.chunk(chunk, out);
                Ok(())
            }
            Self::Turn(stream) => stream.chunk(chunk, out),
            Self::Passed(stream) => stream.chunk(chunk, out),
        }
    }
}

impl TurnStream {
    fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut BytesMut) -> Result<(), Nonsense> {
        if !self.has_begun {
            self.has_begun = true;
            let report = chunk.usage().or_else(|| chunk.timings());
            self.writer.begin(report.and_then(|report| report.prompt), out);
        }
        // Only the first choice was requested.
        let choices = chunk.choices.iter().filter(|choice| choice.index == 0);
        for choice in choices {
            self.turn.chunk(choice, &mut *self.writer, out)?;
        }
        Ok(())
    }

    fn cut(&mut self, out: &mut BytesMut) {
        self.end(FinishReason::Length, out);
    }

    fn end(&mut self, finish: FinishReason, out: &mut BytesMut) {
        if !self.has_begun {
            self.has_begun = true;
            self.writer.begin(None, out);
        }
        self.turn.finish(TurnEnd { finish, stop: None }, &mut *self.writer, out);
    }
}
