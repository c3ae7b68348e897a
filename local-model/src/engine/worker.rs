//! The thread that owns the model and answers all requests side by side.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, mpsc},
};

use super::{
    Request,
    prefixes::Prefixes,
    run::{Progress, Run, Step},
};
use crate::{decoder::Decoder, vocabulary::Vocabulary};

/// So many answers are written side by side. Each may come to hold the keys and values of a whole context: 9.4 MB of the demo
/// model's.
const MAX_ANSWERS: usize = 32;

/// The model with the requests that it is answering.
pub(crate) struct Worker {
    decoder: Decoder,
    vocabulary: Arc<Vocabulary>,
    prefixes: Prefixes,
    /// Unbounded, but each request in it holds one of the engine's slots.
    arrivals: mpsc::Receiver<Request>,
    waiting: VecDeque<Request>,
    running: VecDeque<Run>,
}

impl Worker {
    pub(crate) fn new(
        decoder: Decoder,
        vocabulary: Arc<Vocabulary>,
        arrivals: mpsc::Receiver<Request>,
        max_cached_tokens: usize,
    ) -> Self {
        let (waiting, running) = (VecDeque::new(), VecDeque::new());
        Self { decoder, vocabulary, prefixes: Prefixes::new(max_cached_tokens), arrivals, waiting, running }
    }

    /// Gives every request its turn: each that writes writes one token, and a piece of one prompt is read beside them.
    /// Without requests it waits for one. False means that the engine is gone, and with it everyone who could wait for an
    /// answer.
    pub(crate) fn turn(&mut self) -> bool {
        if !self.take_in() {
            return false;
        }
        self.admit();
        let mut steps = self.steps();
        let mut parts: Vec<_> = steps.iter_mut().map(|(_, step)| step.part()).collect();
        let scores = if parts.is_empty() { Vec::new() } else { self.decoder.read_side_by_side(&mut parts) };
        for ((mut run, step), scores) in steps.into_iter().zip(scores) {
            run.resume(step, scores);
            self.running.push_back(run);
        }
        true
    }

    /// What the requests need of the model. Those that need nothing now go first at the next turn.
    fn steps(&mut self) -> Vec<(Run, Step)> {
        let mut steps: Vec<(Run, Step)> = Vec::new();
        let mut may_read = true;
        for mut run in mem::take(&mut self.running) {
            match run.step(may_read, &self.decoder, &mut self.prefixes) {
                Progress::Needs(step) => {
                    may_read &= !step.reads_prompt();
                    steps.push((run, step));
                }
                Progress::Waits => self.running.push_back(run),
                Progress::Over => {}
            }
        }
        steps
    }

    fn take_in(&mut self) -> bool {
        if self.running.is_empty() && self.waiting.is_empty() {
            match self.arrivals.recv() {
                Ok(request) => self.waiting.push_back(request),
                Err(mpsc::RecvError) => return false,
            }
        }
        loop {
            match self.arrivals.try_recv() {
                Ok(request) => self.waiting.push_back(request),
                Err(mpsc::TryRecvError::Empty) => return true,
                Err(mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Begins requests in the order of their arrival, as far as there is room, and forgets those whose client left.
    fn admit(&mut self) {
        self.waiting.retain(|request| !request.events.is_closed());
        let mut answers: usize = self.running.iter().map(Run::choices).sum();
        while let Some(next) = self.waiting.pop_front_if(|next| answers + next.job.choices <= MAX_ANSWERS) {
            answers += next.job.choices;
            let past = self.prefixes.find(&next.job.prompt);
            self.running.push_back(Run::new(next, past, &self.vocabulary));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Semaphore, mpsc as events};

    use super::*;
    use crate::{
        engine::{Event, Job, News, Obstacle, Slot},
        model::Model,
    };

    type Events = events::UnboundedReceiver<Event>;

    /// A worker whose turns the test takes, and the means to send it requests.
    struct Bench {
        worker: Worker,
        requests: mpsc::Sender<Request>,
        slots: Arc<Semaphore>,
    }

    impl Bench {
        fn new() -> Self {
            let (requests, arrivals) = mpsc::channel();
            let Model { decoder, vocabulary, .. } = Model::shipped().unwrap();
            let worker = Worker::new(decoder, vocabulary, arrivals, 1000);
            Self { worker, requests, slots: Arc::new(Semaphore::new(100)) }
        }

        /// Asks for answers that never end by themselves.
        fn ask(&self, prompt_tokens: u32, choices: usize) -> Events {
            let (sender, events) = events::unbounded_channel();
            let sampling =
                crate::sampler::Sampling { bias: vec![(2, -1e9), (0, -1e9)], ..Default::default() };
            let job = Job {
                prompt: (100..100 + prompt_tokens).collect(),
                choices,
                max_tokens: 40,
                sampling,
                stops: Vec::new(),
                in_thought: false,
                tool_seed: None,
                constraint: None,
                top_logprobs: None,
            };
            let slot = Slot(Arc::clone(&self.slots).try_acquire_owned().unwrap());
            let obstacle = Obstacle::default();
            self.requests.send(Request { job, events: sender, obstacle, _slot: slot }).unwrap();
            events
        }

        fn turns(&mut self, count: usize) {
            for _ in 0..count {
                assert!(self.worker.turn());
            }
        }

        fn free(&self) -> usize {
            self.slots.available_permits()
        }
    }

    /// So many tokens were written, as the events tell that have come.
    fn written(events: &mut Events) -> usize {
        std::iter::from_fn(|| events.try_recv().ok()).last().map_or(0, |event| event.usage.completion)
    }

    #[test]
    fn sixteen_requests_are_written_side_by_side() {
        let mut bench = Bench::new();
        let mut asked: Vec<Events> = (0..16).map(|_| bench.ask(20, 1)).collect();
        // One prompt is read in a turn.
        bench.turns(16);
        let before: Vec<usize> = asked.iter_mut().map(written).collect();
        bench.turns(10);
        let after: Vec<usize> = asked.iter_mut().map(written).collect();
        // Some tokens are told a turn later, as a character was not whole.
        let more = before.iter().zip(&after).map(|(before, after)| after - before);
        assert!(more.into_iter().all(|more| (8..=12).contains(&more)), "{before:?} {after:?}");
    }

    #[test]
    fn a_long_prompt_is_read_while_others_write() {
        let mut bench = Bench::new();
        let (mut short, _long) = (bench.ask(20, 1), bench.ask(640, 1));
        bench.turns(20);
        assert!(written(&mut short) >= 8);
    }

    #[test]
    fn many_choices_take_no_more_turns_than_one() {
        let mut bench = Bench::new();
        let (mut one, mut eight) = (bench.ask(20, 1), bench.ask(20, 8));
        bench.turns(25);
        assert!(written(&mut one).abs_diff(written(&mut eight)) <= 3);
    }

    #[test]
    fn a_client_that_leaves_frees_its_slot_at_the_next_turn() {
        let mut bench = Bench::new();
        let asked = bench.ask(20, 1);
        bench.turns(5);
        assert_eq!(bench.free(), 99);
        drop(asked);
        bench.turns(1);
        assert_eq!(bench.free(), 100);
    }

    #[test]
    fn a_client_that_leaves_while_waiting_frees_its_slot_too() {
        let mut bench = Bench::new();
        let asked: Vec<Events> = (0..4).map(|_| bench.ask(20, 8)).collect();
        let waits = bench.ask(20, 1);
        bench.turns(5);
        drop(waits);
        bench.turns(1);
        assert_eq!(bench.free(), 100 - asked.len());
    }

    #[test]
    fn who_waits_is_answered_when_there_is_room() {
        let mut bench = Bench::new();
        let asked: Vec<Events> = (0..4).map(|_| bench.ask(20, 8)).collect();
        let mut waits = bench.ask(20, 1);
        bench.turns(50);
        assert_eq!(written(&mut waits), 0);
        drop(asked);
        // One turn to see that the others left, one to read, forty to write: one more would wait for the next request.
        bench.turns(1 + 1 + 40);
        assert_eq!(bench.free(), 100);
        let finished = std::iter::from_fn(|| waits.try_recv().ok()).last().unwrap();
        assert!(matches!(finished.news, News::Finished(_)));
    }
}
