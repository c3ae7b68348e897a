//! Group commit with a key-service: calls that arrive while a frame is in flight are sent together in the next one.
//!
//! An idle gateway does not wait, and a busy one sends large frames. If a session breaks or is silent, another one
//! sends its unanswered calls again, which is safe because all calls are idempotent. A silent session gets new frames
//! after its next answer.

use std::{
    fmt, io,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use http::Uri;
use hyper_util::rt::TokioIo;
use shared::{backoff::Backoff, clock::Clock};
use shared_client::dial::{Dial, Wire};
use shared_door::tls::Tls;
use shared_observe::{metrics::Counted, traces::Span};
use shared_rpc::{
    Answer, CALL_DEADLINE, Call, KeyService, PresentToken, SessionClock, TracedCall, client_tls,
    v1::{self, key_service_client::KeyServiceClient},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Status, Streaming,
    service::interceptor::InterceptedService,
    transport::{Channel, Endpoint},
};
use tower::{Service, service_fn};

use super::{
    health::KeyServiceHealth,
    orphans::Orphans,
    queue::{Answered, Pending, Queue, Work},
};

/// Longest time to make a connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// First pause after a failed session.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause after failed sessions. It is short, so that the gateway recovers within a second of the key-service.
const LONGEST_PAUSE: Duration = Duration::from_millis(640);
/// Time without an answer after which calls are also sent to another key-service. Frames are normally answered within
/// milliseconds. If all key-services are slow because the store is, the next one still has most of the callers'
/// deadline.
const HEDGE_AFTER: Duration = Duration::from_millis(500);
/// How long a key-service that cannot reach the store gets no calls, if there is another one. It is longer than a
/// caller's pause between attempts, so that the next attempt goes to the other.
const STORE_FAILURE_PENALTY: Duration = Duration::from_secs(1);
/// Port of an address without one.
const DEFAULT_PORT: u16 = 80;
/// Interval of HTTP/2 pings on an idle session, so that a vanished peer is noticed before a request is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A key-service to connect to.
#[derive(Clone)]
pub enum Peer {
    Remote {
        endpoint: Box<Endpoint>,
        tls: Option<Tls>,
        token: PresentToken,
        /// Makes the connections in place of TCP and TLS.
        dial: Option<Arc<dyn Dial>>,
    },
    Local(Arc<dyn KeyService>),
}

impl Peer {
    /// A key-service in another process, over a connection kept alive.
    pub fn remote(
        endpoint: Endpoint,
        tls: Option<Tls>,
        token: PresentToken,
        dial: Option<Arc<dyn Dial>>,
    ) -> Self {
        let endpoint =
            endpoint.tcp_nodelay(true).http2_keep_alive_interval(KEEP_ALIVE).keep_alive_while_idle(true);
        Self::Remote { endpoint: Box::new(endpoint), tls, token, dial }
    }

    /// Names the key-service in the span of a call.
    fn name_in(&self, span: &Span) {
        let Self::Remote { endpoint, .. } = self else { return };
        if let Some(host) = endpoint.uri().host().filter(|_| span.is_sampled()) {
            span.set("server.address", host.to_owned());
            span.set("server.port", i64::from(endpoint.uri().port_u16().unwrap_or(DEFAULT_PORT)));
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote { endpoint, .. } => endpoint.uri().fmt(f),
            Self::Local(_) => f.write_str("in this process"),
        }
    }
}

/// Connection settings and dependencies of a session task.
pub(super) struct SessionTask {
    /// The session's number in the queue.
    pub(super) number: usize,
    pub(super) peer: Peer,
    pub(super) queue: Arc<Queue>,
    /// The authorizations of unknown outcome.
    pub(super) orphans: Arc<Orphans>,
    /// The health of all key-services.
    pub(super) health: Arc<KeyServiceHealth>,
    pub(super) clock: Arc<dyn Clock>,
    /// The last attempt failed: no session, no answer, or no store.
    pub(super) is_failing: AtomicBool,
}

impl SessionTask {
    /// Keeps a session open until the queue is closed.
    pub(super) async fn run(self) {
        let sessions = |state| metrics::gauge!("gateway_key_service_sessions", "state" => state);
        let counted = |state| Counted::by(sessions(state));
        // So that a gateway that never reaches a key-service reports 0 open sessions, rather than no figure.
        sessions("open").increment(0);
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut connecting = Some(counted("connecting"));
        while !self.queue.is_closed() {
            let mut frame = Frame::default();
            let ended = match self.open().await {
                Ok(mut session) => {
                    tracing::debug!(peer = %self.peer, "session with the key-service opened");
                    backoff.reset();
                    self.answered();
                    connecting = None;
                    let _open = counted("open");
                    session.run(&self, &mut frame).await
                }
                Err(status) => Err(status),
            };
            let Err(status) = ended else { return };
            connecting.get_or_insert_with(|| counted("connecting"));
            self.failed(status.message());
            self.queue.requeue(self.number, frame.to_hand_on());
            sleep(backoff.pause(&*self.clock)).await;
        }
    }

    fn failed(&self, error: &str) {
        tracing::debug!(peer = %self.peer, error, "a session with the key-service failed");
        self.health.session_failed(self.number, &self.is_failing, &self.peer, error);
    }

    fn answered(&self) {
        self.health.session_answered(self.number, &self.is_failing, &self.peer);
    }

    async fn open(&self) -> Result<OpenSession, Status> {
        let (endpoint, tls, token, dial) = match &self.peer {
            Peer::Remote { endpoint, tls, token, dial } => (endpoint, tls, token, dial),
            Peer::Local(service) => return Ok(OpenSession::Local(service.clone())),
        };
        let opening = async {
            let connected = match (dial, tls) {
                (Some(dial), _) => endpoint.connect_with_connector(connector(dial)).await,
                (None, Some(tls)) => match (**endpoint).clone().tls_config(client_tls(&tls.get())) {
                    Ok(endpoint) => endpoint.connect().await,
                    Err(e) => Err(e),
                },
                (None, None) => endpoint.connect().await,
            };
            let channel =
                connected.map_err(|e| Status::unavailable(format!("{:#}", anyhow::Error::from(e))))?;
            let mut client: KeyServiceClient<InterceptedService<Channel, PresentToken>> =
                KeyServiceClient::with_interceptor(channel, token.clone());
            // Only one frame is in flight at a time, so the channel never blocks.
            let (frames, outgoing) = mpsc::channel(1);
            let mut answers = client.session(ReceiverStream::new(outgoing)).await?.into_inner();
            let first = answers.message().await?.ok_or_else(closed)?;
            let clock = SessionClock::observed(Instant::now(), first.clock_ms);
            self.queue.met(self.number, first.instance);
            Ok(OpenSession::Remote(Box::new(RemoteSession { frames, answers, clock, next_id: 0 })))
        };
        timeout(CONNECT_DEADLINE, opening)
            .await
            .map_err(|_| Status::deadline_exceeded("no connection in time"))?
    }

    /// Delivers an answer. A hold that was opened for an absent caller becomes an orphan.
    fn deliver(&self, pending: &Pending, answered: Answered, hedged: bool) {
        let opened = matches!(answered, Ok(Answer::Authorized(Ok(_))));
        // A late failure is ignored, since another key-service has been asked.
        let delivered = !(hedged && answered.is_err()) && pending.answer(answered);
        if let (Call::Authorize(authorize), true, false) = (&*pending.call, opened, delivered) {
            self.orphans.add(authorize);
        }
    }
}

enum OpenSession {
    Remote(Box<RemoteSession>),
    Local(Arc<dyn KeyService>),
}

/// A stream of frames with another process.
struct RemoteSession {
    frames: mpsc::Sender<v1::SessionRequest>,
    answers: Streaming<v1::SessionResponse>,
    clock: SessionClock,
    next_id: u64,
}

/// Calls of the frame in flight.
#[derive(Default)]
struct Frame {
    /// The id of the first call; the others follow.
    first_id: u64,
    /// Calls by place, `None` once answered.
    calls: Vec<Option<Arc<Pending>>>,
    left: usize,
    /// The calls were passed to other sessions because no answer came.
    hedged: bool,
    /// A call failed because the store cannot be reached.
    store_failed: bool,
}

impl OpenSession {
    /// Sends frame after frame. Returns `Ok` when the queue is closed, and an error when the session breaks.
    async fn run(&mut self, task: &SessionTask, frame: &mut Frame) -> Result<(), Status> {
        loop {
            let calls = match task.queue.take(task.number) {
                Work::Frame(calls) => calls,
                Work::End => return Ok(()),
                Work::Wait(spill) => {
                    tokio::select! {
                        biased;
                        () = task.queue.woken(task.number, spill) => continue,
                        status = self.broken() => return Err(status),
                    }
                }
            };
            metrics::histogram!("gateway_frame_calls").record(u32::try_from(calls.len()).unwrap_or(u32::MAX));
            for pending in &calls {
                pending.count_copy();
                task.peer.name_in(&pending.span);
            }
            match self {
                Self::Remote(session) => session.exchange(task, calls, frame).await?,
                Self::Local(service) => exchange_in_process(&**service, task, calls, frame).await,
            }
            if frame.store_failed {
                task.failed("it cannot reach the store");
            } else {
                task.answered();
            }
            if frame.store_failed && task.queue.yield_to_others(task.number) {
                // Another key-service may still reach the store.
                sleep(STORE_FAILURE_PENALTY).await;
            }
        }
    }

    /// Returns when an idle session breaks.
    async fn broken(&mut self) -> Status {
        match self {
            Self::Remote(session) => session.answers.message().await.err().unwrap_or_else(closed),
            Self::Local(_) => std::future::pending().await,
        }
    }
}

async fn exchange_in_process(
    service: &dyn KeyService,
    task: &SessionTask,
    calls: Vec<Arc<Pending>>,
    frame: &mut Frame,
) {
    *frame = Frame::new(0, Vec::new());
    let traced =
        |pending: &Arc<Pending>| TracedCall { call: (*pending.call).clone(), span: pending.span.clone() };
    let answers = service.handle(calls.iter().map(traced).collect()).await;
    for (pending, answered) in calls.iter().zip(answers) {
        task.deliver(pending, answered, false);
    }
}

impl RemoteSession {
    /// Sends a frame and reads all answers. Unanswered calls stay in the frame if the session breaks.
    async fn exchange(
        &mut self,
        task: &SessionTask,
        calls: Vec<Arc<Pending>>,
        frame: &mut Frame,
    ) -> Result<(), Status> {
        let first_id = self.next_id;
        let message = |(id, pending): (u64, &Arc<Pending>)| v1::Call {
            id,
            request: Some(pending.call.to_message(self.clock)),
            traceparent: pending.span.sampled_traceparent(),
        };
        let request = v1::SessionRequest { calls: (first_id..).zip(&calls).map(message).collect() };
        *frame = Frame::new(first_id, calls);
        self.next_id += frame.left as u64;
        self.frames.send(request).await.map_err(|_| closed())?;
        if let Ok(read) = timeout(HEDGE_AFTER, self.read_answers(task, frame)).await {
            return read;
        }
        metrics::counter!("gateway_silent_frames_total").increment(1);
        task.queue.requeue(task.number, frame.to_hand_on());
        task.failed("no answer in time; asking another key-service");
        frame.hedged = true;
        timeout(CALL_DEADLINE.saturating_sub(HEDGE_AFTER), self.read_answers(task, frame))
            .await
            .map_err(|_| Status::deadline_exceeded("a frame was not answered"))?
    }

    async fn read_answers(&mut self, task: &SessionTask, frame: &mut Frame) -> Result<(), Status> {
        while frame.left > 0 {
            let v1::SessionResponse { answers, clock_ms, instance: _ } =
                self.answers.message().await?.ok_or_else(closed)?;
            self.clock = self.clock.or(SessionClock::observed(Instant::now(), clock_ms));
            for v1::Answer { id, response } in answers {
                if let (Some(pending), Some(response)) = (frame.answered(id), response) {
                    let answered = Answer::from_message(response, &pending.call);
                    frame.store_failed |= answered.as_ref().is_err_and(|e| e.code == Code::Unavailable);
                    task.deliver(&pending, answered, frame.hedged);
                }
            }
        }
        Ok(())
    }
}

impl Frame {
    fn new(first_id: u64, calls: Vec<Arc<Pending>>) -> Self {
        let left = calls.len();
        Self {
            first_id,
            calls: calls.into_iter().map(Some).collect(),
            left,
            hedged: false,
            store_failed: false,
        }
    }

    /// Takes the call with this id, unless it was answered before.
    fn answered(&mut self, id: u64) -> Option<Arc<Pending>> {
        let index = usize::try_from(id.checked_sub(self.first_id)?).ok()?;
        let pending = self.calls.get_mut(index)?.take()?;
        self.left -= 1;
        Some(pending)
    }

    /// Returns the calls that other sessions must execute; empty if they were passed on before.
    fn to_hand_on(&self) -> Vec<Arc<Pending>> {
        if self.hedged {
            return Vec::new();
        }
        self.calls.iter().flatten().filter(|call| call.is_wanted()).cloned().collect()
    }
}

/// A connector of tonic that connects as `dial` does.
fn connector(
    dial: &Arc<dyn Dial>,
) -> impl Service<Uri, Response = TokioIo<Box<dyn Wire>>, Error = io::Error, Future: Send> + Send + use<> {
    let dial = dial.clone();
    service_fn(move |to| {
        let dialled = dial.dial(&to);
        async move { Ok(TokioIo::new(dialled.await?)) }
    })
}

fn closed() -> Status {
    Status::unavailable("the key-service closed the session")
}
