//! Streams an answer in the Responses or Messages API, step by step.

use std::io;

use futures_util::stream::BoxStream;

use super::writer::{AnswerWriter, event_text};
use crate::upstream::{
    faults::{
        cut::sleep_ms,
        fault::{Fault, Shape},
    },
    prompts::plan::NativePlan,
    record::{End, Running},
    script::Script,
    steps::{self, Step, StepWriter, Steps},
};

/// Returns all pieces of a stream.
pub(super) fn pieces(
    plan: NativePlan,
    writer: Box<dyn AnswerWriter>,
    running: Running,
) -> BoxStream<'static, io::Result<String>> {
    let steps = steps(&plan);
    steps::pieces(NativeStream { plan, writer, generated: 0 }, steps, running)
}

/// Part of a stream.
#[derive(Clone, Copy)]
enum Part {
    Start,
    Unknown,
    Token(u64),
    Close,
    Finish,
    Done,
}

/// Returns all steps of a stream, including faults.
fn steps(plan: &NativePlan) -> Steps<Part> {
    let fault = plan.script.fault;
    let tokens = 0..plan.length.min(fault.after().unwrap_or(u64::MAX));
    let [close, finish, done] = [Part::Close, Part::Finish, Part::Done].map(Step::Part);
    let tail = match fault {
        _ if fault.after().is_some() => vec![Step::Fault],
        Fault::CutBeforeUsage => vec![close, Step::Fault],
        Fault::NoDone => vec![close, finish],
        Fault::StallBeforeDone => vec![close, finish, Step::Fault],
        _ => vec![close, finish, done],
    };
    let unknown = plan.script.unknown_events.then_some(Part::Unknown);
    let parts = std::iter::once(Part::Start).chain(unknown).chain(tokens.map(Part::Token)).chain(unknown);
    Box::new(parts.map(Step::Part).chain(tail))
}

/// A stream in progress.
struct NativeStream {
    plan: NativePlan,
    writer: Box<dyn AnswerWriter>,
    /// Tokens so far.
    generated: u64,
}

impl StepWriter for NativeStream {
    type Part = Part;

    fn script(&self) -> &Script {
        &self.plan.script
    }

    async fn part(&mut self, part: Part, running: &Running) -> String {
        let events = match part {
            Part::Start => self.writer.start(&self.plan),
            Part::Unknown => self.writer.unknown(),
            Part::Token(index) => return self.token(index, running).await,
            Part::Close => self.writer.close(&self.plan),
            Part::Finish => {
                sleep_ms(self.plan.script.usage_after_ms).await;
                self.writer.finish(&self.plan, self.generated)
            }
            Part::Done => {
                running.end(End::Finished);
                self.writer.done()
            }
        };
        event_text(&self.plan, &events)
    }

    fn sign_of_life(&self) -> String {
        self.writer.sign_of_life().to_owned()
    }

    fn data(&self, text: &str) -> String {
        format!("data: {text}\n\n")
    }

    fn failure(&mut self, shape: Shape) -> String {
        let events = self.writer.failure(&self.plan, shape);
        event_text(&self.plan, &events)
    }
}

impl NativeStream {
    async fn token(&mut self, index: u64, running: &Running) -> String {
        let script = &self.plan.script;
        if index > 0 {
            sleep_ms(script.pace_ms).await;
        }
        self.generated += script.weight(script.token(index));
        running.serve(self.plan.served(self.generated));
        let events = self.writer.token(&self.plan, index);
        let comment = if script.style.comments { self.writer.sign_of_life() } else { "" };
        format!("{comment}{}", event_text(&self.plan, &events))
    }
}
