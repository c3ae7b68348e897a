//! Group commit: calls that come while a frame is under way leave together in the next one.
//!
//! An idle gateway waits for nothing, a busy one sends frames of many. When a session breaks, its unanswered calls are
//! sent again over the next one, to another key-service where there is one: all of them are idempotent.

use std::{collections::HashMap, time::Duration};

use shared::rpc::{
    CALL_DEADLINE, MAX_FRAME_CALLS, PresentToken,
    v1::{self, answer, call, key_service_client::KeyServiceClient},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Status, Streaming,
    service::interceptor::InterceptedService,
    transport::{Channel, Endpoint},
};

use super::Keys;

/// Calls that wait for the next frame, at most; further callers wait for room, within their deadline.
const QUEUE: usize = 4 * MAX_FRAME_CALLS;
/// How long a connection may take to come about.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// The first pause after a failed session; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Short, so that the gateway heals within a second of its key-service.
const LONGEST_PAUSE: Duration = Duration::from_millis(640);
/// HTTP/2 pings on an idle session, so that a peer that vanished is noticed before a request needs it.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A call that waits for its answer. Whoever asked may have gone: then it is not sent (again).
pub(super) struct Pending {
    pub(super) request: call::Request,
    pub(super) answer: oneshot::Sender<answer::Response>,
}

/// Where key-services are, and what lets us in. Tried in turn.
pub struct Endpoints {
    /// At least one.
    pub addresses: Vec<Endpoint>,
    /// The internal token.
    pub token: PresentToken,
}

/// Opens the session, and keeps it open for as long as there are handles on it.
pub fn connect(endpoints: Endpoints) -> Keys {
    let (queue, calls) = mpsc::channel(QUEUE);
    tokio::spawn(drive(endpoints, calls));
    Keys { queue }
}

async fn drive(endpoints: Endpoints, mut calls: mpsc::Receiver<Pending>) {
    let mut unanswered = HashMap::new();
    let mut pause = FIRST_PAUSE;
    for endpoint in endpoints.addresses.iter().cycle() {
        let ended = match open(endpoint, &endpoints.token).await {
            Ok(mut session) => {
                tracing::debug!(endpoint = %endpoint.uri(), "session with the key-service opened");
                pause = FIRST_PAUSE;
                session.run(&mut calls, &mut unanswered).await
            }
            Err(status) => Err(status),
        };
        match ended {
            Ok(()) => return,
            Err(status) => {
                let (endpoint, error) = (endpoint.uri(), status.message());
                tracing::warn!(%endpoint, error, "no session with the key-service");
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        if calls.is_closed()
            && calls.is_empty()
            && unanswered.values().all(|call: &Pending| call.answer.is_closed())
        {
            return;
        }
    }
}

/// An open stream of frames.
struct Session {
    frames: mpsc::Sender<v1::SessionRequest>,
    answers: Streaming<v1::SessionResponse>,
    next_id: u64,
}

async fn open(endpoint: &Endpoint, token: &PresentToken) -> Result<Session, Status> {
    let opening = async {
        let channel = endpoint
            .clone()
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .connect()
            .await
            .map_err(|e| Status::unavailable(format!("{:#}", anyhow::Error::from(e))))?;
        let mut client: KeyServiceClient<InterceptedService<Channel, PresentToken>> =
            KeyServiceClient::with_interceptor(channel, token.clone());
        // One frame is under way at a time, so that a bound of one is never waited for.
        let (frames, outgoing) = mpsc::channel(1);
        let answers = client.session(ReceiverStream::new(outgoing)).await?.into_inner();
        Ok(Session { frames, answers, next_id: 0 })
    };
    timeout(CONNECT_DEADLINE, opening)
        .await
        .map_err(|_| Status::deadline_exceeded("no connection in time"))?
}

impl Session {
    /// Sends frame after frame; `Ok` when no caller is left, an error when the session broke.
    async fn run(
        &mut self,
        calls: &mut mpsc::Receiver<Pending>,
        unanswered: &mut HashMap<u64, Pending>,
    ) -> Result<(), Status> {
        loop {
            // What an earlier session left open comes first.
            let mut frame: Vec<Pending> = std::mem::take(unanswered).into_values().collect();
            if frame.is_empty() {
                let first = tokio::select! {
                    call = calls.recv() => call,
                    ended = self.answers.message() => return Err(ended.err().unwrap_or_else(closed)),
                };
                let Some(first) = first else { return Ok(()) };
                frame.push(first);
            }
            while frame.len() < MAX_FRAME_CALLS
                && let Ok(call) = calls.try_recv()
            {
                frame.push(call);
            }
            self.exchange(frame, unanswered).await?;
        }
    }

    /// Sends one frame and hears all of its answers. What stays unanswered is left for the next session.
    async fn exchange(
        &mut self,
        frame: Vec<Pending>,
        unanswered: &mut HashMap<u64, Pending>,
    ) -> Result<(), Status> {
        let mut calls = Vec::with_capacity(frame.len());
        for pending in frame.into_iter().filter(|pending| !pending.answer.is_closed()) {
            self.next_id += 1;
            calls.push(v1::Call { id: self.next_id, request: Some(pending.request.clone()) });
            unanswered.insert(self.next_id, pending);
        }
        if calls.is_empty() {
            return Ok(());
        }
        metrics::histogram!("gateway_frame_calls").record(u32::try_from(calls.len()).unwrap_or(u32::MAX));
        self.frames.send(v1::SessionRequest { calls }).await.map_err(|_| closed())?;
        let heard = async {
            while !unanswered.is_empty() {
                let frame = self.answers.message().await?.ok_or_else(closed)?;
                for v1::Answer { id, response } in frame.answers {
                    if let (Some(pending), Some(response)) = (unanswered.remove(&id), response) {
                        // Nobody listens where the caller has gone.
                        let _ = pending.answer.send(response);
                    }
                }
            }
            Ok(())
        };
        timeout(CALL_DEADLINE, heard)
            .await
            .map_err(|_| Status::deadline_exceeded("a frame was not answered"))?
    }
}

fn closed() -> Status {
    Status::unavailable("the key-service closed the session")
}
