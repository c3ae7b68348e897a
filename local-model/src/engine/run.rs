//! One request on its way: its prompt is read in pieces, then its answers are written in turns. What the model has to read
//! for it is handed out as a step, as the steps of all requests are read together.

use std::{collections::VecDeque, mem, sync::Arc};

use super::{Event, FinishReason, News, Request, Usage, prefixes::Prefixes};
use crate::{
    answer::{Answer, Piece},
    decoder::{Decoder, Part, Past},
    dice::Dice,
    grammar::{Constraint, Inexpressible},
    sampler::{Likelihood, Sampler, likelihoods},
    vocabulary::Vocabulary,
};

/// Products of one piece of a prompt: 10 to 30 ms, which is how long the others wait for their next token.
const PRODUCTS_PER_TURN: usize = 170_000_000;
/// At least so many tokens are read at once, however large the model: its numbers are then fetched once for all of them.
const MIN_TOKENS_READ: usize = 8;
/// More tokens at once are no faster.
const MAX_TOKENS_READ: usize = 64;

/// A request that is being answered.
pub(crate) struct Run {
    request: Request,
    vocabulary: Arc<Vocabulary>,
    usage: Usage,
    phase: Phase,
}

enum Phase {
    Reading(Past),
    /// The choices that are not finished, in the order of their turns. Each turn writes one token of one choice, so
    /// that a request for many has no more of the model than a request for one.
    Writing(VecDeque<Choice>),
}

/// How far a request's turn has come.
pub(crate) enum Progress {
    /// It goes on when the model has read this.
    Needs(Step),
    /// It goes on at its next turn.
    Waits,
    /// All is written, or the client has left.
    Over,
}

/// What the model has to read next for a request.
pub(crate) struct Step {
    tokens: Vec<u32>,
    past: Past,
    /// The answer that is written; without one it is the prompt that is read.
    choice: Option<Box<Choice>>,
}

pub(crate) struct Choice {
    index: usize,
    sampler: Sampler,
    answer: Answer,
    constraint: Option<Constraint>,
    /// The tokens that `past` has read.
    tokens: Vec<u32>,
    past: Past,
    /// The model's scores for the next token.
    scores: Vec<f32>,
    written: usize,
    /// Not told to the client yet, as the tokens' text is still held back.
    likelihoods: Vec<(Likelihood, Vec<Likelihood>)>,
}

impl Run {
    /// `past` is a beginning of the prompt that has been read already.
    pub(crate) fn new(request: Request, past: Past, vocabulary: &Arc<Vocabulary>) -> Self {
        let usage = Usage { prompt: request.job.prompt.len(), cached: past.positions(), ..Usage::default() };
        Self { request, vocabulary: Arc::clone(vocabulary), usage, phase: Phase::Reading(past) }
    }

    /// So many answers are asked for.
    pub(crate) fn choices(&self) -> usize {
        self.request.job.choices
    }

    /// Takes one turn, up to where it needs the model. Only where it `may_read` is its prompt read on.
    pub(crate) fn step(&mut self, may_read: bool, decoder: &Decoder, prefixes: &mut Prefixes) -> Progress {
        if self.request.events.is_closed() {
            return Progress::Over;
        }
        match &mut self.phase {
            Phase::Reading(_) if !may_read => Progress::Waits,
            Phase::Reading(past) => {
                let unread = &self.request.job.prompt[past.positions()..];
                let most = PRODUCTS_PER_TURN / decoder.parameters().max(1);
                let most = most.clamp(MIN_TOKENS_READ, MAX_TOKENS_READ);
                let tokens = unread[..unread.len().min(most)].to_vec();
                Progress::Needs(Step { tokens, past: mem::take(past), choice: None })
            }
            Phase::Writing(choices) => {
                let Some(choice) = choices.pop_front() else { return Progress::Over };
                self.write(choice, decoder, prefixes).unwrap_or_else(|obstacle| {
                    // Dropping the request breaks its answer off, and its client is told why. It has one obstacle at most.
                    let _ = self.request.obstacle.set(obstacle);
                    Progress::Over
                })
            }
        }
    }

    /// Goes on with what the model made of a step.
    pub(crate) fn resume(&mut self, step: Step, scores: Vec<f32>) {
        let Step { tokens, past, choice } = step;
        match (choice, &mut self.phase) {
            (Some(mut choice), Phase::Writing(choices)) => {
                choice.tokens.extend(tokens);
                (choice.past, choice.scores) = (past, scores);
                choices.push_back(*choice);
            }
            (None, Phase::Reading(_)) if past.positions() == self.request.job.prompt.len() => {
                self.begin_writing(&past, &scores);
            }
            (None, Phase::Reading(reading)) => *reading = past,
            // A step is resumed in the phase that it was taken in.
            (Some(_), Phase::Reading(_)) | (None, Phase::Writing(_)) => {}
        }
    }

    fn begin_writing(&mut self, past: &Past, scores: &[f32]) {
        let job = &self.request.job;
        let answer = |index: usize| {
            let dice = job.tool_seed.map(|seed| Dice::new(seed.wrapping_add(index as u64)));
            let answer = Answer::new(Arc::clone(&self.vocabulary), job.stops.clone(), dice);
            if job.in_thought { answer.in_thought() } else { answer }
        };
        let choice = |index: usize| Choice {
            index,
            sampler: Sampler::new(job.sampling.clone(), index),
            answer: answer(index),
            constraint: job.constraint.clone(),
            tokens: job.prompt.clone(),
            past: past.clone(),
            scores: scores.to_vec(),
            written: 0,
            likelihoods: Vec::new(),
        };
        self.phase = Phase::Writing((0..job.choices).map(choice).collect());
    }

    /// Writes one token of a choice and tells the client what became certain by it.
    fn write(
        &mut self,
        mut choice: Choice,
        decoder: &Decoder,
        prefixes: &mut Prefixes,
    ) -> Result<Progress, Inexpressible> {
        let room = choice.room(self.request.job.max_tokens, decoder.context());
        let token = choice.next_token(room)?;
        choice.written += 1;
        self.usage.completion += 1;

        let mut ends = self.vocabulary.markers.ends_answer(token);
        if !ends {
            if let Some(count) = self.request.job.top_logprobs {
                choice.likelihoods.push(likelihoods(&choice.scores, token, count));
            }
            if let Some(constraint) = &mut choice.constraint {
                constraint.take(token)?;
                ends = constraint.is_complete();
            }
            let thoughts = choice.answer.reasoning_tokens();
            let pieces = choice.answer.push(token);
            self.usage.reasoning += choice.answer.reasoning_tokens() - thoughts;
            self.tell(&mut choice, pieces);
        }

        if ends || choice.answer.is_stopped() {
            let reason = choice.reason();
            self.finish(choice, reason, prefixes);
        } else if room <= 1 {
            self.finish(choice, FinishReason::Length, prefixes);
        } else {
            let past = mem::take(&mut choice.past);
            return Ok(Progress::Needs(Step { tokens: vec![token], past, choice: Some(Box::new(choice)) }));
        }
        let others_go_on = matches!(&self.phase, Phase::Writing(choices) if !choices.is_empty());
        Ok(if others_go_on { Progress::Waits } else { Progress::Over })
    }

    fn finish(&self, mut choice: Choice, reason: FinishReason, prefixes: &mut Prefixes) {
        let pieces = choice.answer.finish();
        self.tell(&mut choice, pieces);
        self.send(&mut choice, News::Finished(reason));
        prefixes.keep(choice.tokens, choice.past);
    }

    fn tell(&self, choice: &mut Choice, pieces: Vec<Piece>) {
        for piece in pieces {
            self.send(choice, News::Piece(piece));
        }
    }

    fn send(&self, choice: &mut Choice, news: News) {
        let likelihoods = mem::take(&mut choice.likelihoods);
        let event = Event { choice: choice.index, news, likelihoods, usage: self.usage };
        // A client that has left is noticed at the next turn.
        let _ = self.request.events.send(event);
    }
}

impl Step {
    /// Whether it is a piece of a prompt.
    pub(crate) fn reads_prompt(&self) -> bool {
        self.choice.is_none()
    }

    pub(crate) fn part(&mut self) -> Part<'_> {
        Part { tokens: &self.tokens, past: &mut self.past }
    }
}

impl Choice {
    /// So many tokens may still be written.
    fn room(&self, max_tokens: usize, context: usize) -> usize {
        max_tokens.saturating_sub(self.written).min(context.saturating_sub(self.tokens.len()))
    }

    /// Takes the next token, of those that the grammar allows and that leave room for an end.
    fn next_token(&mut self, room: usize) -> Result<u32, Inexpressible> {
        let mut scores = self.scores.clone();
        let Some(constraint) = &mut self.constraint else { return Ok(self.sampler.take(scores)) };
        constraint.forbid_others(&mut scores)?;
        Ok(constraint.in_time(self.sampler.take(scores), room))
    }

    /// Why the answer ends that is at its end.
    fn reason(&self) -> FinishReason {
        if self.constraint.as_ref().is_some_and(Constraint::is_cut) {
            // It is valid, but less than the model would have said.
            FinishReason::Length
        } else if self.answer.has_calls() {
            FinishReason::ToolCalls
        } else {
            FinishReason::Stop
        }
    }
}
