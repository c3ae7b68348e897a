//! A request that is being answered: its prompt is read in chunks, then its completions are written token by token.

use std::{mem, sync::Arc};

use super::{Event, EventKind, FinishReason, Request, Submitted, Usage, prefix_cache::PrefixCache};
use crate::{
    grammar::{Constraint, SchemaError},
    output::{Delta, OutputParser},
    sampler::{Sampler, TokenLogprobs, logprobs},
    tokenizer::Tokenizer,
    transformer::{BatchItem, KvCache},
};

/// Tokens of a prompt that are read at once: 10 to 30 ms, for which the others wait. More at once are no faster.
const CHUNK: usize = 64;

/// Request with its unfinished completions.
pub(crate) struct ActiveRequest {
    submitted: Submitted,
    tokenizer: Arc<Tokenizer>,
    usage: Usage,
    /// While the prompt is read there is one. The others are forked from it.
    completions: Vec<Completion>,
    is_forked: bool,
}

/// One answer of a request.
pub(crate) struct Completion {
    index: usize,
    sampler: Sampler,
    parser: OutputParser,
    constraint: Option<Constraint>,
    /// Prompt and answer.
    tokens: Vec<u32>,
    /// Keys and values of the tokens that were computed.
    cache: KvCache,
    /// Logits of the next token, once all tokens were computed.
    logits: Option<Vec<f32>>,
    written: usize,
    logprobs: Vec<TokenLogprobs>,
}

impl ActiveRequest {
    /// Begins a request. `cache` holds a beginning of its prompt.
    pub(crate) fn new(submitted: Submitted, cache: KvCache, tokenizer: Arc<Tokenizer>) -> Self {
        let request = &submitted.request;
        let usage = Usage { prompt: request.prompt.len(), cached: cache.len(), completion: 0 };
        let completions = vec![Completion::new(request, &tokenizer, 0, cache, None)];
        Self { submitted, tokenizer, usage, completions, is_forked: false }
    }

    /// Completions that are, or will be, written.
    pub(crate) fn choices(&self) -> usize {
        if self.is_forked { self.completions.len() } else { self.submitted.request.choices }
    }

    pub(crate) fn completions(&mut self) -> impl Iterator<Item = &mut Completion> {
        self.completions.iter_mut()
    }

    /// Returns whether the client has left.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.submitted.events.is_closed()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.completions.is_empty()
    }

    /// Writes one token of each completion whose logits are computed.
    pub(crate) fn advance(&mut self, context: usize, prefixes: &mut PrefixCache) {
        self.fork();
        for mut completion in mem::take(&mut self.completions) {
            match self.write(&mut completion, context) {
                Ok(None) => self.completions.push(completion),
                Ok(Some(reason)) => self.finish(completion, reason, prefixes),
                Err(error) => {
                    // A client that has left is noticed at the next step.
                    let _ = self.submitted.events.send(Err(error));
                    self.completions.clear();
                    return;
                }
            }
        }
    }

    fn fork(&mut self) {
        let [first] = self.completions.as_slice() else { return };
        if self.is_forked || first.logits.is_none() {
            return;
        }
        self.is_forked = true;
        let request = &self.submitted.request;
        let fork = |index| {
            Completion::new(request, &self.tokenizer, index, first.cache.clone(), first.logits.clone())
        };
        let others: Vec<Completion> = (1..request.choices).map(fork).collect();
        self.completions.extend(others);
    }

    /// Writes the next token and reports what became certain by it. Returns the reason if the answer ends.
    fn write(
        &mut self,
        completion: &mut Completion,
        context: usize,
    ) -> Result<Option<FinishReason>, SchemaError> {
        let Some(logits) = completion.logits.take() else { return Ok(None) };
        let request = &self.submitted.request;
        let token = completion.sample(logits.clone())?;
        completion.written += 1;
        self.usage.completion += 1;
        let mut ends = self.tokenizer.is_end(token);
        if !ends {
            if let Some(count) = request.top_logprobs {
                completion.logprobs.push(logprobs(&logits, token, count));
            }
            if let Some(constraint) = &mut completion.constraint {
                constraint.advance(token)?;
                ends = constraint.is_complete();
            }
            completion.tokens.push(token);
            let is_full = completion.written >= request.max_tokens || completion.tokens.len() >= context;
            let deltas = completion.parser.push(token);
            self.report(completion, deltas);
            if !ends && !completion.parser.is_stopped() {
                return Ok(is_full.then_some(FinishReason::Length));
            }
        }
        let calls = completion.parser.has_calls();
        Ok(Some(if calls { FinishReason::ToolCalls } else { FinishReason::Stop }))
    }

    fn finish(&self, mut completion: Completion, reason: FinishReason, prefixes: &mut PrefixCache) {
        let deltas = completion.parser.finish();
        self.report(&mut completion, deltas);
        self.send(&mut completion, EventKind::Finished(reason));
        completion.tokens.truncate(completion.cache.len());
        prefixes.insert(completion.tokens, completion.cache);
    }

    fn report(&self, completion: &mut Completion, deltas: Vec<Delta>) {
        for delta in deltas {
            self.send(completion, EventKind::Delta(delta));
        }
    }

    fn send(&self, completion: &mut Completion, kind: EventKind) {
        let logprobs = mem::take(&mut completion.logprobs);
        let event = Event { choice: completion.index, kind, logprobs, usage: self.usage };
        // A client that has left is noticed at the next step.
        let _ = self.submitted.events.send(Ok(event));
    }
}

impl Completion {
    fn new(
        request: &Request,
        tokenizer: &Arc<Tokenizer>,
        index: usize,
        cache: KvCache,
        logits: Option<Vec<f32>>,
    ) -> Self {
        let id_seed = request.id_seed.map(|seed| seed.wrapping_add(index as u64));
        Self {
            index,
            sampler: Sampler::new(request.sampling.clone(), index),
            parser: OutputParser::new(Arc::clone(tokenizer), request.stops.clone(), id_seed),
            constraint: request.constraint.clone(),
            tokens: request.prompt.clone(),
            cache,
            logits,
            written: 0,
            logprobs: Vec::new(),
        }
    }

    /// Returns whether the prompt is not read.
    pub(crate) fn is_prompt(&self) -> bool {
        self.written == 0
    }

    /// Next tokens to be computed.
    pub(crate) fn batch_item(&mut self) -> BatchItem<'_> {
        let unread = &self.tokens[self.cache.len()..];
        BatchItem { tokens: &unread[..unread.len().min(CHUNK)], cache: &mut self.cache }
    }

    /// Takes the logits of a batch, which matter after the last token.
    pub(crate) fn take_logits(&mut self, logits: Vec<f32>) {
        self.logits = (self.cache.len() == self.tokens.len()).then_some(logits);
    }

    /// Chooses the next token, of those that the grammar allows.
    fn sample(&mut self, mut logits: Vec<f32>) -> Result<u32, SchemaError> {
        if let Some(constraint) = &mut self.constraint {
            constraint.mask(&mut logits)?;
        }
        Ok(self.sampler.sample(logits))
    }
}
