//! Calls to the key-services, each with a deadline.

mod accounts;
mod health;
mod orphans;
mod queue;
mod session;

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use shared::{
    backoff::Backoff, clock::Clock, error::ApiError, ids::GenerationId, key::Class, refusal::Denial,
};
use shared_observe::{
    failure_log::{FailureLog, Failures},
    standard_metrics::{CallSide, CallTimer},
    traces::{RPC_STATUS, Span},
};
use shared_rpc::{
    Answer, Authorize, Call, CallFailure, Capture, Captured, Extend, Extended, Grant, Identity, Release,
};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::Code;

use accounts::KnownAccounts;
pub use health::{KeyServiceHealth, KeyServicePort};
pub(crate) use orphans::Orphan;
use orphans::{OrphanGuard, Orphans};
use queue::{Pending, Queue};
pub use session::Peer;
use session::SessionTask;

/// How long a request waits for its authorization. After that, the client should retry later.
const AUTHORIZE_DEADLINE: Duration = Duration::from_secs(3);
/// Maximum time for one attempt to extend, capture or release. The caller repeats failed attempts.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(5);
/// First and longest pause before a failed call is repeated.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// A handle on the sessions with the key-services. Cheap to clone.
#[derive(Clone)]
pub struct Keys(Arc<Handle>);

struct Handle {
    queue: Arc<Queue>,
    orphans: Arc<Orphans>,
    clock: Arc<dyn Clock>,
    accounts: KnownAccounts,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Opens a session with every key-service on the caller's runtime, and keeps them open while a handle exists. At low
/// load, the first key-services are preferred.
pub fn connect(peers: Vec<Peer>, health: &Arc<KeyServiceHealth>, clock: Arc<dyn Clock>) -> Keys {
    let (queue, orphans) = (Arc::new(Queue::new(peers.len())), Arc::new(Orphans::default()));
    for (number, peer) in peers.into_iter().enumerate() {
        let (queue, orphans, clock) = (queue.clone(), orphans.clone(), clock.clone());
        let (health, is_failing) = (health.clone(), AtomicBool::new(false));
        tokio::spawn(SessionTask { number, peer, queue, orphans, health, clock, is_failing }.run());
    }
    Keys(Arc::new(Handle { queue, orphans, clock, accounts: KnownAccounts::default() }))
}

/// The key-service did not answer, or failed. The outcome is unknown, and the same call may be repeated.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unavailable {
    /// No answer within the deadline.
    #[error("the key-service did not answer in time")]
    Deadline,
    /// The sessions have ended because the gateway is stopping.
    #[error("the session with the key-service has ended")]
    Ended,
    /// The key-service answered that the call failed.
    #[error("the key-service failed: {0}")]
    Failed(CallFailure),
    /// The answer does not match the call.
    #[error("the key-service's answer does not match the call")]
    Unfit,
}

impl Unavailable {
    /// Returns whether the same call may succeed when repeated.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Deadline => true,
            Self::Failed(failure) => is_passing(failure),
            Self::Ended | Self::Unfit => false,
        }
    }
}

/// Requests that could not be authorized. Nothing shows when the cause ends, so the log does not report a recovery.
static UNAUTHORIZED: FailureLog = FailureLog::new();

/// A request whose authorization gets no answer is not served. The client gets a 503 without the cause, which is logged
/// here at most once a minute.
impl From<Unavailable> for ApiError {
    fn from(e: Unavailable) -> Self {
        tracing::debug!(error = %e, "a request could not be authorized");
        if let Some(Failures { untold, .. }) = UNAUTHORIZED.failed() {
            tracing::warn!(error = %e, requests = untold, "requests could not be authorized");
        }
        Self::service_unavailable()
    }
}

impl Keys {
    /// Ends the sessions even if there are handles left.
    pub fn close(&self) {
        self.0.queue.close();
    }

    pub fn new_generation(&self) -> GenerationId {
        GenerationId::generate(&*self.0.clock)
    }

    /// Finds the owner of this credential, if it may be used right now.
    pub async fn authenticate(
        &self,
        credential: &str,
        required: Class,
    ) -> Result<Result<Identity, Denial>, Unavailable> {
        let call = Call::Authenticate { credential: credential.to_owned(), required };
        let deadline = Instant::now() + AUTHORIZE_DEADLINE;
        match self.call_until(deadline, call, |_| {}).await? {
            Answer::Authenticated(result) => Ok(result),
            _ => Err(Unavailable::Unfit),
        }
    }

    /// Opens a hold. If the outcome is unknown or the caller is dropped, the hold that may be open is released once the
    /// call can no longer take effect.
    pub async fn authorize(&self, request: Authorize) -> Result<Result<Grant, Denial>, Unavailable> {
        let deadline = Instant::now() + AUTHORIZE_DEADLINE;
        let authorize = Authorize { valid_until: Some(deadline), ..request };
        let mut orphan = OrphanGuard::new(&self.0.orphans, &authorize);
        match self.call_until(deadline, Call::Authorize(authorize), |sent| orphan.sent(sent)).await? {
            Answer::Authorized(result) => {
                orphan.answered();
                Ok(result)
            }
            _ => Err(Unavailable::Unfit),
        }
    }

    /// Renews the lease, reports progress, and requests more output tokens.
    pub(crate) async fn extend(&self, extend: Extend) -> Result<Extended, Unavailable> {
        match self.call(Call::Extend(extend)).await? {
            Answer::Extended(extended) => Ok(extended),
            _ => Err(Unavailable::Unfit),
        }
    }

    pub(crate) async fn capture(&self, capture: Capture) -> Result<Captured, Unavailable> {
        match self.call(Call::Capture(capture)).await? {
            Answer::Captured(captured) => Ok(captured),
            _ => Err(Unavailable::Unfit),
        }
    }

    pub(crate) async fn release(&self, release: Release) -> Result<(), Unavailable> {
        match self.call(Call::Release(release)).await? {
            Answer::Released => Ok(()),
            _ => Err(Unavailable::Unfit),
        }
    }

    /// Returns the pauses between a caller's attempts.
    pub(crate) const fn backoff() -> Backoff {
        Backoff::new(PAUSES.0, PAUSES.1)
    }

    pub(crate) async fn pause(&self, backoff: &mut Backoff) {
        sleep(backoff.pause(&*self.0.clock)).await;
    }

    /// Takes the orphans whose authorizations can no longer take effect, so that they can be released.
    pub(crate) fn due_orphans(&self, now: Instant) -> Vec<Orphan> {
        self.0.orphans.take_due(now)
    }

    /// Puts back an orphan that could not be released yet.
    pub(crate) fn keep_orphan(&self, orphan: Orphan) {
        self.0.orphans.keep(orphan);
    }

    /// Repeats a call until it succeeds, fails permanently, or the deadline passes. Calls `sent` with each queued
    /// attempt.
    async fn call_until(
        &self,
        deadline: Instant,
        call: Call,
        mut sent: impl FnMut(&Arc<Pending>),
    ) -> Result<Answer, Unavailable> {
        let observed = ObservedCall::begin(call.method());
        let account = self.0.accounts.of(&call);
        let (mut failure, call) = (None, Arc::new(call));
        let answered = async {
            let _permit = self.0.queue.permit().await.ok_or(Unavailable::Ended)?;
            let mut backoff = Self::backoff();
            loop {
                let (pending, answer) = Pending::new(call.clone(), observed.span.clone(), account);
                sent(&pending);
                self.0.queue.push(pending);
                match answer.await.map_err(|_| Unavailable::Ended)? {
                    Err(failed) if is_passing(&failed) => failure = Some(failed),
                    answer => return answer.map_err(Unavailable::Failed),
                }
                self.pause(&mut backoff).await;
            }
        };
        let answered = match timeout_at(deadline, answered).await {
            Ok(answered) => {
                if let Ok(answer) = &answered {
                    self.0.accounts.learn(&call, answer);
                }
                answered
            }
            Err(_) => Err(failure.map_or(Unavailable::Deadline, Unavailable::Failed)),
        };
        observed.end(&answered);
        answered
    }

    async fn call(&self, call: Call) -> Result<Answer, Unavailable> {
        let observed = ObservedCall::begin(call.method());
        let answered = async {
            let _permit = self.0.queue.permit().await.ok_or(Unavailable::Ended)?;
            let account = self.0.accounts.of(&call);
            let (pending, answer) = Pending::new(Arc::new(call), observed.span.clone(), account);
            self.0.queue.push(pending);
            answer.await.map_err(|_| Unavailable::Ended)?.map_err(Unavailable::Failed)
        };
        let answered = timeout(ATTEMPT_DEADLINE, answered).await.unwrap_or(Err(Unavailable::Deadline));
        observed.end(&answered);
        answered
    }
}

/// Span and duration of a call.
struct ObservedCall {
    span: Span,
    timer: CallTimer,
}

impl ObservedCall {
    fn begin(method: &'static str) -> Self {
        Self { span: Span::current().call(method), timer: CallTimer::start(CallSide::Client, method) }
    }

    /// Records the outcome. A refusal counts as an answer.
    fn end(&self, answered: &Result<Answer, Unavailable>) {
        let status = match answered {
            Ok(_) => "OK",
            Err(Unavailable::Deadline) => "DEADLINE_EXCEEDED",
            Err(Unavailable::Ended) => "CANCELLED",
            Err(Unavailable::Failed(failure)) => failure.status(),
            Err(Unavailable::Unfit) => "INTERNAL",
        };
        self.span.set(RPC_STATUS, status);
        if answered.is_err() {
            self.span.fail(status);
        }
        self.timer.stop(status, answered.is_err());
    }
}

/// Returns whether a failure is temporary, because the store could not be reached.
fn is_passing(failure: &CallFailure) -> bool {
    matches!(failure.code, Code::Unavailable | Code::DeadlineExceeded)
}

#[cfg(test)]
mod tests;
