//! The engine: the model, which answers several requests side by side, one token of each in turn.

use std::{mem, sync::Arc};

use local_model_transformer::{CONTEXT_TOKENS, KvCache, Transformer};
use shared::{
    clock::{Clock, random_bytes},
    error::{ApiError, Code},
};
use tokio::{
    sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore, mpsc},
    task::spawn_blocking,
};

use crate::{
    grammar::{Constraint, GrammarCompiler},
    output::{Delta, OutputParser},
    sampler::Sampler,
    tokenizer::{END_OF_TEXT, TURN_END, Tokenizer},
};

/// Requests that are read or answered side by side; others wait. Each may come to hold keys and values of 9.4 MB.
const MAX_ANSWERS: usize = 32;
/// Tokens of a prompt that are read per turn: 5 to 15 ms, in which other requests wait. Larger chunks are no faster.
const CHUNK: usize = 32;

pub struct Engine {
    transformer: Transformer,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) grammars: GrammarCompiler,
    /// Source of time, and of randomness for ids and for requests without a seed.
    clock: Arc<dyn Clock>,
    requests: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    /// Turn to compute. Turns go in the order of asking, so that all requests make progress.
    turn: Mutex<()>,
}

pub(crate) struct Request {
    pub(crate) prompt: Vec<u32>,
    /// Limit of tokens of the answer, never zero.
    pub(crate) max_tokens: usize,
    pub(crate) sampler: Sampler,
    pub(crate) constraint: Option<Constraint>,
    pub(crate) parser: OutputParser,
}

pub(crate) struct AnswerEvent {
    pub(crate) delta: Delta,
    pub(crate) prompt_tokens: usize,
    /// Tokens of the answer so far, its end included.
    pub(crate) written: usize,
}

/// Events of a request. The engine stops answering a request whose events are dropped.
pub(crate) type Events = mpsc::UnboundedReceiver<Result<AnswerEvent, ApiError>>;

/// A request while it is answered, on a thread that may block.
struct AnswerGenerator<'a> {
    engine: &'a Engine,
    request: Request,
    events: mpsc::UnboundedSender<Result<AnswerEvent, ApiError>>,
    cache: KvCache,
    logits: Vec<f32>,
    written: usize,
}

impl Engine {
    /// Loads the shipped model, which takes some milliseconds. If `max_requests` are answered or wait, another is
    /// refused.
    pub fn start(clock: Arc<dyn Clock>, max_requests: usize) -> anyhow::Result<Arc<Self>> {
        let tokenizer = Tokenizer::shipped()?;
        Ok(Arc::new(Self {
            transformer: Transformer::shipped()?,
            grammars: GrammarCompiler::new(&tokenizer)?,
            tokenizer,
            clock,
            requests: Arc::new(Semaphore::new(max_requests)),
            answers: Arc::new(Semaphore::new(MAX_ANSWERS)),
            turn: Mutex::new(()),
        }))
    }

    /// Takes a permit for a request before any work on the request.
    pub(crate) fn admit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let full = |_| ApiError::new(Code::Overloaded, "The model has too many requests in flight.");
        Arc::clone(&self.requests).try_acquire_owned().map_err(full)
    }

    /// Waits for a permit to read and answer a request, which bounds memory and threads.
    pub(crate) async fn wait(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.answers).acquire_owned().await.map_err(|_| ApiError::internal())
    }

    /// Answers a request beside the others. The permits are held until the answer ends.
    pub(crate) fn submit(self: &Arc<Self>, permits: [OwnedSemaphorePermit; 2], request: Request) -> Events {
        // Unbounded, so that a slow reader delays no other request; the context bounds the events of each.
        let (events, received) = mpsc::unbounded_channel();
        let engine = Arc::clone(self);
        spawn_blocking(move || {
            let (cache, logits) = (KvCache::default(), Vec::new());
            AnswerGenerator { engine: &engine, request, events, cache, logits, written: 0 }.run();
            drop(permits);
        });
        received
    }

    pub(crate) fn now(&self) -> i64 {
        self.clock.now().seconds()
    }

    pub(crate) fn random(&self) -> u64 {
        u64::from_le_bytes(random_bytes(&*self.clock))
    }
}

impl<'a> AnswerGenerator<'a> {
    /// Writes the answer, unless the client leaves.
    fn run(mut self) {
        for chunk in self.request.prompt.chunks(CHUNK) {
            let Some(_turn) = self.turn() else { return };
            self.logits = self.engine.transformer.forward(chunk, &mut self.cache);
        }
        let ended = loop {
            let Some(_turn) = self.turn() else { return };
            if let Some(ended) = self.write().transpose() {
                break ended;
            }
        };
        let rest = self.request.parser.finish();
        self.send(rest.map(Ok));
        self.send(Some(ended.map(Delta::Finished)));
    }

    /// Waits for a turn to compute. `None` if the client has left.
    fn turn(&self) -> Option<MutexGuard<'a, ()>> {
        let turn = self.engine.turn.blocking_lock();
        (!self.events.is_closed()).then_some(turn)
    }

    /// Writes the next token, and reports the text that has become certain. Returns the reason if the answer ends.
    fn write(&mut self) -> Result<Option<&'static str>, ApiError> {
        let mut logits = mem::take(&mut self.logits);
        if let Some(constraint) = &mut self.request.constraint {
            constraint.mask(&mut logits)?;
        }
        let token = self.request.sampler.sample(logits);
        self.written += 1;
        let mut ends = [END_OF_TEXT, TURN_END].contains(&token);
        if !ends {
            if let Some(constraint) = &mut self.request.constraint {
                constraint.advance(token)?;
                ends = constraint.is_complete();
            }
            let delta = self.request.parser.push(&self.engine.tokenizer, token);
            self.send(delta.map(Ok));
            ends |= self.request.parser.is_stopped;
        }
        if ends {
            return Ok(Some(if self.request.parser.calls > 0 { "tool_calls" } else { "stop" }));
        }
        let room = CONTEXT_TOKENS - self.request.prompt.len();
        if self.written >= self.request.max_tokens.min(room) {
            return Ok(Some("length"));
        }
        self.logits = self.engine.transformer.forward(&[token], &mut self.cache);
        Ok(None)
    }

    fn send(&self, delta: Option<Result<Delta, ApiError>>) {
        if let Some(delta) = delta {
            // The next turn notices a client that has left.
            let (prompt_tokens, written) = (self.request.prompt.len(), self.written);
            let _ = self.events.send(delta.map(|delta| AnswerEvent { delta, prompt_tokens, written }));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::prompt::{self, Message, Tool};

    /// Prompt and greedy answer of PyTorch, which `training/reference.py` recorded.
    #[derive(Deserialize)]
    struct Recorded {
        messages: Vec<Message>,
        #[serde(default)]
        tools: Vec<Tool>,
        prompt: String,
        prompt_tokens: usize,
        answer_tokens: Vec<u32>,
    }

    #[test]
    fn prompts_are_those_of_the_training_and_the_likeliest_tokens_those_of_pytorch() {
        let (transformer, tokenizer) = (Transformer::shipped().unwrap(), Tokenizer::shipped().unwrap());
        let recorded: Vec<Recorded> = serde_json::from_str(include_str!("../tests/reference.json")).unwrap();
        for case in recorded {
            let tokens = prompt::encode(&tokenizer, &case.messages, &case.tools).unwrap().tokens;
            let bytes = tokens.iter().flat_map(|&token| &tokenizer.bytes[token as usize]).copied().collect();
            assert_eq!(String::from_utf8(bytes).as_ref(), Ok(&case.prompt));
            assert_eq!(tokens.len(), case.prompt_tokens);
            let mut cache = KvCache::default();
            let mut logits = transformer.forward(&tokens, &mut cache);
            for token in case.answer_tokens {
                assert!(logits.iter().all(|&logit| logit <= logits[token as usize]), "{}", case.prompt);
                logits = transformer.forward(&[token], &mut cache);
            }
        }
    }
}
