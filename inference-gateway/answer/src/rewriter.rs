//! Writes the stream that the client reads.

use bytes::{Bytes, BytesMut};
use raw_json::RawString;
use reply::carried::ServerId;
use shared::{error::ApiError, generation::FinishReason, ids::GenerationId, money::NanoUsd, tokens::Usage};

use crate::{
    generation::{Generation, put, put_number},
    pieces::{
        call_ids::MadeIds,
        calls::Calls,
        logprobs::put_logprobs,
        parts::{Delta, NO_ARGUMENTS},
        signed::Carry,
    },
    stream::{Chunk, ChunkChoice},
    usage::put_usage,
};

/// Rewrites an upstream's chunks into the gateway's. For each choice the client sees the role, then the output, then a
/// finish reason, and nothing more.
pub(crate) struct Rewriter {
    generation: GenerationId,
    /// Start of every chunk, up to its choices.
    head: Bytes,
    tail: &'static str,
    include_usage: bool,
    server: ServerId,
    choices: Vec<ChoiceState>,
}

/// How much of a choice was sent.
#[derive(Default)]
struct ChoiceState {
    progress: ChoiceProgress,
    calls: Calls,
    carry: Carry,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChoiceProgress {
    /// The role was not sent.
    #[default]
    Unseen,
    /// The role was sent, and more may follow.
    Open,
    /// The finish reason was sent.
    Finished,
}

impl Rewriter {
    pub(crate) fn new(generation: Generation<'_>, include_usage: bool) -> Self {
        let mut head = BytesMut::from("data: ");
        generation.write("chat.completion.chunk", &mut head);
        put(&mut head, r#","choices":["#);
        let tail = if include_usage { "],\"usage\":null}\n\n" } else { "]}\n\n" };
        let (generation, server) = (generation.id, generation.server);
        Self { generation, head: head.freeze(), tail, include_usage, server, choices: Vec::new() }
    }

    /// Writes a chunk's additions, if any.
    pub(crate) fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut BytesMut) {
        let start = out.len();
        out.extend_from_slice(&self.head);
        let mut empty = out.len();
        let mut written = 0_u64;
        for choice in &chunk.choices {
            self.reach(choice.index);
            self.choices[choice.index].carry.add(&choice.delta);
            let late;
            let mut choice = choice;
            if self.choices[choice.index].progress == ChoiceProgress::Finished {
                // Output is shown even after the server's finish reason.
                let Some(after) = choice.after_end() else { continue };
                late = after;
                choice = &late;
            }
            let Some(first) = self.advance(choice) else { continue };
            // Clients read only one piece of a choice from each chunk.
            if written & (1 << choice.index) != 0 {
                put(out, self.tail);
                out.extend_from_slice(&self.head);
                (empty, written) = (out.len(), 0);
            }
            written |= 1 << choice.index;
            if out.len() > empty {
                put(out, ",");
            }
            let made = MadeIds { generation: self.generation, choice: choice.index };
            write_choice(choice, first, &mut self.choices[choice.index], made, out);
        }
        if out.len() == empty {
            out.truncate(start);
        } else {
            put(out, self.tail);
        }
    }

    /// Returns whether the upstream has begun at least one choice and finished all that it began. Any other end is a
    /// failure.
    pub(crate) fn is_finished(&self) -> bool {
        let any = |progress| self.choices.iter().any(|choice| choice.progress == progress);
        any(ChoiceProgress::Finished) && !any(ChoiceProgress::Open)
    }

    /// Counts the choices whose finish reason was written.
    pub(crate) fn finished_choices(&self) -> u64 {
        let finished = |choice: &&ChoiceState| choice.progress == ChoiceProgress::Finished;
        self.choices.iter().filter(finished).count() as u64
    }

    /// Ends every unfinished choice with the finish reason `length`, since nothing more can be granted.
    pub(crate) fn cut(&mut self, out: &mut BytesMut) {
        self.end(|_| FinishReason::Length, out);
    }

    /// Ends every unfinished choice, since the upstream has sent everything without a finish reason.
    pub(crate) fn end_untold(&mut self, out: &mut BytesMut) {
        self.end(|calls| if calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls }, out);
    }

    fn end(&mut self, reason: impl Fn(&Calls) -> FinishReason, out: &mut BytesMut) {
        self.reach(0);
        for (index, state) in self.choices.iter_mut().enumerate() {
            let first = match state.progress {
                ChoiceProgress::Unseen => true,
                ChoiceProgress::Open => false,
                ChoiceProgress::Finished => continue,
            };
            state.progress = ChoiceProgress::Finished;
            let mut end = ChunkChoice::of(Delta::default(), None);
            (end.index, end.finish) = (index, Some(reason(&state.calls)));
            out.extend_from_slice(&self.head);
            let made = MadeIds { generation: self.generation, choice: index };
            write_choice(&end, first, state, made, out);
            put(out, self.tail);
        }
    }

    /// Ends the stream with `[DONE]`, after usage if requested. `cost` is the billed amount; `None` while it is
    /// unknown.
    pub(crate) fn done(&self, usage: Usage, cost: Option<NanoUsd>, out: &mut BytesMut) {
        if self.include_usage {
            out.extend_from_slice(&self.head);
            put(out, r#"],"usage":"#);
            put_usage(usage, cost, out);
            put(out, "}\n\n");
        }
        put(out, "data: [DONE]\n\n");
    }

    /// Ends a failed stream. The error is the last event: SDKs take a stream that just stops as complete, and an event
    /// after an error as a recovery.
    pub(crate) fn error(error: &ApiError, out: &mut BytesMut) {
        put(out, "data: ");
        put(out, &error.to_json());
        put(out, "\n\n");
    }

    /// Adds states up to this choice.
    fn reach(&mut self, index: usize) {
        let server = self.server;
        if self.choices.len() <= index {
            let unseen = || ChoiceState { carry: Carry::new(server), ..ChoiceState::default() };
            self.choices.resize_with(index + 1, unseen);
        }
    }

    /// Bytes kept until the stream ends.
    pub(crate) fn held_bytes(&self) -> usize {
        self.choices.iter().map(|choice| choice.carry.held_bytes()).sum()
    }

    /// Advances a choice. Returns `None` if there is nothing to write, otherwise whether to write the role.
    fn advance(&mut self, choice: &ChunkChoice<'_>) -> Option<bool> {
        let progress = &mut self.choices[choice.index].progress;
        let first = match *progress {
            ChoiceProgress::Finished => return Some(false),
            ChoiceProgress::Unseen => true,
            ChoiceProgress::Open => false,
        };
        *progress = if choice.finish.is_some() { ChoiceProgress::Finished } else { ChoiceProgress::Open };
        let adds =
            first || choice.finish.is_some() || choice.logprobs.is_some() || !choice.delta.is_nothing();
        adds.then_some(first)
    }
}

fn write_choice(
    choice: &ChunkChoice<'_>,
    first: bool,
    state: &mut ChoiceState,
    made: MadeIds,
    out: &mut BytesMut,
) {
    put(out, r#"{"index":"#);
    put_number(out, choice.index as u64);
    put(out, r#","delta":"#);
    write_delta(choice, first, state, made, out);
    put(out, r#","logprobs":"#);
    put_logprobs(choice.logprobs, out);
    match choice.finish.map(FinishReason::as_str) {
        Some(reason) => {
            put(out, r#","finish_reason":""#);
            put(out, reason);
            put(out, "\"}");
        }
        None => put(out, r#","finish_reason":null}"#),
    }
}

/// Writes a piece's delta. A choice's first delta contains the role and a text, even an empty one. The last delta
/// contains what the server wants back, and the arguments of calls without any.
fn write_delta(
    choice: &ChunkChoice<'_>,
    first: bool,
    state: &mut ChoiceState,
    made: MadeIds,
    out: &mut BytesMut,
) {
    let delta = &choice.delta;
    let content = delta.content.or(first.then_some(RawString::EMPTY));
    let texts = [
        (r#""content":"#, content),
        (r#""reasoning_content":"#, delta.reasoning),
        (r#""refusal":"#, delta.refusal),
    ];
    let mut before = "{";
    if first {
        put(out, r#"{"role":"assistant""#);
        before = ",";
    }
    for (name, text) in texts {
        if let Some(text) = text {
            put(out, before);
            before = ",";
            put(out, name);
            text.write(out);
        }
    }
    let mut before_call = [before, r#""tool_calls":["#];
    let mut begin_call = |out: &mut BytesMut| {
        for text in std::mem::replace(&mut before_call, [",", ""]) {
            put(out, text);
        }
    };
    for (place, call) in delta.calls().iter().enumerate() {
        begin_call(out);
        let piece = state.calls.place(call, place);
        state.carry.call(call, piece.index);
        let signature = if state.carry.is_empty() { None } else { state.carry.take_call(piece.index) };
        call.write_piece(&piece, made, signature.as_deref(), out);
    }
    if choice.finish == Some(FinishReason::ToolCalls) {
        for index in state.calls.without_arguments() {
            begin_call(out);
            put(out, r#"{"index":"#);
            put_number(out, index);
            put(out, r#","function":{"arguments":"#);
            NO_ARGUMENTS.write(out);
            put(out, "}}");
        }
    }
    if before_call[1].is_empty() {
        put(out, "]");
        before = ",";
    }
    if choice.finish.is_some() && !state.carry.is_empty() {
        put(out, before);
        before = ",";
        state.carry.write_details(out);
    }
    put(out, if before == "{" { "{}" } else { "}" });
}
