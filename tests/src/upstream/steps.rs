//! Streams that are sent step by step, at the reader's pace or at their own, and the faults that end them.

use std::{future::pending, io, pin::pin, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream, stream::BoxStream};
use tokio::{select, sync::mpsc, time::sleep};

use super::{
    faults::{
        cut::cut_later,
        fault::{Fault, Shape},
    },
    record::{End, Running},
    script::Script,
};

/// Pause between comments when an upstream has nothing else to send.
const COMMENTS_EVERY: Duration = Duration::from_millis(100);

/// One step of a stream.
#[derive(Clone, Copy)]
pub(super) enum Step<P> {
    /// Part of the answer.
    Part(P),
    /// The script's fault.
    Fault,
}

/// The steps of a stream, in order.
pub(super) type Steps<P> = Box<dyn Iterator<Item = Step<P>> + Send>;

/// Writes an answer as a stream in an API's format.
pub(super) trait StepWriter: Send + 'static {
    /// Part of an answer that is written at once.
    type Part: Copy + Send + 'static;

    /// Returns the script of the answer.
    fn script(&self) -> &Script;

    /// Returns the bytes of a part once it is time to send them; empty if the part sends nothing.
    fn part(&mut self, part: Self::Part, running: &Running) -> impl Future<Output = String> + Send;

    /// Returns the bytes that keep a stream alive while there is nothing else to send.
    fn sign_of_life(&self) -> String;

    /// Returns an event with this text.
    fn data(&self, text: &str) -> String;

    /// Returns the bytes of a failure in this shape.
    fn failure(&mut self, shape: Shape) -> String;
}

/// Returns all pieces of a stream.
pub(super) fn pieces<W: StepWriter>(
    writer: W,
    steps: Steps<W::Part>,
    running: Running,
) -> BoxStream<'static, io::Result<String>> {
    let own_pace = writer.script().own_pace;
    let pieces = stream::unfold(SteppedStream { writer, running, steps }, async |mut state| {
        let piece = state.next().await?;
        Some((piece, state))
    });
    if own_pace { at_own_pace(pieces).boxed() } else { pieces.boxed() }
}

/// Generates regardless of the reader, as inference engines do, until the connection is closed. The queue needs no
/// limit, since the script limits the number of tokens.
fn at_own_pace(
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
            // The next round notices that the reader has left.
            let _ = match piece {
                Some(piece) => sender.send(piece),
                None => return,
            };
        }
    });
    stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)))
}

/// A stream in progress.
struct SteppedStream<W: StepWriter> {
    writer: W,
    running: Running,
    steps: Steps<W::Part>,
}

impl<W: StepWriter> SteppedStream<W> {
    /// Returns the next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<io::Result<String>> {
        loop {
            let piece = match self.steps.next() {
                Some(Step::Part(part)) => Ok(self.writer.part(part, &self.running).await),
                Some(Step::Fault) => self.fault().await?,
                None => {
                    self.running.end(End::Finished);
                    return None;
                }
            };
            // An empty piece would end the body.
            if !piece.as_ref().is_ok_and(String::is_empty) {
                return Some(piece);
            }
        }
    }

    /// Causes the script's fault. Returns `None` if that ends the stream.
    async fn fault(&mut self) -> Option<io::Result<String>> {
        self.steps = Box::new(std::iter::empty());
        match self.writer.script().fault {
            Fault::Stall { .. } => pending().await,
            Fault::Comments { .. } => {
                self.steps = Box::new(std::iter::once(Step::Fault));
                sleep(COMMENTS_EVERY).await;
                Some(Ok(self.writer.sign_of_life()))
            }
            Fault::StallBeforeDone => {
                self.running.end(End::Finished);
                pending().await
            }
            Fault::Nonsense { .. } => {
                self.running.end(End::Failed);
                Some(Ok(self.writer.data("<html>this is no event</html>")))
            }
            Fault::ErrorEvent { shape, .. } => {
                self.running.end(End::Failed);
                Some(Ok(self.writer.failure(shape)))
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
}
