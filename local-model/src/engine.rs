//! The engine: the model, which answers requests side by side, a token of each in turn.

mod generator;

use std::sync::Arc;

use serde::Serialize;
use shared::clock::{Clock, random_bytes};
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc},
    task::spawn_blocking,
};

use self::generator::Generator;
use crate::{
    grammar::{Constraint, GrammarCompiler, SchemaError},
    model::Model,
    output::Delta,
    sampler::{Sampling, TokenLogprob},
};

/// Number of completions that are written side by side. Each may come to hold the keys and values of a whole context: 9.4 MB.
const MAX_COMPLETIONS: usize = 32;

/// Running model, shared by the engine's clones.
#[derive(Clone)]
pub struct Engine(Arc<Shared>);

struct Shared {
    model: Model,
    grammars: GrammarCompiler,
    /// Source of time, and of randomness for ids and for requests without a seed.
    clock: Arc<dyn Clock>,
    requests: Arc<Semaphore>,
    completions: Arc<Semaphore>,
    /// Turn to compute, given in the order of asking, so that all requests make progress.
    turn: Mutex<()>,
}

/// Permit for a request, free again when dropped.
pub(crate) type Permit = OwnedSemaphorePermit;

/// Checked request. The prompt leaves room for at least another token.
pub(crate) struct Request {
    pub(crate) prompt: Vec<u32>,
    /// Number of independent answers, never zero.
    pub(crate) choices: u32,
    /// Limit of tokens per answer, never zero.
    pub(crate) max_tokens: usize,
    pub(crate) sampling: Sampling,
    pub(crate) stops: Vec<String>,
    /// Seed of the ids of tool calls, which are parsed only with a seed.
    pub(crate) id_seed: Option<u64>,
    pub(crate) constraint: Option<Constraint>,
    /// Count of the likeliest tokens that are reported beside each token, if logprobs are.
    pub(crate) top_logprobs: Option<usize>,
}

/// Progress of a choice.
pub(crate) struct Event {
    pub(crate) choice: usize,
    pub(crate) kind: EventKind,
    /// Logprobs of the tokens since the choice's last event.
    pub(crate) logprobs: Vec<TokenLogprob>,
    /// Usage of the whole request so far.
    pub(crate) usage: Usage,
}

pub(crate) enum EventKind {
    Delta(Delta),
    Finished(FinishReason),
}

/// Reason for which an answer ended. The names are wire format.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FinishReason {
    Stop,
    Length,
    ToolCalls,
}

/// Tokens of a request, counted by the model itself.
#[derive(Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    /// Tokens of all choices, the end of each answer included.
    pub(crate) completion: usize,
}

/// Events of a request. The engine stops answering a request whose events are dropped.
pub(crate) struct Events {
    received: mpsc::UnboundedReceiver<Result<Event, SchemaError>>,
    unfinished: u32,
}

/// Reason for which a request was not taken, or an answer not finished.
pub(crate) enum EngineError {
    /// The engine is at its bound of requests.
    Full,
    /// A fault in the engine ended the answer.
    Broken,
    /// The schema cannot be followed any further.
    Schema(SchemaError),
}

impl Engine {
    /// Loads the shipped model, which takes some milliseconds. A request beyond `max_requests` at once is refused.
    pub fn start(clock: Arc<dyn Clock>, max_requests: usize) -> anyhow::Result<Self> {
        let model = Model::shipped()?;
        let grammars = GrammarCompiler::new(&model.tokenizer)?;
        let requests = Arc::new(Semaphore::new(max_requests));
        let completions = Arc::new(Semaphore::new(MAX_COMPLETIONS));
        Ok(Self(Arc::new(Shared { model, grammars, clock, requests, completions, turn: Mutex::new(()) })))
    }

    /// Takes a permit for a request before any work on the request, so that this work is bounded too.
    pub(crate) fn admit(&self) -> Result<Permit, EngineError> {
        Arc::clone(&self.0.requests).try_acquire_owned().map_err(|_| EngineError::Full)
    }

    /// Answers a request beside the others, once few enough completions are being written.
    pub(crate) async fn submit(&self, permit: Permit, request: Request) -> Result<Events, EngineError> {
        let completions = Arc::clone(&self.0.completions).acquire_many_owned(request.choices).await;
        let completions = completions.map_err(|_| EngineError::Broken)?;
        // Unbounded, so that a slow reader delays no other; the context bounds the events of a request.
        let (sender, received) = mpsc::unbounded_channel();
        let (engine, unfinished) = (Arc::clone(&self.0), request.choices);
        spawn_blocking(move || {
            Generator::new(&engine, &request, &sender).run();
            drop((permit, completions));
        });
        Ok(Events { received, unfinished })
    }

    pub(crate) fn model(&self) -> &Model {
        &self.0.model
    }

    pub(crate) fn grammars(&self) -> &GrammarCompiler {
        &self.0.grammars
    }

    /// Tokens that prompt and answer together may have.
    pub(crate) fn context(&self) -> usize {
        self.0.model.transformer.context()
    }

    /// Time in seconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        self.0.clock.now().seconds()
    }

    /// Random number, as a seed or as an id.
    pub(crate) fn random(&self) -> u64 {
        u64::from_le_bytes(random_bytes(&*self.0.clock))
    }
}

impl Events {
    /// Waits for the next event. None when all choices are finished.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, EngineError> {
        if self.unfinished == 0 {
            return Ok(None);
        }
        let event = self.received.recv().await.ok_or(EngineError::Broken)?.map_err(EngineError::Schema)?;
        self.unfinished -= u32::from(matches!(event.kind, EventKind::Finished(_)));
        Ok(Some(event))
    }
}
