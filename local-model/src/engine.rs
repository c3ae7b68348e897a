//! The engine: the model on a thread of its own, which answers many requests at once.

mod active;
mod prefix_cache;
mod worker;

use std::{
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use serde::Serialize;
use shared::clock::{Clock, random_bytes};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc as events};

use self::worker::Worker;
use crate::{
    grammar::{Constraint, GrammarCompiler, SchemaError},
    model::Model,
    output::Delta,
    sampler::{Sampling, TokenLogprobs},
    tokenizer::Tokenizer,
};

/// Settings of an engine. Time and chance come from outside, so that tests can repeat them.
#[derive(Clone)]
pub struct EngineOptions {
    /// Source of time, and of randomness for requests without a seed and for ids.
    pub clock: Arc<dyn Clock>,
    /// Requests that are answered or wait for it. A further one is refused.
    pub max_requests: usize,
    /// Tokens of finished requests whose keys and values are kept for others that begin alike, at 4.6 kB each.
    pub max_cached_tokens: usize,
}

/// Running model. Clones share it; it stops when the last one is dropped, and unfinished answers break off.
#[derive(Clone)]
pub struct Engine(Arc<Running>);

struct Running {
    options: EngineOptions,
    tokenizer: Arc<Tokenizer>,
    grammars: GrammarCompiler,
    context: usize,
    permits: Arc<Semaphore>,
    /// Taken on drop: the worker ends when no more requests can come.
    requests: Option<mpsc::Sender<Submitted>>,
    worker: Option<JoinHandle<()>>,
}

/// Request, with the means to answer it.
struct Submitted {
    request: Request,
    events: events::UnboundedSender<Result<Event, SchemaError>>,
    /// Held until the request ends.
    _permit: Permit,
}

/// Permit for one request, free again when it is dropped.
pub(crate) type Permit = OwnedSemaphorePermit;

/// Checked request. The prompt leaves room for at least one more token.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) prompt: Vec<u32>,
    /// Count of independent answers, at least one.
    pub(crate) choices: usize,
    /// Tokens of each answer, at least one.
    pub(crate) max_tokens: usize,
    pub(crate) sampling: Sampling,
    pub(crate) stops: Vec<String>,
    /// Seed of the ids of tool calls, which are parsed only with one.
    pub(crate) id_seed: Option<u64>,
    pub(crate) constraint: Option<Constraint>,
    /// Count of the likeliest tokens that are reported beside each token, if logprobs are.
    pub(crate) top_logprobs: Option<usize>,
}

/// Progress of one choice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) choice: usize,
    pub(crate) kind: EventKind,
    /// Logprobs of the tokens since the choice's last event.
    pub(crate) logprobs: Vec<TokenLogprobs>,
    /// Usage of the whole request so far.
    pub(crate) usage: Usage,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EventKind {
    Delta(Delta),
    Finished(FinishReason),
}

/// Reason for which an answer ended. The names are wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FinishReason {
    Stop,
    Length,
    ToolCalls,
}

/// Tokens of a request, counted by the model itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    /// Tokens of the prompt whose keys and values an earlier request had computed.
    pub(crate) cached: usize,
    /// Tokens of all choices, those that end an answer included.
    pub(crate) completion: usize,
}

/// Events of one request. The engine stops answering it when this is dropped.
pub(crate) struct Generation {
    events: events::UnboundedReceiver<Result<Event, SchemaError>>,
    unfinished: usize,
}

/// Reason for which a request was not taken, or its events end before its answer does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EngineError {
    /// The engine has as many requests as it takes.
    Full,
    /// The engine has ended, which only a fault in it can cause.
    Stopped,
    /// The schema cannot be followed any further.
    Schema(SchemaError),
}

impl EngineOptions {
    /// The usual bounds, with this source of time and chance.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        // At some thousand tokens a second in all, a longer queue would only lengthen the wait. The cache takes 38 MB.
        Self { clock, max_requests: 64, max_cached_tokens: 8192 }
    }
}

impl Engine {
    /// Starts the model's thread.
    pub fn start(model: Model, options: EngineOptions) -> anyhow::Result<Self> {
        let Model { transformer, tokenizer } = model;
        let grammars = GrammarCompiler::new(&tokenizer)?;
        let context = transformer.context();
        let (requests, arrivals) = mpsc::channel();
        let mut worker =
            Worker::new(transformer, Arc::clone(&tokenizer), arrivals, options.max_cached_tokens);
        let thread = thread::Builder::new().name("local-model".to_owned());
        let worker = Some(thread.spawn(move || while worker.step() {})?);
        let permits = Arc::new(Semaphore::new(options.max_requests));
        let requests = Some(requests);
        Ok(Self(Arc::new(Running { options, tokenizer, grammars, context, permits, requests, worker })))
    }

    /// Requests that would be taken now.
    pub fn free_permits(&self) -> usize {
        self.0.permits.available_permits()
    }

    /// Returns whether the model still answers.
    pub(crate) fn is_alive(&self) -> bool {
        self.0.worker.as_ref().is_some_and(|worker| !worker.is_finished())
    }

    /// Takes a permit for one request, before any work on it, so that this work is bounded too.
    pub(crate) fn admit(&self) -> Result<Permit, EngineError> {
        Arc::clone(&self.0.permits).try_acquire_owned().map_err(|_| EngineError::Full)
    }

    /// Takes a request, which is answered beside the others.
    pub(crate) fn submit(&self, permit: Permit, request: Request) -> Result<Generation, EngineError> {
        // Unbounded, so that a slow reader delays no other; the context bounds the events of a request.
        let (sender, events) = events::unbounded_channel();
        let unfinished = request.choices;
        let submitted = Submitted { request, events: sender, _permit: permit };
        let requests = self.0.requests.as_ref().ok_or(EngineError::Stopped)?;
        requests.send(submitted).map_err(|_| EngineError::Stopped)?;
        Ok(Generation { events, unfinished })
    }

    pub(crate) fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.0.tokenizer
    }

    pub(crate) fn grammars(&self) -> &GrammarCompiler {
        &self.0.grammars
    }

    /// Tokens that prompt and answer together may have.
    pub(crate) fn context(&self) -> usize {
        self.0.context
    }

    /// Time in seconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        self.0.options.clock.now().seconds()
    }

    pub(crate) fn random(&self) -> u64 {
        u64::from_le_bytes(random_bytes(&*self.0.options.clock))
    }
}

impl Drop for Running {
    /// Waits for the thread, which ends after its current step: some milliseconds.
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(worker) = self.worker.take()
            && worker.join().is_err()
        {
            tracing::error!("the local model's thread has panicked");
        }
    }
}

impl Generation {
    /// Waits for events and returns at most `limit` of them; none when all choices are finished.
    pub(crate) async fn next(&mut self, limit: usize) -> Result<Vec<Event>, EngineError> {
        let mut events = Vec::new();
        if self.unfinished > 0 && self.events.recv_many(&mut events, limit).await == 0 {
            return Err(EngineError::Stopped);
        }
        let events: Vec<Event> = events.into_iter().collect::<Result<_, _>>().map_err(EngineError::Schema)?;
        let is_end = |event: &&Event| matches!(event.kind, EventKind::Finished(_));
        self.unfinished -= events.iter().filter(is_end).count();
        Ok(events)
    }
}
