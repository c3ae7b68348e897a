//! The thread that owns the model and answers all requests side by side.

use std::{
    collections::VecDeque,
    sync::{Arc, mpsc},
};

use super::{
    Submitted,
    active::{ActiveRequest, Completion},
    prefix_cache::PrefixCache,
};
use crate::{
    tokenizer::Tokenizer,
    transformer::{BatchItem, Transformer},
};

/// Completions that are written side by side. Each may come to hold the keys and values of a whole context: 9.4 MB.
const MAX_COMPLETIONS: usize = 32;

/// Model with the requests that it is answering.
pub(crate) struct Worker {
    transformer: Transformer,
    tokenizer: Arc<Tokenizer>,
    prefixes: PrefixCache,
    /// Unbounded, but each request in it holds one of the engine's permits.
    arrivals: mpsc::Receiver<Submitted>,
    waiting: VecDeque<Submitted>,
    running: Vec<ActiveRequest>,
}

impl Worker {
    pub(crate) fn new(
        transformer: Transformer,
        tokenizer: Arc<Tokenizer>,
        arrivals: mpsc::Receiver<Submitted>,
        max_cached_tokens: usize,
    ) -> Self {
        let prefixes = PrefixCache::new(max_cached_tokens);
        Self { transformer, tokenizer, prefixes, arrivals, waiting: VecDeque::new(), running: Vec::new() }
    }

    /// Advances every completion by one token, and one prompt by a chunk. Without requests it waits for one. False when the
    /// engine is gone.
    pub(crate) fn step(&mut self) -> bool {
        if !self.receive() {
            return false;
        }
        // Clients that left want no answer.
        self.running.retain(|active| !active.is_abandoned());
        self.waiting.retain(|submitted| !submitted.events.is_closed());
        self.admit();
        self.forward();
        let context = self.transformer.context();
        for active in &mut self.running {
            active.advance(context, &mut self.prefixes);
        }
        self.running.retain(|active| !active.is_finished());
        true
    }

    fn receive(&mut self) -> bool {
        if self.running.is_empty() && self.waiting.is_empty() {
            match self.arrivals.recv() {
                Ok(submitted) => self.waiting.push_back(submitted),
                Err(mpsc::RecvError) => return false,
            }
        }
        loop {
            match self.arrivals.try_recv() {
                Ok(submitted) => self.waiting.push_back(submitted),
                Err(mpsc::TryRecvError::Empty) => return true,
                Err(mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Begins requests in the order of their arrival, as far as there is room.
    fn admit(&mut self) {
        let mut completions: usize = self.running.iter().map(ActiveRequest::choices).sum();
        let fits =
            |completions: usize, next: &Submitted| completions + next.request.choices <= MAX_COMPLETIONS;
        while let Some(next) = self.waiting.pop_front_if(|next| fits(completions, next)) {
            completions += next.request.choices;
            let cache = self.prefixes.find(&next.request.prompt);
            self.running.push(ActiveRequest::new(next, cache, Arc::clone(&self.tokenizer)));
        }
    }

    /// Computes one batch: a token of each completion, and a chunk of the first prompt that is not read.
    fn forward(&mut self) {
        let mut has_prompt = false;
        let completions = self.running.iter_mut().flat_map(ActiveRequest::completions);
        let mut chosen: Vec<&mut Completion> = completions
            .filter(|completion| !completion.is_prompt() || !std::mem::replace(&mut has_prompt, true))
            .collect();
        let mut batch: Vec<BatchItem<'_>> =
            chosen.iter_mut().map(|completion| completion.batch_item()).collect();
        if !batch.is_empty() {
            let logits = self.transformer.forward(&mut batch);
            for (completion, logits) in chosen.into_iter().zip(logits) {
                completion.take_logits(logits);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Semaphore, mpsc as events};

    use super::*;
    use crate::{
        engine::{Event, EventKind, Request},
        grammar::SchemaError,
        model::Model,
        sampler::Sampling,
    };

    type Events = events::UnboundedReceiver<Result<Event, SchemaError>>;

    /// Worker whose steps the test takes, with the means to send it requests.
    struct Bench {
        worker: Worker,
        requests: mpsc::Sender<Submitted>,
        permits: Arc<Semaphore>,
    }

    impl Bench {
        fn new() -> Self {
            let (requests, arrivals) = mpsc::channel();
            let Model { transformer, tokenizer } = Model::shipped().unwrap();
            let worker = Worker::new(transformer, tokenizer, arrivals, 1000);
            Self { worker, requests, permits: Arc::new(Semaphore::new(100)) }
        }

        /// Asks for answers that never end by themselves.
        fn ask(&self, prompt_tokens: u32, choices: usize) -> Events {
            let (sender, events) = events::unbounded_channel();
            let request = Request {
                prompt: (100..100 + prompt_tokens).collect(),
                choices,
                max_tokens: 40,
                sampling: Sampling { bias: vec![(2, -1e9), (0, -1e9)], ..Sampling::default() },
                stops: Vec::new(),
                id_seed: None,
                constraint: None,
                top_logprobs: None,
            };
            let permit = Arc::clone(&self.permits).try_acquire_owned().unwrap();
            self.requests.send(Submitted { request, events: sender, _permit: permit }).unwrap();
            events
        }

        fn steps(&mut self, count: usize) {
            for _ in 0..count {
                assert!(self.worker.step());
            }
        }
    }

    /// Tokens that were written, as of the last event.
    fn written(events: &mut Events) -> usize {
        std::iter::from_fn(|| events.try_recv().ok())
            .last()
            .map_or(0, |event| event.unwrap().usage.completion)
    }

    #[test]
    fn sixteen_requests_are_written_side_by_side() {
        let mut bench = Bench::new();
        let mut asked: Vec<Events> = (0..16).map(|_| bench.ask(20, 1)).collect();
        // One prompt is read in a step.
        bench.steps(16);
        let before: Vec<usize> = asked.iter_mut().map(written).collect();
        bench.steps(10);
        let after: Vec<usize> = asked.iter_mut().map(written).collect();
        // Some tokens are reported a step later, as a character was not whole.
        let more = before.iter().zip(&after).map(|(before, after)| after - before);
        assert!(more.into_iter().all(|more| (8..=12).contains(&more)), "{before:?} {after:?}");
    }

    #[test]
    fn a_long_prompt_is_read_while_others_write() {
        let mut bench = Bench::new();
        let (mut short, _long) = (bench.ask(20, 1), bench.ask(640, 1));
        bench.steps(20);
        assert!(written(&mut short) >= 8);
    }

    #[test]
    fn a_client_that_leaves_frees_its_permit_at_the_next_step() {
        let mut bench = Bench::new();
        let asked: Vec<Events> = (0..4).map(|_| bench.ask(20, 8)).collect();
        let waits = bench.ask(20, 1);
        bench.steps(5);
        assert_eq!(bench.permits.available_permits(), 95);
        drop(waits);
        bench.steps(1);
        assert_eq!(bench.permits.available_permits(), 96);
        drop(asked);
        let _next = bench.ask(20, 1);
        bench.steps(1);
        assert_eq!(bench.permits.available_permits(), 99);
    }

    #[test]
    fn a_request_that_waits_is_answered_when_there_is_room() {
        let mut bench = Bench::new();
        let asked: Vec<Events> = (0..4).map(|_| bench.ask(20, 8)).collect();
        let mut waits = bench.ask(20, 1);
        bench.steps(35);
        assert_eq!(written(&mut waits), 0);
        drop(asked);
        // The first step reads the prompt and writes; one more would wait for the next request.
        bench.steps(40);
        assert_eq!(bench.permits.available_permits(), 100);
        let finished = std::iter::from_fn(|| waits.try_recv().ok()).last().unwrap();
        assert!(matches!(finished.unwrap().kind, EventKind::Finished(_)));
    }
}
