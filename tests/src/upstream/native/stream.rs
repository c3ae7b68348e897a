//! Streams an answer of Responses or Messages, step by step.

use std::{future::pending, io};

use futures_util::{StreamExt, stream, stream::BoxStream};
use tokio::time::sleep;

use super::{
    super::{
        cut::{cut_later, sleep_ms},
        fault::Fault,
        record::{End, Running},
        streaming::{COMMENTS_EVERY, at_own_pace},
    },
    plan::NativePlan,
    writer::{AnswerWriter, event_text},
};

/// All pieces of a stream.
pub(super) fn pieces(
    plan: NativePlan,
    writer: Box<dyn AnswerWriter>,
    running: Running,
) -> BoxStream<'static, io::Result<String>> {
    let (steps, own_pace) = (steps(&plan), plan.script.own_pace);
    let state = NativeStream { plan, writer, running, steps, generated: 0 };
    let pieces = stream::unfold(state, async |mut state| {
        let piece = state.next().await?;
        Some((piece, state))
    });
    if own_pace { at_own_pace(pieces).boxed() } else { pieces.boxed() }
}

/// One step of a stream.
#[derive(Clone, Copy)]
enum Step {
    Start,
    Unknown,
    Token(u64),
    Fault,
    Close,
    Finish,
    Done,
}

/// All steps of a stream, faults included.
fn steps(plan: &NativePlan) -> Box<dyn Iterator<Item = Step> + Send> {
    let fault = plan.script.fault;
    let tokens = 0..plan.length.min(fault.after().unwrap_or(u64::MAX));
    let tail: &[Step] = match fault {
        _ if fault.after().is_some() => &[Step::Fault],
        Fault::CutBeforeUsage => &[Step::Close, Step::Fault],
        Fault::NoDone => &[Step::Close, Step::Finish],
        Fault::StallBeforeDone => &[Step::Close, Step::Finish, Step::Fault],
        _ => &[Step::Close, Step::Finish, Step::Done],
    };
    let unknown = plan.script.unknown_events.then_some(Step::Unknown);
    let head = std::iter::once(Step::Start).chain(unknown);
    Box::new(head.chain(tokens.map(Step::Token)).chain(unknown).chain(tail.to_vec()))
}

/// A stream in progress.
struct NativeStream {
    plan: NativePlan,
    writer: Box<dyn AnswerWriter>,
    running: Running,
    steps: Box<dyn Iterator<Item = Step> + Send>,
    /// Tokens so far.
    generated: u64,
}

impl NativeStream {
    /// Next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<io::Result<String>> {
        loop {
            let Some(step) = self.steps.next() else {
                self.running.end(End::Finished);
                return None;
            };
            let piece = self.step(step).await?;
            // An empty piece would end the body.
            if piece.as_ref().is_ok_and(String::is_empty) {
                continue;
            }
            return Some(piece);
        }
    }

    /// Performs one step; returns an empty piece if it sends nothing.
    async fn step(&mut self, step: Step) -> Option<io::Result<String>> {
        let events = match step {
            Step::Start => self.writer.start(&self.plan),
            Step::Unknown => self.writer.unknown(),
            Step::Token(index) => return Some(Ok(self.token(index).await)),
            Step::Close => self.writer.close(&self.plan),
            Step::Finish => {
                sleep_ms(self.plan.script.usage_after_ms).await;
                self.writer.finish(&self.plan, self.generated)
            }
            Step::Done => {
                self.running.end(End::Finished);
                self.writer.done()
            }
            Step::Fault => return self.fault().await,
        };
        Some(Ok(event_text(&self.plan, &events)))
    }

    async fn token(&mut self, index: u64) -> String {
        let script = &self.plan.script;
        if index > 0 {
            sleep_ms(script.pace_ms).await;
        }
        self.generated += script.weight(script.token(index));
        self.running.serve(self.plan.served(self.generated));
        let events = self.writer.token(&self.plan, index);
        let comment = if script.style.comments { self.writer.sign_of_life() } else { "" };
        format!("{comment}{}", event_text(&self.plan, &events))
    }

    async fn fault(&mut self) -> Option<io::Result<String>> {
        self.steps = Box::new(std::iter::empty());
        match self.plan.script.fault {
            Fault::Stall { .. } => pending().await,
            Fault::Comments { .. } => {
                self.steps = Box::new(std::iter::once(Step::Fault));
                sleep(COMMENTS_EVERY).await;
                Some(Ok(self.writer.sign_of_life().to_owned()))
            }
            Fault::StallBeforeDone => {
                self.running.end(End::Finished);
                pending().await
            }
            Fault::Nonsense { .. } => {
                self.running.end(End::Failed);
                Some(Ok("data: <html>this is no event</html>\n\n".to_owned()))
            }
            Fault::ErrorEvent { shape, .. } => {
                self.running.end(End::Failed);
                let events = self.writer.failure(&self.plan, shape);
                Some(Ok(event_text(&self.plan, &events)))
            }
            Fault::End { .. } => {
                self.running.end(End::Failed);
                None
            }
            _ => {
                let cut = cut_later().await;
                self.running.end(End::Failed);
                Some(cut.map(|_| String::new()))
            }
        }
    }
}
