//! Streams an answer in the chat API, step by step.

use std::io;

use futures_util::stream::BoxStream;

use super::{
    plan::{Place, Plan},
    render::Events,
};
use crate::upstream::{
    faults::{
        cut::sleep_ms,
        fault::{Fault, Shape},
    },
    record::{End, Running},
    script::Script,
    steps::{self, Step, StepWriter, Steps},
};

pub(in crate::upstream) fn pieces(plan: Plan, running: Running) -> BoxStream<'static, io::Result<String>> {
    let events = Events::new(&plan.model, plan.script.style, plan.alternatives);
    let (steps, generated) = (steps(&plan), vec![0; plan.lengths.len()]);
    steps::pieces(Streaming { plan, events, generated, round: 0, first: true }, steps, running)
}

/// Part of a stream.
#[derive(Clone, Copy)]
enum Part {
    Role {
        choice: u64,
    },
    Token {
        choice: u64,
        index: u64,
    },
    Finish {
        choice: u64,
    },
    /// Usage of one choice or, without one, of all choices.
    Usage {
        choice: Option<u64>,
    },
    Done,
}

/// Returns all steps of a stream, including faults.
fn steps(plan: &Plan) -> Steps<Part> {
    let (lengths, script, fault) = (plan.lengths.clone(), &plan.script, plan.script.fault);
    let style = script.style;
    let apart = !script.lengths.is_empty() && !style.finishes_at_end;
    let choices = lengths.len() as u64;
    let usage = plan.reports_at_end() && fault != Fault::CutBeforeUsage;
    let end_of = move |choice, length| {
        let finish = !(style.text_on_finish && length > 0) && fault != Fault::NoFinishReason;
        let usage = usage && style.usage_apart;
        let usage = usage.then_some(Part::Usage { choice: Some(choice) });
        [finish.then_some(Part::Finish { choice }), usage].into_iter().flatten()
    };
    let ends: Vec<Part> =
        (0..choices).zip(&*lengths).flat_map(|(choice, length)| end_of(choice, *length)).collect();
    // A choice without tokens ends in the first round.
    let rounds =
        lengths.iter().copied().max().unwrap_or_default().max(1).min(fault.after().unwrap_or(u64::MAX));
    let tokens = (0..rounds).flat_map(move |index| {
        let lengths = lengths.clone();
        (0..choices).flat_map(move |choice| {
            let length = lengths[usize::try_from(choice).expect("it is an index")];
            let token = (index < length).then_some(Part::Token { choice, index });
            let ends = (apart && index + 1 == length.max(1)).then(|| end_of(choice, length));
            token.into_iter().chain(ends.into_iter().flatten())
        })
    });
    let roles = (0..choices).filter(move |_| !style.no_role).map(|choice| Part::Role { choice });
    if fault.after().is_some() {
        return Box::new(roles.chain(tokens).map(Step::Part).chain([Step::Fault]));
    }
    let usage = (usage && !style.usage_apart).then_some(Part::Usage { choice: None });
    let tail = match fault {
        Fault::CutBeforeUsage => vec![Step::Fault],
        Fault::NoDone => usage.map(Step::Part).into_iter().collect(),
        Fault::StallBeforeDone => usage.map(Step::Part).into_iter().chain([Step::Fault]).collect(),
        _ => usage.into_iter().chain([Part::Done]).map(Step::Part).collect(),
    };
    let ends = if apart { Vec::new() } else { ends };
    Box::new(roles.chain(tokens).chain(ends).map(Step::Part).chain(tail))
}

/// A stream in progress.
struct Streaming {
    plan: Plan,
    events: Events,
    /// Tokens of each choice so far.
    generated: Vec<u64>,
    /// Index of the last token.
    round: u64,
    /// Whether no chunk has been sent yet.
    first: bool,
}

impl StepWriter for Streaming {
    type Part = Part;

    fn script(&self) -> &Script {
        &self.plan.script
    }

    async fn part(&mut self, part: Part, running: &Running) -> String {
        let piece = match part {
            Part::Role { choice } => {
                let report = self.report_in_chunk(choice);
                self.events.role(choice, report.as_deref())
            }
            Part::Token { choice, index } => self.token(choice, index, running).await,
            Part::Finish { choice } => {
                let report = self.report_in_chunk(choice).filter(|_| !self.plan.script.style.finishes_at_end);
                self.events.finish(choice, self.plan.finish(choice), report.as_deref())
            }
            Part::Usage { choice } => {
                sleep_ms(self.plan.script.usage_after_ms).await;
                let report = self.plan.report(self.counted(choice), Place::End);
                report.map(|report| self.events.report(&report)).unwrap_or_default()
            }
            Part::Done => {
                running.end(End::Finished);
                self.events.data("[DONE]")
            }
        };
        self.first &= piece.is_empty();
        piece
    }

    fn sign_of_life(&self) -> String {
        self.events.comment()
    }

    fn data(&self, text: &str) -> String {
        self.events.data(text)
    }

    fn failure(&mut self, shape: Shape) -> String {
        let (error, done) = (self.events.data(&shape.body(500)), self.events.data("[DONE]"));
        format!("{error}{done}")
    }
}

impl Streaming {
    async fn token(&mut self, choice: u64, index: u64, running: &Running) -> String {
        if index > self.round {
            sleep_ms(self.plan.script.pace_ms).await;
        }
        self.round = index;
        let script = &self.plan.script;
        self.generated[usize::try_from(choice).expect("it is an index")] +=
            script.weight(script.token(index));
        running.serve(self.plan.served(self.generated.iter().sum()));
        let report = self.report_in_chunk(choice);
        let (style, length) = (script.style, self.plan.length(choice));
        let last = style.text_on_finish && index + 1 == length;
        let finish = last.then(|| self.plan.finish(choice));
        if script.withheld_after.is_some_and(|after| index >= after) {
            let end = |reason: &str| self.events.finish(choice, reason, report.as_deref());
            return finish.map(end).unwrap_or_default();
        }
        let event = self.events.token(script, (choice, length), index, finish, report.as_deref());
        if style.comments { format!("{}{event}", self.events.comment()) } else { event }
    }

    /// Returns the tokens so far, of this choice or of each choice.
    fn counted(&self, choice: Option<u64>) -> &[u64] {
        match choice {
            Some(choice) => {
                let choice = usize::try_from(choice).expect("it is an index");
                &self.generated[choice..=choice]
            }
            None => &self.generated,
        }
    }

    /// Returns the usage report in the next chunk of a choice.
    fn report_in_chunk(&self, choice: u64) -> Option<String> {
        let place = if self.first { Place::First } else { Place::Chunk };
        let counted = self.counted(self.plan.script.style.usage_by_choice.then_some(choice));
        if self.plan.reports_in(place) { self.plan.report(counted, place) } else { None }
    }
}
