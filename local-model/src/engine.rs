//! The engine: the model on a thread of its own, answering many requests at once.

mod prefixes;
mod run;
mod worker;

use std::{
    sync::{Arc, OnceLock, mpsc},
    thread::{self, JoinHandle},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc as events};

use self::worker::Worker;
use crate::{
    answer::Piece,
    grammar::{Constraint, Grammars, Inexpressible},
    model::Model,
    prompt::Template,
    sampler::{Likelihood, Sampling},
    vocabulary::Vocabulary,
    weights::LoadError,
};

/// How to run the model. Time and chance come from outside, so that tests can replay them.
#[derive(Clone)]
pub struct Options {
    /// The current time in whole seconds since 1970.
    pub now: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// 64 random bits, for requests without a seed and for ids.
    pub random: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// So many requests are held, being answered or waiting for it; one more is refused.
    pub max_requests: usize,
    /// So many tokens of finished requests are kept for others that begin alike; 0 reads every prompt anew.
    pub max_cached_tokens: usize,
}

/// The running model. Clones share it; it stops when the last one is dropped, and unfinished answers break off.
#[derive(Clone)]
pub struct Engine(Arc<Running>);

struct Running {
    options: Options,
    name: String,
    sentence: Option<&'static str>,
    vocabulary: Arc<Vocabulary>,
    template: Template,
    grammars: Grammars,
    context: usize,
    slots: Arc<Semaphore>,
    /// Taken on drop: the worker ends when nobody can send it requests any more.
    requests: Option<mpsc::Sender<Request>>,
    worker: Option<JoinHandle<()>>,
}

/// What is asked of the model, with the means to answer it.
struct Request {
    job: Job,
    events: events::UnboundedSender<Event>,
    /// Why its answers break off, if the request itself is the reason.
    obstacle: Obstacle,
    /// Held until the request ends, however it ends.
    _slot: Slot,
}

/// What is known by the time the events end.
type Obstacle = Arc<OnceLock<Inexpressible>>;

/// A place for one request, free again when it is dropped.
pub(crate) struct Slot(#[expect(dead_code, reason = "it is held, not read")] OwnedSemaphorePermit);

/// What is asked of the model. The prompt leaves room for at least one more token.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) prompt: Vec<u32>,
    /// So many independent answers, at least one.
    pub(crate) choices: usize,
    /// So many tokens per answer, at least one.
    pub(crate) max_tokens: usize,
    pub(crate) sampling: Sampling,
    pub(crate) stops: Vec<String>,
    /// Whether the prompt ends within a thought.
    pub(crate) in_thought: bool,
    /// Names the tool calls, which are recognised only if there is such a seed.
    pub(crate) tool_seed: Option<u64>,
    /// What the answers may say, if not everything.
    pub(crate) constraint: Option<Constraint>,
    /// Whether to say how likely each token was, and beside it how many of the likeliest.
    pub(crate) top_logprobs: Option<usize>,
}

/// What became of one choice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) choice: usize,
    pub(crate) news: News,
    /// How likely the tokens were that were written since the choice's last event.
    pub(crate) likelihoods: Vec<(Likelihood, Vec<Likelihood>)>,
    /// Of the whole request, up to now.
    pub(crate) usage: Usage,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum News {
    Piece(Piece),
    Finished(FinishReason),
}

/// Why an answer ended. The names are wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishReason {
    Stop,
    Length,
    ToolCalls,
}

/// Tokens, counted by the model itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    /// Tokens of the prompt that did not have to be read, as an earlier request began with them.
    pub(crate) cached: usize,
    /// Tokens written, over all choices. The one that ends an answer is one of them.
    pub(crate) completion: usize,
    /// Tokens of the completion that were spent on thinking.
    pub(crate) reasoning: usize,
}

/// The events of one request. Dropping it tells the engine that nobody waits for the rest.
pub(crate) struct Generation {
    events: events::UnboundedReceiver<Event>,
    obstacle: Obstacle,
    unfinished: usize,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// As many requests as the engine holds are there already.
    #[error("too many requests are in flight")]
    Full,
    /// The engine has ended, which only a fault in it can cause while someone holds it.
    #[error("the model has stopped")]
    Stopped,
}

/// Why the events end before the answer does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BrokenOff {
    /// What was asked for cannot be followed any further.
    Inexpressible(Inexpressible),
    /// The engine has ended.
    Stopped,
}

impl Options {
    /// The usual bounds, with this source of time (seconds since 1970) and of chance (64 random bits).
    pub fn new(
        now: impl Fn() -> u64 + Send + Sync + 'static,
        random: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self {
            now: Arc::new(now),
            random: Arc::new(random),
            // At some thousand tokens a second in all, a longer queue would only make everyone wait longer.
            max_requests: 64,
            // One token's keys and values take 4.6 kB of the demo model, so these take 38 MB.
            max_cached_tokens: 8192,
        }
    }
}

impl Engine {
    /// Starts the model's thread.
    pub fn start(model: Model, options: Options) -> Result<Self, LoadError> {
        let Model { name, sentence, decoder, vocabulary, template } = model;
        let grammars = Grammars::new(&vocabulary).map_err(LoadError::Tokenizer)?;
        let context = decoder.context();
        let (requests, arrivals) = mpsc::channel();
        let mut worker = Worker::new(decoder, Arc::clone(&vocabulary), arrivals, options.max_cached_tokens);
        let worker = thread::Builder::new()
            .name("local-model".to_owned())
            .spawn(move || while worker.turn() {})
            .map_err(LoadError::Thread)?;
        Ok(Self(Arc::new(Running {
            slots: Arc::new(Semaphore::new(options.max_requests)),
            options,
            name,
            sentence,
            vocabulary,
            template,
            grammars,
            context,
            requests: Some(requests),
            worker: Some(worker),
        })))
    }

    /// The name under which the model is served.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What to expect of the model, where we know.
    pub(crate) fn sentence(&self) -> Option<&'static str> {
        self.0.sentence
    }

    /// So many more requests would be taken now.
    pub fn free_slots(&self) -> usize {
        self.0.slots.available_permits()
    }

    /// Whether the model still answers.
    pub fn is_alive(&self) -> bool {
        self.0.worker.as_ref().is_some_and(|worker| !worker.is_finished())
    }

    /// A place for one request. It is taken before any work on the request, so that this work is bounded too.
    pub(crate) fn admit(&self) -> Result<Slot, Refused> {
        Arc::clone(&self.0.slots).try_acquire_owned().map(Slot).map_err(|_| Refused::Full)
    }

    /// Takes a request in, to be answered beside the others.
    pub(crate) fn submit(&self, slot: Slot, job: Job) -> Result<Generation, Refused> {
        // Unbounded, so that a slow reader holds nobody up; what a request can write is bounded by the context.
        let (sender, events) = events::unbounded_channel();
        let (unfinished, obstacle) = (job.choices, Obstacle::default());
        let request = Request { job, events: sender, obstacle: Arc::clone(&obstacle), _slot: slot };
        let requests = self.0.requests.as_ref().ok_or(Refused::Stopped)?;
        requests.send(request).map_err(|_| Refused::Stopped)?;
        Ok(Generation { events, obstacle, unfinished })
    }

    pub(crate) fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.0.vocabulary
    }

    pub(crate) fn grammars(&self) -> &Grammars {
        &self.0.grammars
    }

    pub(crate) fn template(&self) -> &Template {
        &self.0.template
    }

    /// Prompt and answer together hold at most so many tokens.
    pub(crate) fn context(&self) -> usize {
        self.0.context
    }

    pub(crate) fn now(&self) -> u64 {
        (self.0.options.now)()
    }

    pub(crate) fn random(&self) -> u64 {
        (self.0.options.random)()
    }
}

impl Drop for Running {
    /// Waits for the thread, which ends after the turn it is in: some milliseconds.
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
    /// The events that came since, at least one and at most `limit`; none when all choices are finished.
    pub(crate) async fn next(&mut self, limit: usize) -> Result<Vec<Event>, BrokenOff> {
        let mut events = Vec::new();
        if self.unfinished > 0 && self.events.recv_many(&mut events, limit).await == 0 {
            return Err(self.obstacle.get().cloned().map_or(BrokenOff::Stopped, BrokenOff::Inexpressible));
        }
        self.unfinished -= events.iter().filter(|event| matches!(event.news, News::Finished(_))).count();
        Ok(events)
    }
}

impl FinishReason {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endless(engine: &Engine) -> Job {
        Job {
            prompt: engine.vocabulary().encode("<|im_start|>user\nWho are you?<|im_end|>\n").unwrap(),
            choices: 8,
            max_tokens: usize::MAX,
            sampling: Sampling::default(),
            stops: Vec::new(),
            in_thought: false,
            tool_seed: None,
            constraint: None,
            top_logprobs: None,
        }
    }

    #[tokio::test]
    async fn an_engine_that_is_dropped_breaks_its_answers_off() {
        let engine = Engine::start(Model::shipped().unwrap(), Options::new(|| 0, || 0)).unwrap();
        let mut generation = engine.submit(engine.admit().unwrap(), endless(&engine)).unwrap();
        assert!(!generation.next(1).await.unwrap().is_empty());
        drop(engine);
        while let Ok(events) = generation.next(1000).await {
            assert!(!events.is_empty(), "the answer cannot have come to its end");
        }
    }

    #[test]
    fn one_request_more_than_there_are_slots_is_refused() {
        let engine =
            Engine::start(Model::shipped().unwrap(), Options { max_requests: 1, ..Options::new(|| 0, || 0) })
                .unwrap();
        let generation = engine.submit(engine.admit().unwrap(), endless(&engine)).unwrap();
        assert_eq!(engine.free_slots(), 0);
        assert_eq!(engine.admit().err(), Some(Refused::Full));
        drop(generation);
    }
}
