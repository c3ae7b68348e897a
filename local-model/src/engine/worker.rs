//! The thread that owns the model and takes turns between requests.

use std::{
    collections::VecDeque,
    sync::{Arc, mpsc},
};

use super::{Request, prefixes::Prefixes, run::Run};
use crate::{decoder::Decoder, vocabulary::Vocabulary};

/// So many answers are written side by side. Each may come to hold the keys and values of a whole context, 9.4 MB.
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

    /// Gives one request its turn: a piece of its prompt is read, or one token is written. Without requests it waits
    /// for one. False means that the engine is gone, and with it everyone who could wait for an answer.
    pub(crate) fn turn(&mut self) -> bool {
        if !self.take_in() {
            return false;
        }
        self.admit();
        if let Some(mut run) = self.running.pop_front()
            && run.advance(&self.decoder, &mut self.prefixes)
        {
            self.running.push_back(run);
        }
        true
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
