//! Group commit with one key-service: calls that come while a frame is under way leave together in the next one.
//!
//! An idle gateway waits for nothing, a busy one sends frames of many. Calls of a session that breaks or falls silent
//! are sent again by another: all of them are idempotent. One that fell silent is heard on, and asked again once it
//! has answered.

use std::{sync::Arc, time::Duration};

use shared::rpc::{
    CALL_DEADLINE, PresentToken,
    v1::{self, answer, key_service_client::KeyServiceClient},
};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Status, Streaming,
    service::interceptor::InterceptedService,
    transport::{Channel, Endpoint},
};

use super::{
    queue::{Pending, Queue, Work},
    wishes::Wishes,
};

/// How long a connection may take to come about.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// The first pause after a session that failed; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Short, so that the gateway heals within a second of its key-service.
const LONGEST_PAUSE: Duration = Duration::from_millis(640);
/// After so long without an answer, calls are sent to another key-service as well. Frames are answered within
/// milliseconds; and where all are slow, since their store is, the others have most of the callers' deadline left.
const SILENCE: Duration = Duration::from_millis(500);
/// How long a key-service that does not reach the store is spared, where there is another: longer than a caller pauses
/// before it asks again, so that it meets the other.
const RELUCTANCE: Duration = Duration::from_secs(1);
/// How long a key-service that is back may take to carry out what it was sent before it went away.
const AFTERMATH: Duration = Duration::from_secs(1);
/// HTTP/2 pings on an idle session, so that a peer that vanished is noticed before a request needs it.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// What a session is kept with, and for whom.
pub(super) struct Post {
    /// Its number in the queue.
    pub(super) number: usize,
    /// Where the key-service is.
    pub(super) endpoint: Endpoint,
    /// What lets us in.
    pub(super) token: PresentToken,
    /// Where calls come from.
    pub(super) queue: Arc<Queue>,
    /// Who is told of holds that nobody may want.
    pub(super) wishes: Arc<Wishes>,
}

impl Post {
    /// Keeps a session open until the queue is closed.
    pub(super) async fn keep(self) {
        // Authorizations that an earlier session left unanswered: one frame's at most.
        let mut lost = Vec::new();
        let mut pause = FIRST_PAUSE;
        while !self.queue.is_closed() {
            let mut frame = Frame::default();
            let ended = match self.open().await {
                Ok(mut session) => {
                    tracing::debug!(endpoint = %self.endpoint.uri(), "session with the key-service opened");
                    pause = FIRST_PAUSE;
                    self.doubt(std::mem::take(&mut lost));
                    session.run(&self, &mut frame).await
                }
                Err(status) => Err(status),
            };
            let Err(status) = ended else { return };
            lost.extend(frame.unanswered());
            self.queue.step_back(self.number, frame.to_hand_on());
            tracing::warn!(endpoint = %self.endpoint.uri(), error = status.message(), "no session with the key-service");
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn open(&self) -> Result<Session, Status> {
        let opening = async {
            let channel = self.endpoint.connect().await;
            let channel =
                channel.map_err(|e| Status::unavailable(format!("{:#}", anyhow::Error::from(e))))?;
            let mut client: KeyServiceClient<InterceptedService<Channel, PresentToken>> =
                KeyServiceClient::with_interceptor(channel, self.token.clone());
            // One frame is under way at a time, so that a bound of one is never waited for.
            let (frames, outgoing) = mpsc::channel(1);
            let answers = client.session(ReceiverStream::new(outgoing)).await?.into_inner();
            Ok(Session { frames, answers, next_id: 0 })
        };
        timeout(CONNECT_DEADLINE, opening)
            .await
            .map_err(|_| Status::deadline_exceeded("no connection in time"))?
    }

    /// Holds may come of these whose grants nobody will hear of.
    fn doubt(&self, lost: Vec<Arc<Pending>>) {
        if lost.is_empty() {
            return;
        }
        let wishes = self.wishes.clone();
        tokio::spawn(async move {
            sleep(AFTERMATH).await;
            for pending in lost {
                wishes.doubt(&pending);
            }
        });
    }

    /// Delivers an answer. Of one that is not taken, a hold may be left.
    fn deliver(&self, pending: &Arc<Pending>, response: answer::Response, late: bool) {
        // A late failure says nothing: another key-service has been asked since.
        let failed = matches!(response, answer::Response::Failure(_));
        if (late && failed) || pending.answer(response).is_err() {
            self.wishes.doubt(pending);
        }
    }
}

/// What a session's calls are reached with, as every key-service is.
pub(super) fn patient(endpoint: Endpoint) -> Endpoint {
    endpoint.tcp_nodelay(true).http2_keep_alive_interval(KEEP_ALIVE).keep_alive_while_idle(true)
}

/// An open stream of frames.
struct Session {
    frames: mpsc::Sender<v1::SessionRequest>,
    answers: Streaming<v1::SessionResponse>,
    next_id: u64,
}

/// The calls of the frame that is under way.
#[derive(Default)]
struct Frame {
    /// Those after it have the ids that follow.
    first_id: u64,
    /// `None` where the answer has come.
    calls: Vec<Option<Arc<Pending>>>,
    left: usize,
    /// They have been given to others, since no answer came.
    late: bool,
    /// A call failed since the store cannot be reached.
    failed: bool,
}

impl Session {
    /// Sends frame after frame; `Ok` when nobody asks any more, an error when the session broke.
    async fn run(&mut self, post: &Post, frame: &mut Frame) -> Result<(), Status> {
        loop {
            let calls = match post.queue.take(post.number) {
                Work::Calls(calls) => calls,
                Work::End => return Ok(()),
                Work::Wait => {
                    tokio::select! {
                        () = post.queue.woken(post.number) => continue,
                        ended = self.answers.message() => return Err(ended.err().unwrap_or_else(closed)),
                    }
                }
            };
            self.exchange(post, calls, frame).await?;
            if frame.failed && post.queue.give_way(post.number) {
                // Another key-service may still reach the store.
                sleep(RELUCTANCE).await;
            }
        }
    }

    /// Sends one frame and hears all of its answers. What is unanswered when it breaks stays in the frame.
    async fn exchange(
        &mut self,
        post: &Post,
        calls: Vec<Arc<Pending>>,
        frame: &mut Frame,
    ) -> Result<(), Status> {
        metrics::histogram!("gateway_frame_calls").record(u32::try_from(calls.len()).unwrap_or(u32::MAX));
        let first_id = self.next_id;
        let message = |(id, pending): (u64, &Arc<Pending>)| {
            pending.leave();
            v1::Call { id, request: Some(pending.request.clone()) }
        };
        let request = v1::SessionRequest { calls: (first_id..).zip(&calls).map(message).collect() };
        *frame = Frame::new(first_id, calls);
        self.next_id += frame.left as u64;
        self.frames.send(request).await.map_err(|_| closed())?;
        if let Ok(heard) = timeout(SILENCE, self.hear(post, frame)).await {
            return heard;
        }
        metrics::counter!("gateway_silent_frames_total").increment(1);
        tracing::warn!(endpoint = %post.endpoint.uri(), "the key-service is silent; asking another one");
        post.queue.step_back(post.number, frame.to_hand_on());
        frame.late = true;
        timeout(CALL_DEADLINE.saturating_sub(SILENCE), self.hear(post, frame))
            .await
            .map_err(|_| Status::deadline_exceeded("a frame was not answered"))?
    }

    async fn hear(&mut self, post: &Post, frame: &mut Frame) -> Result<(), Status> {
        while frame.left > 0 {
            let answers = self.answers.message().await?.ok_or_else(closed)?.answers;
            for v1::Answer { id, response } in answers {
                if let (Some(pending), Some(response)) = (frame.answered(id), response) {
                    frame.failed |= is_about_the_store(&response);
                    post.deliver(&pending, response, frame.late);
                }
            }
        }
        Ok(())
    }
}

impl Frame {
    fn new(first_id: u64, calls: Vec<Arc<Pending>>) -> Self {
        let left = calls.len();
        Self { first_id, calls: calls.into_iter().map(Some).collect(), left, late: false, failed: false }
    }

    /// Takes out the call of this id, unless it was answered.
    fn answered(&mut self, id: u64) -> Option<Arc<Pending>> {
        let index = usize::try_from(id.checked_sub(self.first_id)?).ok()?;
        let pending = self.calls.get_mut(index)?.take()?;
        self.left -= 1;
        Some(pending)
    }

    fn unanswered(&self) -> impl Iterator<Item = Arc<Pending>> {
        self.calls.iter().flatten().cloned()
    }

    /// What others have to be asked; nothing where they were.
    fn to_hand_on(&self) -> Vec<Arc<Pending>> {
        if self.late { Vec::new() } else { self.unanswered().filter(|call| call.is_wanted()).collect() }
    }
}

fn is_about_the_store(response: &answer::Response) -> bool {
    matches!(response, answer::Response::Failure(failure) if Code::from(failure.code) == Code::Unavailable)
}

fn closed() -> Status {
    Status::unavailable("the key-service closed the session")
}
