//! The gRPC interface: converts messages to service calls, and answers to messages.

pub mod deadline;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, future::poll_fn, mem, pin::Pin, sync::Arc};

use futures_util::{Stream, stream};
use parking_lot::Mutex;
use shared::clock::{Clock, random_bytes};
use shared_observe::{
    failure_log::{FailureLog, Failures},
    metrics::Counted,
    standard_metrics::{CallSide, CallTimer},
    traces::{RPC_STATUS, Span},
};
use shared_rpc::{
    Answer, Call, CallFailure, KeyService, MAX_FRAME_CALLS, Malformed, SessionClock, TracedCall,
    v1::{self, answer, call, key_service_server},
};
use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

/// The `domain` of our `google.rpc.ErrorInfo` messages.
const ERROR_DOMAIN: &str = "faregate";
/// Number of unanswered calls in a session at which reading stops. It is twice a gateway's own bound, so calls that
/// wait for a part of the store never prevent others from being read.
const MOST_CALLS: usize = 64 * MAX_FRAME_CALLS;

pub struct Grpc {
    service: Arc<dyn KeyService>,
    shutdown: CancellationToken,
    /// Random number of this process. Gateways use it to choose a key-service for each account.
    instance: u64,
}

impl Grpc {
    /// Creates the interface. Once `shutdown` is cancelled, each session answers the frames that it has received, then
    /// ends.
    pub fn new(service: Arc<dyn KeyService>, shutdown: CancellationToken, clock: &dyn Clock) -> Self {
        Self { service, shutdown, instance: u64::from_be_bytes(random_bytes(clock)) }
    }

    /// Runs a unary call as a batch of one call.
    async fn one(&self, request: call::Request) -> Result<answer::Response, Status> {
        let call = Call::from_message(Some(request), SessionClock::starting(Instant::now()));
        let call = call.map_err(|malformed| invalid(&malformed))?;
        match self.service.answers(vec![call.into()]).await.pop() {
            Some(Ok(answer)) => Ok(answer.to_message()),
            Some(Err(failure)) => Err(status(&failure)),
            None => Err(Status::internal("the call was not answered")),
        }
    }
}

/// Extracts the message from the answer to a unary call.
macro_rules! unary {
    ($self:ident, $request:expr, $kind:ident) => {
        match $self.one(call::Request::$kind($request)).await? {
            answer::Response::$kind(message) => Ok(Response::new(message)),
            _ => Err(Status::internal("the answer does not match the call")),
        }
    };
}

#[tonic::async_trait]
impl key_service_server::KeyService for Grpc {
    async fn authenticate(
        &self,
        request: Request<v1::AuthenticateRequest>,
    ) -> Result<Response<v1::AuthenticateResponse>, Status> {
        unary!(self, request.into_inner(), Authenticate)
    }

    /// `drop_late_calls` enforces the gRPC deadline.
    async fn authorize(
        &self,
        request: Request<v1::AuthorizeRequest>,
    ) -> Result<Response<v1::AuthorizeResponse>, Status> {
        let request = v1::AuthorizeRequest { valid_until_ms: 0, ..request.into_inner() };
        unary!(self, request, Authorize)
    }

    async fn extend(
        &self,
        request: Request<v1::ExtendRequest>,
    ) -> Result<Response<v1::ExtendResponse>, Status> {
        unary!(self, request.into_inner(), Extend)
    }

    async fn capture(
        &self,
        request: Request<v1::CaptureRequest>,
    ) -> Result<Response<v1::CaptureResponse>, Status> {
        unary!(self, request.into_inner(), Capture)
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        unary!(self, request.into_inner(), Release)
    }

    type SessionStream = Pin<Box<dyn Stream<Item = Result<v1::SessionResponse, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let session = SessionStream {
            frames: request.into_inner(),
            service: self.service.clone(),
            shutdown: self.shutdown.clone(),
            clock: SessionClock::starting(Instant::now()),
            greeted: false,
            is_ending: false,
            running: JoinSet::new(),
            unanswered: 0,
            answers: Arc::default(),
            instance: self.instance,
            _counted: Counted::by(metrics::gauge!("keyservice_sessions")),
        };
        let frames = stream::try_unfold(session, |mut session| async move {
            Ok(session.next().await?.map(|frame| (frame, session)))
        });
        Ok(Response::new(Box::pin(frames)))
    }
}

/// Answers to send, each with the id of its call.
#[derive(Default)]
struct Answers {
    waiting: Mutex<Vec<(u64, Result<Answer, CallFailure>)>>,
    arrived: Notify,
}

impl Answers {
    fn add(&self, id: u64, answer: Result<Answer, CallFailure>) {
        self.waiting.lock().push((id, answer));
    }

    /// Wakes the session to send answers.
    fn announce(&self) {
        if !self.waiting.lock().is_empty() {
            self.arrived.notify_one();
        }
    }
}

/// A session of a gateway.
struct SessionStream {
    frames: Streaming<v1::SessionRequest>,
    service: Arc<dyn KeyService>,
    shutdown: CancellationToken,
    clock: SessionClock,
    /// Whether the first frame, with the session's clock, has been sent.
    greeted: bool,
    /// Whether to stop reading frames.
    is_ending: bool,
    /// One task per frame with unanswered calls. Tasks continue while the gateway reads nothing, since they may hold
    /// locks that other sessions wait for.
    running: JoinSet<()>,
    /// Number of calls that were read and whose answers have not been sent.
    unanswered: usize,
    answers: Arc<Answers>,
    instance: u64,
    _counted: Counted,
}

impl SessionStream {
    /// Waits for the next answers and returns them.
    async fn next(&mut self) -> Result<Option<v1::SessionResponse>, Status> {
        if !self.greeted {
            self.greeted = true;
            return Ok(Some(self.response(Vec::new())));
        }
        loop {
            if self.is_ending && self.running.is_empty() && self.unanswered == 0 {
                return Ok(None);
            }
            let takes_more = !self.is_ending && self.unanswered < MOST_CALLS;
            let frame = tokio::select! {
                biased;
                () = self.answers.arrived.notified() => {
                    let answers = mem::take(&mut *self.answers.waiting.lock());
                    if answers.is_empty() {
                        continue;
                    }
                    self.unanswered = self.unanswered.saturating_sub(answers.len());
                    log(answers.iter().filter_map(|(_, answer)| answer.as_ref().err()));
                    let answers = answers.into_iter().map(|(id, answer)| answer_of(id, answer)).collect();
                    return Ok(Some(self.response(answers)));
                }
                Some(ended) = self.running.join_next(), if !self.running.is_empty() => {
                    ended.map_err(|_| Status::internal("a frame was not answered"))?;
                    continue;
                }
                frame = self.frames.message(), if takes_more => frame?,
                () = self.shutdown.cancelled(), if !self.is_ending => None,
            };
            match frame {
                Some(frame) => self.start(frame)?,
                None => self.is_ending = true,
            }
        }
    }

    /// Starts answering a frame.
    fn start(&mut self, frame: v1::SessionRequest) -> Result<(), Status> {
        if frame.calls.len() > MAX_FRAME_CALLS {
            let problem = format!("has more than {MAX_FRAME_CALLS} elements");
            return Err(invalid(&Malformed { field: "calls", problem }));
        }
        metrics::histogram!("keyservice_frame_calls")
            .record(u32::try_from(frame.calls.len()).unwrap_or(u32::MAX));
        self.unanswered += frame.calls.len();
        let (mut begun, mut calls) =
            (Vec::with_capacity(frame.calls.len()), Vec::with_capacity(frame.calls.len()));
        for v1::Call { id, request, traceparent } in frame.calls {
            match Call::from_message(request, self.clock) {
                Ok(call) => {
                    let span = Span::of_call(&traceparent, call.method());
                    begun.push(Some((id, span.clone(), CallTimer::start(CallSide::Server, call.method()))));
                    calls.push(TracedCall { call, span });
                }
                Err(malformed) => self.answers.add(id, Err(refused(&malformed))),
            }
        }
        if calls.is_empty() {
            self.answers.announce();
        } else {
            self.running.spawn(answer_all(self.service.clone(), calls, begun, self.answers.clone()));
        }
        Ok(())
    }

    fn response(&self, answers: Vec<v1::Answer>) -> v1::SessionResponse {
        let (clock_ms, instance) = (self.clock.millis(Instant::now()), self.instance);
        v1::SessionResponse { answers, clock_ms, instance }
    }
}

/// A call in progress: its id, span and timer. `None` once it is answered.
type Begun = Option<(u64, Span, CallTimer)>;

/// Answers all calls of a frame. Answers that become ready at the same time are sent together.
async fn answer_all(
    service: Arc<dyn KeyService>,
    calls: Vec<TracedCall>,
    begun: Vec<Begun>,
    answers: Arc<Answers>,
) {
    let (count, begun) = (begun.len(), Mutex::new(begun));
    let reply = |place: usize, answer: Result<Answer, CallFailure>| {
        let Some((id, span, timer)) = begun.lock().get_mut(place).and_then(Option::take) else { return };
        note(&span, timer, &answer);
        answers.add(id, answer);
    };
    let mut handling = service.handle(calls, &reply);
    poll_fn(|context| {
        let step = handling.as_mut().poll(context);
        answers.announce();
        step
    })
    .await;
    for place in 0..count {
        let message = "the call was not answered".into();
        reply(place, Err(CallFailure { code: Code::Internal, message }));
    }
    answers.announce();
}

/// Records how a call ended. A refusal counts as an answer; a malformed call is the caller's error.
fn note(span: &Span, timer: CallTimer, answer: &Result<Answer, CallFailure>) {
    let (status, failed) = match answer {
        Ok(_) => ("OK", false),
        Err(failure) => (failure.status(), failure.is_servers()),
    };
    span.set(RPC_STATUS, status);
    if failed {
        span.fail(status);
    }
    timer.stop(status, failed);
}

fn answer_of(id: u64, answer: Result<Answer, CallFailure>) -> v1::Answer {
    let response = match answer {
        Ok(answer) => answer.to_message(),
        Err(CallFailure { code, message }) => {
            answer::Response::Failure(v1::Failure { code: code.into(), message })
        }
    };
    v1::Answer { id, response: Some(response) }
}

fn status(failure: &CallFailure) -> Status {
    log([failure]);
    let details = ErrorDetails::with_error_info(reason(failure.code), ERROR_DOMAIN, []);
    Status::with_error_details(failure.code, failure.message.clone(), details)
}

fn refused(malformed: &Malformed) -> CallFailure {
    CallFailure { code: Code::InvalidArgument, message: malformed.to_string() }
}

/// Returns the status for a malformed call. Its details name the field.
fn invalid(malformed: &Malformed) -> Status {
    let field = [("field".into(), malformed.field.into())];
    let details = ErrorDetails::with_error_info(reason(Code::InvalidArgument), ERROR_DOMAIN, field);
    Status::with_error_details(Code::InvalidArgument, malformed.to_string(), details)
}

fn reason(code: Code) -> &'static str {
    match code {
        Code::Unavailable => "STORE_UNAVAILABLE",
        Code::DeadlineExceeded => "TOO_LATE",
        Code::DataLoss => "DAMAGED_RECORD",
        Code::FailedPrecondition => "ALREADY_SETTLED",
        Code::InvalidArgument => "INVALID_FIELD",
        _ => "INTERNAL",
    }
}

/// Logs calls that fail because of the store: once when failures begin, then once per minute, however many gateways
/// call.
static UNAVAILABLE: FailureLog = FailureLog::new();

/// Logs failures, one line per reason: if the store cannot be reached, all calls fail for the same reason.
fn log<'a>(failures: impl IntoIterator<Item = &'a CallFailure>) {
    let mut by_reason: BTreeMap<&str, (&CallFailure, usize)> = BTreeMap::new();
    for failure in failures {
        by_reason.entry(reason(failure.code)).or_insert((failure, 0)).1 += 1;
    }
    for (reason, (failure, calls)) in by_reason {
        if failure.code != Code::Unavailable {
            tracing::warn!(error = %failure, reason, calls, "calls failed");
        } else if let Some(Failures { untold, .. }) = UNAVAILABLE.failed() {
            tracing::warn!(error = %failure, reason, calls, rounds = untold, "calls failed");
        }
    }
}
