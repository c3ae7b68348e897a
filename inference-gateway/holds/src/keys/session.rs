//! Sends calls to a key-service in groups: calls that arrive while a frame is in flight are sent together in the next
//! frame.
//!
//! So calls do not wait in an idle gateway, and a busy gateway sends large frames. A slow frame does not block the next
//! frame, since its calls may belong to accounts whose part of the store is unreachable. If a session breaks or is
//! silent, another session sends its unanswered calls again, which is safe because all calls are idempotent. A silent
//! session gets new frames after its next answer.

mod exchange;
mod in_flight;

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
    Answer, Call, KeyService, PresentToken, SessionClock, client_tls,
    v1::key_service_client::KeyServiceClient,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Status,
    service::interceptor::InterceptedService,
    transport::{Channel, Endpoint},
};
use tower::{Service, service_fn};

use self::{
    exchange::{Heard, OpenSession, closed},
    in_flight::{FrameEnd, Hedge, MOST_FRAMES, SentFrames, StoreSeen},
};
use super::{
    health::KeyServiceHealth,
    orphans::Orphans,
    queue::{Answered, Pending, Queue, Work},
};

const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// First pause after a failed session.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause after failed sessions. It is short, so that the gateway recovers within a second after the key-service
/// has recovered.
const LONGEST_PAUSE: Duration = Duration::from_millis(640);
/// How long a key-service that cannot reach the store gets no calls while another is available. This time is longer
/// than a caller's pause between attempts, so that the next attempt goes to another key-service.
const STORE_FAILURE_PENALTY: Duration = Duration::from_secs(1);
/// Port to use if an address has none.
const DEFAULT_PORT: u16 = 80;
/// Interval of HTTP/2 pings on an idle session. They detect a vanished peer before a request is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A key-service to connect to.
#[derive(Clone)]
pub enum Peer {
    Remote {
        endpoint: Box<Endpoint>,
        tls: Option<Tls>,
        token: PresentToken,
        /// Replaces TCP and TLS for making connections.
        dial: Option<Arc<dyn Dial>>,
    },
    Local(Arc<dyn KeyService>),
}

impl Peer {
    /// Makes a peer for a key-service in another process, with a persistent connection.
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

    /// Records the key-service in a call's span.
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
    pub(super) orphans: Arc<Orphans>,
    pub(super) health: Arc<KeyServiceHealth>,
    pub(super) clock: Arc<dyn Clock>,
    /// Whether the last attempt failed: the session could not be opened, got no answer, or the key-service could not
    /// reach the store.
    pub(super) is_failing: AtomicBool,
}

impl SessionTask {
    /// Keeps a session open until the queue is closed.
    pub(super) async fn run(self) {
        let sessions = |state| metrics::gauge!("gateway_key_service_sessions", "state" => state);
        let counted = |state| Counted::by(sessions(state));
        // With this, a gateway that never reaches a key-service reports 0 open sessions instead of no value.
        sessions("open").increment(0);
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut connecting = Some(counted("connecting"));
        while !self.queue.is_closed() {
            let mut in_flight = SentFrames::default();
            let ended = match self.open().await {
                Ok(mut session) => {
                    tracing::debug!(peer = %self.peer, "session with the key-service opened");
                    backoff.reset();
                    self.answered();
                    connecting = None;
                    let _open = counted("open");
                    self.exchange(&mut session, &mut in_flight).await
                }
                Err(status) => Err(status),
            };
            let Err(status) = ended else { return };
            connecting.get_or_insert_with(|| counted("connecting"));
            self.failed(status.message());
            self.queue.requeue(self.number, in_flight.to_hand_on());
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
            Peer::Local(service) => return Ok(OpenSession::local(service.clone())),
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
            // The channel has room for all frames in flight, so it fills up only if the key-service stops reading.
            let (frames, outgoing) = mpsc::channel(MOST_FRAMES);
            let mut answers = client.session(ReceiverStream::new(outgoing)).await?.into_inner();
            let first = answers.message().await?.ok_or_else(closed)?;
            let clock = SessionClock::observed(Instant::now(), first.clock_ms);
            self.queue.met(self.number, first.instance);
            Ok(OpenSession::remote(frames, answers, clock))
        };
        timeout(CONNECT_DEADLINE, opening)
            .await
            .map_err(|_| Status::deadline_exceeded("no connection in time"))?
    }

    /// Sends frames one after another. Returns `Ok` when the queue is closed, and an error when the session breaks.
    async fn exchange(&self, session: &mut OpenSession, in_flight: &mut SentFrames) -> Result<(), Status> {
        let mut rests_until = Instant::now();
        loop {
            let now = Instant::now();
            let free_at = in_flight.free_at(now).map(|free_at| free_at.max(rests_until));
            let mut wait = None;
            if free_at.is_some_and(|free_at| free_at <= now) {
                match self.queue.take(self.number) {
                    Work::Frame(calls) => {
                        self.send(session, &calls, in_flight)?;
                        continue;
                    }
                    Work::End if in_flight.is_empty() => return Ok(()),
                    Work::End => {}
                    Work::Wait(spill) => wait = Some(spill),
                }
            }
            let to_hedge = in_flight.hedged_at().filter(|_| session.is_remote());
            let timer = free_at.filter(|free_at| *free_at > now).into_iter().chain(to_hedge).min();
            tokio::select! {
                biased;
                told = session.next_answers() => {
                    for (id, told) in told? {
                        if self.hear(in_flight, id, told) && self.queue.yield_to_others(self.number) {
                            // Another key-service may still reach the store.
                            rests_until = Instant::now() + STORE_FAILURE_PENALTY;
                        }
                    }
                }
                () = self.queue.woken(self.number, wait.flatten()), if wait.is_some() => {}
                () = sleep_until(timer.unwrap_or(now)), if timer.is_some() => {
                    if session.is_remote() {
                        self.hedge(in_flight)?;
                    }
                }
            }
        }
    }

    fn send(
        &self,
        session: &mut OpenSession,
        calls: &[Arc<Pending>],
        in_flight: &mut SentFrames,
    ) -> Result<(), Status> {
        metrics::histogram!("gateway_frame_calls").record(u32::try_from(calls.len()).unwrap_or(u32::MAX));
        for pending in calls {
            pending.count_copy(self.number);
            self.peer.name_in(&pending.span);
        }
        let first_id = in_flight.sent(calls.to_vec(), Instant::now());
        session.send(first_id, calls)
    }

    /// Delivers an answer. Returns true if this was the last answer of a frame and the frame's answers show that the
    /// key-service cannot reach its store.
    fn hear(&self, in_flight: &mut SentFrames, id: u64, told: Heard) -> bool {
        let deliver = |pending: &Pending, is_handed_on: bool| {
            let answered = told.answer_to(&pending.call);
            let seen = match &answered {
                Err(e) if e.code == Code::Unavailable => StoreSeen::Away,
                // A malformed credential is refused without a look-up.
                Err(_) | Ok(Answer::Authenticated(Err(_))) => StoreSeen::Unclear,
                Ok(_) => StoreSeen::Reached,
            };
            self.deliver(pending, answered, is_handed_on);
            seen
        };
        match in_flight.answered(id, Instant::now(), deliver) {
            None => false,
            // A key-service in this process gets no pause, since there is no other key-service to ask.
            Some(FrameEnd::StoreFailed) if matches!(self.peer, Peer::Remote { .. }) => {
                self.failed("it cannot reach the store");
                true
            }
            Some(FrameEnd::Answered | FrameEnd::StoreFailed) => {
                self.answered();
                false
            }
        }
    }

    /// Makes another session send the calls that have had no answer for too long. Fails if nothing was answered for so
    /// long that the session has to be closed.
    fn hedge(&self, in_flight: &mut SentFrames) -> Result<(), Status> {
        match in_flight.hedge(Instant::now()) {
            Hedge::None => {}
            // Other calls are answered: the store is slow or unreachable only for some accounts.
            Hedge::Slow(calls) => self.queue.pass_on(self.number, calls),
            Hedge::Silent(calls) => {
                metrics::counter!("gateway_silent_frames_total").increment(1);
                self.queue.requeue(self.number, calls);
                self.failed("no answer in time; asking another key-service");
            }
            Hedge::TooLate => return Err(Status::deadline_exceeded("a frame was not answered")),
        }
        Ok(())
    }

    /// Delivers an answer. A hold opened for an absent caller becomes an orphan.
    fn deliver(&self, pending: &Pending, answered: Answered, is_handed_on: bool) {
        let opened = matches!(answered, Ok(Answer::Authorized(Ok(_))));
        let delivered = match answered {
            Ok(answer) => pending.answer(Ok(answer)),
            // A failure here does not count, because another session sends a copy of the call.
            Err(_) if is_handed_on => false,
            Err(failure) => pending.copy_failed(failure),
        };
        if let (Call::Authorize(authorize), true, false) = (&*pending.call, opened, delivered) {
            self.orphans.add(authorize);
        }
    }
}

/// Makes a connector for tonic that connects with `dial`.
fn connector(
    dial: &Arc<dyn Dial>,
) -> impl Service<Uri, Response = TokioIo<Box<dyn Wire>>, Error = io::Error, Future: Send> + Send + use<> {
    let dial = dial.clone();
    service_fn(move |to| {
        let dialled = dial.dial(&to);
        async move { Ok(TokioIo::new(dialled.await?)) }
    })
}
