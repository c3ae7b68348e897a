//! Streams an answer, step by step.

use std::{future::pending, io, pin::pin, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream, stream::BoxStream};
use tokio::{select, sync::mpsc, time::sleep};

use super::{
    cut::{cut_later, sleep_ms},
    fault::Fault,
    plan::{Place, Plan},
    record::{End, Running},
    render::Events,
};

/// Pause between the comments of an upstream that has nothing else to send.
pub(super) const COMMENTS_EVERY: Duration = Duration::from_millis(100);

/// All pieces of a stream.
pub(super) fn pieces(plan: Plan, running: Running) -> BoxStream<'static, io::Result<String>> {
    let events = Events::new(&plan.model, plan.script.style, plan.alternatives);
    let (own_pace, steps, generated) = (plan.script.own_pace, steps(&plan), vec![0; plan.lengths.len()]);
    let state = Streaming { plan, events, running, steps, generated, round: 0, first: true };
    let pieces = stream::unfold(state, async |mut state| {
        let piece = state.next().await?;
        Some((piece, state))
    });
    if own_pace { at_own_pace(pieces).boxed() } else { pieces.boxed() }
}

/// Generates regardless of the reader, as engines do, until the connection is closed. The queue has no bound: a script's
/// tokens are its bound.
pub(super) fn at_own_pace(
    pieces: impl Stream<Item = io::Result<String>> + Send + 'static,
) -> impl Stream<Item = io::Result<String>> + Send {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut pieces = pin!(pieces);
        loop {
            let piece = select! {
                () = sender.closed() => return,
                piece = pieces.next() => piece,
            };
            // A reader that has gone is noticed in the next turn.
            let _ = match piece {
                Some(piece) => sender.send(piece),
                None => return,
            };
        }
    });
    stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)))
}

/// One step of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Role {
        choice: u64,
    },
    Token {
        choice: u64,
        index: u64,
    },
    Fault,
    Finish {
        choice: u64,
    },
    /// Usage of one choice, or of all.
    Usage {
        choice: Option<u64>,
    },
    Done,
}

/// All steps of a stream, faults included.
fn steps(plan: &Plan) -> Box<dyn Iterator<Item = Step> + Send> {
    let (lengths, script, fault) = (plan.lengths.clone(), &plan.script, plan.script.fault);
    let style = script.style;
    let apart = !script.lengths.is_empty() && !style.finishes_at_end;
    let choices = lengths.len() as u64;
    let usage = plan.reports_at_end() && fault != Fault::CutBeforeUsage;
    let end_of = move |choice, length| {
        let finish = !(style.text_on_finish && length > 0) && fault != Fault::NoFinishReason;
        let usage = usage && style.usage_apart;
        let usage = usage.then_some(Step::Usage { choice: Some(choice) });
        [finish.then_some(Step::Finish { choice }), usage].into_iter().flatten()
    };
    let ends: Vec<Step> =
        (0..choices).zip(&*lengths).flat_map(|(choice, length)| end_of(choice, *length)).collect();
    // A choice without tokens ends in the first round.
    let rounds =
        lengths.iter().copied().max().unwrap_or_default().max(1).min(fault.after().unwrap_or(u64::MAX));
    let tokens = (0..rounds).flat_map(move |index| {
        let lengths = lengths.clone();
        (0..choices).flat_map(move |choice| {
            let length = lengths[usize::try_from(choice).expect("it is an index")];
            let token = (index < length).then_some(Step::Token { choice, index });
            let ends = (apart && index + 1 == length.max(1)).then(|| end_of(choice, length));
            token.into_iter().chain(ends.into_iter().flatten())
        })
    });
    let roles = (0..choices).filter(move |_| !style.no_role).map(|choice| Step::Role { choice });
    if fault.after().is_some() {
        return Box::new(roles.chain(tokens).chain([Step::Fault]));
    }
    let usage = (usage && !style.usage_apart).then_some(Step::Usage { choice: None });
    let tail = match fault {
        Fault::CutBeforeUsage => vec![Step::Fault],
        Fault::NoDone => usage.into_iter().collect(),
        Fault::StallBeforeDone => usage.into_iter().chain([Step::Fault]).collect(),
        _ => usage.into_iter().chain([Step::Done]).collect(),
    };
    let ends = if apart { Vec::new() } else { ends };
    Box::new(roles.chain(tokens).chain(ends).chain(tail))
}

/// A stream in progress.
struct Streaming {
    plan: Plan,
    events: Events,
    running: Running,
    steps: Box<dyn Iterator<Item = Step> + Send>,
    /// Tokens of each choice so far.
    generated: Vec<u64>,
    /// Index of the last token.
    round: u64,
    /// No chunk was sent yet.
    first: bool,
}

impl Streaming {
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
            self.first = false;
            return Some(piece);
        }
    }

    /// Performs one step; returns an empty piece if it sends nothing.
    async fn step(&mut self, step: Step) -> Option<io::Result<String>> {
        match step {
            Step::Role { choice } => {
                let report = self.report_in_chunk(choice);
                Some(Ok(self.events.role(choice, report.as_deref())))
            }
            Step::Token { choice, index } => Some(Ok(self.token(choice, index).await)),
            Step::Fault => self.fault().await,
            Step::Finish { choice } => {
                let report = self.report_in_chunk(choice).filter(|_| !self.plan.script.style.finishes_at_end);
                Some(Ok(self.events.finish(choice, self.plan.finish(choice), report.as_deref())))
            }
            Step::Usage { choice } => {
                sleep_ms(self.plan.script.usage_after_ms).await;
                let report = self.plan.report(self.counted(choice), Place::End)?;
                Some(Ok(self.events.report(&report)))
            }
            Step::Done => {
                self.running.end(End::Finished);
                Some(Ok(self.events.data("[DONE]")))
            }
        }
    }

    async fn token(&mut self, choice: u64, index: u64) -> String {
        if index > self.round {
            sleep_ms(self.plan.script.pace_ms).await;
        }
        self.round = index;
        let script = &self.plan.script;
        self.generated[usize::try_from(choice).expect("it is an index")] +=
            script.weight(script.token(index));
        self.running.serve(self.plan.served(self.generated.iter().sum()));
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

    async fn fault(&mut self) -> Option<io::Result<String>> {
        self.steps = Box::new(std::iter::empty());
        match self.plan.script.fault {
            Fault::Stall { .. } => pending().await,
            Fault::Comments { .. } => {
                self.steps = Box::new(std::iter::once(Step::Fault));
                sleep(COMMENTS_EVERY).await;
                Some(Ok(self.events.comment()))
            }
            Fault::StallBeforeDone => {
                self.running.end(End::Finished);
                pending().await
            }
            Fault::Nonsense { .. } => {
                self.running.end(End::Failed);
                Some(Ok(self.events.data("<html>this is no event</html>")))
            }
            Fault::ErrorEvent { shape, .. } => {
                self.running.end(End::Failed);
                let (error, done) = (self.events.data(&shape.body(500)), self.events.data("[DONE]"));
                Some(Ok(format!("{error}{done}")))
            }
            Fault::End { .. } => {
                self.running.end(End::Failed);
                None
            }
            _ => {
                let cut = cut_later().await;
                self.running.end(End::Failed);
                Some(cut.map(|_: Bytes| String::new()))
            }
        }
    }

    /// Tokens of this choice so far, or of each.
    fn counted(&self, choice: Option<u64>) -> &[u64] {
        match choice {
            Some(choice) => {
                let choice = usize::try_from(choice).expect("it is an index");
                &self.generated[choice..=choice]
            }
            None => &self.generated,
        }
    }

    /// Report in the next chunk of a choice.
    fn report_in_chunk(&self, choice: u64) -> Option<String> {
        let place = if self.first { Place::First } else { Place::Chunk };
        let counted = self.counted(self.plan.script.style.usage_by_choice.then_some(choice));
        if self.plan.reports_in(place) { self.plan.report(counted, place) } else { None }
    }
}
