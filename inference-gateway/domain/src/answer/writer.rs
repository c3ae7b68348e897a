//! The writers of a stream, one for each dialect of clients.

use std::sync::Arc;

use bytes::BytesMut;
use shared::error::ApiError;
use shared_catalog::UpstreamApi;

use super::{
    Chunk, FinishReason, Generation, Nonsense, Rewriter, Settled,
    call_ids::AnswerCallIds,
    messages::{MessagesReply, MessagesStream},
    passed::{PassedStream, PassedWriter},
    put,
    responses::{ResponsesReply, ResponsesStream},
    turn::{Turn, TurnEnd, TurnWriter},
};

/// The form in which a request wants its answer.
#[derive(Clone)]
pub enum Reply {
    /// Chat completions.
    Chat {
        /// True if a stream ends with usage.
        include_usage: bool,
    },
    /// The Responses API.
    Responses(Arc<ResponsesReply>),
    /// The Messages API.
    Messages(Arc<MessagesReply>),
    /// Embeddings, which are never streamed.
    Embeddings,
}

impl Reply {
    /// Returns whether a chat is asked for, in whatever dialect, rather than embeddings.
    pub const fn is_of_chat(&self) -> bool {
        match self {
            Self::Chat { .. } | Self::Responses(_) | Self::Messages(_) => true,
            Self::Embeddings => false,
        }
    }

    /// Bytes that are kept for the answer.
    pub fn kept_bytes(&self) -> usize {
        match self {
            Self::Chat { .. } | Self::Embeddings => 0,
            Self::Responses(reply) => {
                reply.echo.capacity() + reply.names.bytes() + reply.earlier_calls.bytes()
            }
            Self::Messages(reply) => {
                reply.stops.iter().map(String::capacity).sum::<usize>() + reply.earlier_calls.bytes()
            }
        }
    }

    /// The API of the client.
    pub const fn api(&self) -> UpstreamApi {
        match self {
            Self::Chat { .. } | Self::Embeddings => UpstreamApi::Chat,
            Self::Responses(_) => UpstreamApi::Responses,
            Self::Messages(_) => UpstreamApi::Messages,
        }
    }

    /// The member of the request that holds the conversation, or the prompts.
    pub const fn input(&self) -> &'static str {
        match self {
            Self::Chat { .. } | Self::Messages(_) => "messages",
            Self::Responses(_) | Self::Embeddings => "input",
        }
    }
}

/// Writer of the stream that a client reads.
pub enum StreamWriter {
    /// Chunks of a chat completion, of any number of choices.
    Chat(Rewriter),
    /// Another dialect, of a single choice.
    Turn(Box<TurnStream>),
    /// Another dialect, as the upstream speaks it.
    Passed(Box<PassedStream>),
}

/// The stream of a dialect that knows blocks.
pub struct TurnStream {
    turn: Turn,
    writer: Box<dyn TurnWriter>,
    has_begun: bool,
}

impl StreamWriter {
    /// A stream of which nothing was written. `prompt_tokens` stands for the prompt where the upstream does not begin with
    /// a report. `passes` says that the upstream was asked in the client's own API: then its events pass as they come.
    pub fn new(generation: Generation<'_>, reply: &Reply, prompt_tokens: u64, passes: bool) -> Self {
        match reply {
            Reply::Responses(reply) if passes => {
                return Self::passed(generation, ResponsesStream::new(generation, reply.clone()));
            }
            Reply::Messages(reply) if passes => {
                return Self::passed(
                    generation,
                    MessagesStream::new(generation, reply.clone(), prompt_tokens),
                );
            }
            Reply::Chat { .. } | Reply::Embeddings | Reply::Responses(_) | Reply::Messages(_) => {}
        }
        match reply {
            Reply::Chat { include_usage } => Self::Chat(Rewriter::new(generation, *include_usage)),
            Reply::Embeddings => Self::Chat(Rewriter::new(generation, false)),
            Reply::Responses(reply) => {
                let call_ids = AnswerCallIds::new(generation.id, reply.earlier_calls.clone());
                Self::turn(Turn::new(call_ids, true), ResponsesStream::new(generation, reply.clone()))
            }
            Reply::Messages(reply) => {
                let call_ids = AnswerCallIds::new(generation.id, reply.earlier_calls.clone());
                let writer = MessagesStream::new(generation, reply.clone(), prompt_tokens);
                Self::turn(Turn::new(call_ids, reply.thinking), writer)
            }
        }
    }

    fn turn(turn: Turn, writer: impl TurnWriter + 'static) -> Self {
        Self::Turn(Box::new(TurnStream { turn, writer: Box::new(writer), has_begun: false }))
    }

    fn passed(generation: Generation<'_>, writer: impl PassedWriter + 'static) -> Self {
        Self::Passed(Box::new(PassedStream::new(generation, Box::new(writer))))
    }

    /// Writes the additions of a chunk, if any. The error is about an answer that the dialect cannot express.
    pub fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut BytesMut) -> Result<(), Nonsense> {
        match self {
            Self::Chat(rewriter) => {
                rewriter.chunk(chunk, out);
                Ok(())
            }
            Self::Turn(stream) => stream.chunk(chunk, out),
            Self::Passed(stream) => {
                stream.chunk(chunk, out);
                Ok(())
            }
        }
    }

    /// Returns whether the upstream has begun a choice and finished every begun choice; any other end is a failure.
    pub fn is_finished(&self) -> bool {
        match self {
            Self::Chat(rewriter) => rewriter.is_finished(),
            Self::Turn(stream) => stream.turn.end().is_some(),
            Self::Passed(stream) => stream.is_finished(),
        }
    }

    /// Number of choices whose finish reason came.
    pub fn finished_choices(&self) -> u64 {
        match self {
            Self::Chat(rewriter) => rewriter.finished_choices(),
            Self::Turn(_) | Self::Passed(_) => u64::from(self.is_finished()),
        }
    }

    /// Ends what goes on, since nothing more can be granted.
    pub fn cut(&mut self, out: &mut BytesMut) {
        match self {
            Self::Chat(rewriter) => rewriter.cut(out),
            Self::Turn(stream) => stream.cut(out),
            Self::Passed(stream) => stream.cut(out),
        }
    }

    /// Writes the last events of a stream that succeeded.
    pub fn done(&mut self, settled: Settled, out: &mut BytesMut) {
        match self {
            Self::Chat(rewriter) => rewriter.done(settled.usage, settled.cost, out),
            Self::Turn(stream) => {
                stream.cut(out);
                if let Some(end) = stream.turn.end() {
                    stream.writer.done(end, settled, out);
                }
            }
            Self::Passed(stream) => stream.done(settled, out),
        }
    }

    /// Writes the last event of a stream that failed. `settled` is the bill of what came before, if any.
    pub fn fail(&mut self, error: &ApiError, settled: Option<Settled>, out: &mut BytesMut) {
        match self {
            Self::Chat(_) => Rewriter::error(error, out),
            Self::Turn(stream) => stream.writer.fail(error, settled, out),
            Self::Passed(stream) => stream.fail(error, settled, out),
        }
    }

    /// Writes what clients ignore, so that intermediate proxies do not time out.
    pub fn keep_alive(&self, out: &mut BytesMut) {
        match self {
            Self::Chat(_) => put(out, ": keep-alive\n\n"),
            Self::Turn(stream) => put(out, stream.writer.keep_alive()),
            Self::Passed(stream) => put(out, stream.keep_alive()),
        }
    }

    /// Bytes kept until the stream ends.
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::Chat(_) => 0,
            Self::Turn(stream) => stream.turn.held_bytes() + stream.writer.held_bytes(),
            Self::Passed(stream) => stream.held_bytes(),
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
        // A single choice was asked for: the first.
        let choices = chunk.choices.iter().filter(|choice| choice.index == 0);
        for choice in choices {
            self.turn.chunk(choice, &mut *self.writer, out)?;
        }
        Ok(())
    }

    fn cut(&mut self, out: &mut BytesMut) {
        if !self.has_begun {
            self.has_begun = true;
            self.writer.begin(None, out);
        }
        if self.turn.end().is_none() {
            let end = TurnEnd { finish: FinishReason::Length, stop: None };
            self.turn.finish(end, &mut *self.writer, out);
        }
    }
}
