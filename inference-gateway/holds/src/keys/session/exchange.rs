//! An open session. It sends frames, and receives answers in any order.

use std::{future::poll_fn, mem, sync::Arc, task::Poll};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;
use shared_rpc::{
    Answer, Call, KeyService, SessionClock, TracedCall,
    v1::{self, answer},
};
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::Instant,
};
use tonic::{Status, Streaming};

use crate::keys::queue::{Answered, Pending};

pub(super) enum OpenSession {
    Remote(Box<RemoteSession>),
    Local(LocalSession),
}

/// A stream of frames to another process.
pub(super) struct RemoteSession {
    frames: mpsc::Sender<v1::SessionRequest>,
    answers: Streaming<v1::SessionResponse>,
    clock: SessionClock,
}

/// Calls to the key-service in this process.
pub(super) struct LocalSession {
    service: Arc<dyn KeyService>,
    running: FuturesUnordered<BoxFuture<'static, ()>>,
    /// Answers not yet received, each with the id of its call.
    answers: Arc<Mutex<Vec<(u64, Answered)>>>,
}

/// A key-service's answer to a call, before it is checked.
pub(super) enum Heard {
    Message(answer::Response),
    Answer(Answered),
}

impl Heard {
    /// Reads the answer to this call.
    pub(super) fn answer_to(self, call: &Call) -> Answered {
        match self {
            Self::Message(message) => Answer::from_message(message, call),
            Self::Answer(answered) => answered,
        }
    }
}

impl OpenSession {
    pub(super) fn remote(
        frames: mpsc::Sender<v1::SessionRequest>,
        answers: Streaming<v1::SessionResponse>,
        clock: SessionClock,
    ) -> Self {
        Self::Remote(Box::new(RemoteSession { frames, answers, clock }))
    }

    pub(super) fn local(service: Arc<dyn KeyService>) -> Self {
        Self::Local(LocalSession { service, running: FuturesUnordered::new(), answers: Arc::default() })
    }

    /// Returns whether the key-service can fail separately from the gateway.
    pub(super) const fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_))
    }

    /// Sends a frame. Its calls have consecutive ids, starting with `first_id`.
    pub(super) fn send(&mut self, first_id: u64, calls: &[Arc<Pending>]) -> Result<(), Status> {
        match self {
            Self::Remote(session) => {
                let message = |(id, pending): (u64, &Arc<Pending>)| v1::Call {
                    id,
                    request: Some(pending.call.to_message(session.clock)),
                    traceparent: pending.span.sampled_traceparent(),
                };
                let request = v1::SessionRequest { calls: (first_id..).zip(calls).map(message).collect() };
                session.frames.try_send(request).map_err(|e| match e {
                    TrySendError::Closed(_) => closed(),
                    TrySendError::Full(_) => Status::unavailable("the key-service reads no frames"),
                })
            }
            Self::Local(session) => {
                let traced = |pending: &Arc<Pending>| TracedCall {
                    call: (*pending.call).clone(),
                    span: pending.span.clone(),
                };
                let calls: Vec<_> = calls.iter().map(traced).collect();
                let (service, answers) = (session.service.clone(), session.answers.clone());
                session.running.push(Box::pin(async move {
                    let reply = |place, answered| answers.lock().push((first_id + place as u64, answered));
                    service.handle(calls, &reply).await;
                }));
                Ok(())
            }
        }
    }

    /// Returns the next answers, each with the id of its call. Fails when the session breaks.
    pub(super) async fn next_answers(&mut self) -> Result<Vec<(u64, Heard)>, Status> {
        match self {
            Self::Remote(session) => {
                let v1::SessionResponse { answers, clock_ms, instance: _ } =
                    session.answers.message().await?.ok_or_else(closed)?;
                session.clock = session.clock.or(SessionClock::observed(Instant::now(), clock_ms));
                let told = |answer: v1::Answer| Some((answer.id, Heard::Message(answer.response?)));
                Ok(answers.into_iter().filter_map(told).collect())
            }
            Self::Local(session) => {
                let answers = poll_fn(|context| {
                    while let Poll::Ready(Some(())) = session.running.poll_next_unpin(context) {}
                    let answers = mem::take(&mut *session.answers.lock());
                    if answers.is_empty() { Poll::Pending } else { Poll::Ready(answers) }
                });
                Ok(answers.await.into_iter().map(|(id, answered)| (id, Heard::Answer(answered))).collect())
            }
        }
    }
}

pub(super) fn closed() -> Status {
    Status::unavailable("the key-service closed the session")
}
