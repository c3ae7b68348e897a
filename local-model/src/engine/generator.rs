//! Generation of a request's answers: reads the prompt in chunks, then writes all completions token by token.

use std::{iter, mem, sync::Arc};

use tokio::sync::{MutexGuard, mpsc::UnboundedSender};

use super::{Event, EventKind, FinishReason, Request, Shared, Usage};
use crate::{
    grammar::{Constraint, SchemaError},
    output::{Delta, OutputParser},
    sampler::{Sampler, TokenLogprob, logprob},
    transformer::KvCache,
};

/// Tokens of a prompt that are read per turn: 5 to 15 ms, for which the other requests wait. Larger chunks are no
/// faster.
const CHUNK: usize = 32;

/// Request with the resources for an answer, on a thread that may block.
pub(super) struct Generator<'a> {
    engine: &'a Shared,
    request: &'a Request,
    events: &'a UnboundedSender<Result<Event, SchemaError>>,
    usage: Usage,
}

/// An answer of a request.
struct Completion {
    index: usize,
    cache: KvCache,
    /// Logits of the next token.
    logits: Vec<f32>,
    written: usize,
    sampler: Sampler,
    parser: OutputParser,
    constraint: Option<Constraint>,
    /// Logprobs of the tokens since the last event.
    logprobs: Vec<TokenLogprob>,
}

impl<'a> Generator<'a> {
    pub(super) fn new(
        engine: &'a Shared,
        request: &'a Request,
        events: &'a UnboundedSender<Result<Event, SchemaError>>,
    ) -> Self {
        let usage = Usage { prompt: request.prompt.len(), completion: 0 };
        Self { engine, request, events, usage }
    }

    /// Writes all completions, until the client leaves.
    pub(super) fn run(mut self) {
        let Some((cache, logits)) = self.read_prompt() else { return };
        let copies = iter::repeat_n((cache, logits), self.request.choices as usize);
        let completion = |(index, (cache, logits))| self.completion(index, cache, logits);
        let mut unfinished: Vec<Completion> = copies.enumerate().map(completion).collect();
        while !unfinished.is_empty() {
            for mut completion in mem::take(&mut unfinished) {
                let Some(_turn) = self.turn() else { return };
                match self.write(&mut completion) {
                    Ok(None) => unfinished.push(completion),
                    Ok(Some(reason)) => self.finish(completion, reason),
                    Err(error) => {
                        // A client that has left needs no error.
                        let _ = self.events.send(Err(error));
                        return;
                    }
                }
            }
        }
    }

    /// Waits for a turn to compute. None when the client has left.
    fn turn(&self) -> Option<MutexGuard<'a, ()>> {
        let turn = self.engine.turn.blocking_lock();
        (!self.events.is_closed()).then_some(turn)
    }

    fn read_prompt(&self) -> Option<(KvCache, Vec<f32>)> {
        let (mut cache, mut logits) = (KvCache::default(), Vec::new());
        for chunk in self.request.prompt.chunks(CHUNK) {
            let _turn = self.turn()?;
            logits = self.engine.model.transformer.forward(chunk, &mut cache);
        }
        Some((cache, logits))
    }

    fn completion(&self, index: usize, cache: KvCache, logits: Vec<f32>) -> Completion {
        let request = self.request;
        let id_seed = request.id_seed.map(|seed| seed.wrapping_add(index as u64));
        let tokenizer = Arc::clone(&self.engine.model.tokenizer);
        Completion {
            index,
            cache,
            logits,
            written: 0,
            sampler: Sampler::new(request.sampling.clone(), index),
            parser: OutputParser::new(tokenizer, request.stops.clone(), id_seed),
            constraint: request.constraint.clone(),
            logprobs: Vec::new(),
        }
    }

    /// Writes the next token and reports the text that has become certain. Returns the reason if the answer ends.
    fn write(&mut self, completion: &mut Completion) -> Result<Option<FinishReason>, SchemaError> {
        let (request, model) = (self.request, &self.engine.model);
        let token = completion.sample()?;
        completion.written += 1;
        self.usage.completion += 1;
        let mut ends = model.tokenizer.is_end(token);
        if !ends {
            if let Some(count) = request.top_logprobs {
                completion.logprobs.push(logprob(&model.tokenizer, &completion.logits, token, count));
            }
            if let Some(constraint) = &mut completion.constraint {
                constraint.advance(token)?;
                ends = constraint.is_complete();
            }
            let deltas = completion.parser.push(token);
            self.report(completion, deltas);
            ends |= completion.parser.is_stopped();
        }
        if ends {
            let calls = completion.parser.has_calls();
            return Ok(Some(if calls { FinishReason::ToolCalls } else { FinishReason::Stop }));
        }
        let room = model.transformer.context() - request.prompt.len();
        if completion.written >= request.max_tokens.min(room) {
            return Ok(Some(FinishReason::Length));
        }
        completion.logits = model.transformer.forward(&[token], &mut completion.cache);
        Ok(None)
    }

    fn finish(&self, mut completion: Completion, reason: FinishReason) {
        let deltas = completion.parser.finish();
        self.report(&mut completion, deltas);
        self.send(&mut completion, EventKind::Finished(reason));
    }

    fn report(&self, completion: &mut Completion, deltas: Vec<Delta>) {
        for delta in deltas {
            self.send(completion, EventKind::Delta(delta));
        }
    }

    fn send(&self, completion: &mut Completion, kind: EventKind) {
        let logprobs = mem::take(&mut completion.logprobs);
        let event = Event { choice: completion.index, kind, logprobs, usage: self.usage };
        // The next turn notices a client that has left.
        let _ = self.events.send(Ok(event));
    }
}

impl Completion {
    /// Chooses the next token among those of the grammar.
    fn sample(&mut self) -> Result<u32, SchemaError> {
        let mut logits = self.logits.clone();
        if let Some(constraint) = &mut self.constraint {
            constraint.mask(&mut logits)?;
        }
        Ok(self.sampler.sample(logits))
    }
}
