//! Queue of calls to the key-services, and the choice of the session for each call.
//!
//! All sessions share one queue. A session takes waiting calls when free to send, so that a disconnected session gets
//! none, and its unanswered calls go to the next free session.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use shared::{
    process::traces::Span,
    rpc::{Answer, Call, CallFailure, MAX_FRAME_CALLS},
};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot};

/// Number of calls awaited at once, as many as the chat requests admitted by default; further callers wait for a
/// permit.
const MAX_CALLS: usize = 8 * MAX_FRAME_CALLS;
/// Queue length at which an idle session starts a second frame while another is in flight. Below that, a large frame
/// is cheaper for the store than two small ones, and costs a waiting call less than a millisecond.
const SECOND_FRAME_THRESHOLD: usize = MAX_FRAME_CALLS / 8;

/// Answer to a call.
pub(super) type Answered = Result<Answer, CallFailure>;

/// A call that waits for an answer. Copies may have been sent to several key-services: the first answer counts.
pub(super) struct Pending {
    pub(super) call: Arc<Call>,
    /// The call's span.
    pub(super) span: Span,
    answer: Mutex<Option<oneshot::Sender<Answered>>>,
    copies: AtomicU32,
}

impl Pending {
    /// A pending call, and the receiver of the answer.
    pub(super) fn new(call: Arc<Call>, span: Span) -> (Arc<Self>, oneshot::Receiver<Answered>) {
        let (answer, answered) = oneshot::channel();
        let pending = Self { call, span, answer: Mutex::new(Some(answer)), copies: AtomicU32::new(0) };
        (Arc::new(pending), answered)
    }

    /// Returns whether a caller still waits for an answer.
    pub(super) fn is_wanted(&self) -> bool {
        self.answer.lock().as_ref().is_some_and(|answer| !answer.is_closed())
    }

    /// Delivers the answer to the caller; returns whether a caller waited for an answer.
    pub(super) fn answer(&self, answered: Answered) -> bool {
        let waiting = self.answer.lock().take();
        waiting.is_some_and(|waiting| waiting.send(answered).is_ok())
    }

    /// Counts a copy that is sent to a key-service.
    pub(super) fn count_copy(&self) {
        self.copies.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of copies that were sent to key-services.
    pub(super) fn copies(&self) -> u32 {
        self.copies.load(Ordering::Relaxed)
    }
}

/// The queue shared by all sessions.
pub(super) struct Queue {
    state: Mutex<QueueState>,
    /// Wakers of idle sessions.
    wakers: Vec<Notify>,
    permits: Semaphore,
}

struct QueueState {
    waiting: VecDeque<Arc<Pending>>,
    sessions: Vec<SessionState>,
    closed: bool,
}

/// Activity of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    /// Waiting for calls.
    Idle,
    /// A frame in flight; more calls are taken once that is answered.
    Busy,
    /// Not connected, or without answers for too long.
    Away,
}

/// The next work of a session.
pub(super) enum Work {
    /// A frame of at least one call.
    Frame(Vec<Arc<Pending>>),
    /// No calls; the session will be woken.
    Wait,
    /// The queue is closed.
    End,
}

impl Queue {
    /// A queue for `sessions` sessions, all away.
    pub(super) fn new(sessions: usize) -> Self {
        let sessions = vec![SessionState::Away; sessions];
        Self {
            wakers: sessions.iter().map(|_| Notify::new()).collect(),
            state: Mutex::new(QueueState { waiting: VecDeque::new(), sessions, closed: false }),
            permits: Semaphore::new(MAX_CALLS),
        }
    }

    /// A permit for a call, kept until the answer.
    pub(super) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.acquire().await.ok()
    }

    /// Adds a call.
    pub(super) fn push(&self, pending: Arc<Pending>) {
        let mut state = self.state.lock();
        if state.waiting.len() >= 2 * MAX_CALLS {
            // At least half of the waiting calls are abandoned.
            state.waiting.retain(|pending| pending.is_wanted());
        }
        state.waiting.push_back(pending);
        self.notify(state);
    }

    /// The next frame for this session, which has none in flight.
    pub(super) fn take(&self, session: usize) -> Work {
        let mut state = self.state.lock();
        if state.closed {
            return Work::End;
        }
        let mut calls = Vec::with_capacity(state.waiting.len().min(MAX_FRAME_CALLS));
        while calls.len() < MAX_FRAME_CALLS
            && let Some(pending) = state.waiting.pop_front()
        {
            if pending.is_wanted() {
                calls.push(pending);
            }
        }
        if calls.is_empty() {
            state.sessions[session] = SessionState::Idle;
            return Work::Wait;
        }
        state.sessions[session] = SessionState::Busy;
        self.notify(state);
        Work::Frame(calls)
    }

    /// Marks the session as away, and puts the unanswered calls in front of all others.
    pub(super) fn requeue(&self, session: usize, unanswered: Vec<Arc<Pending>>) {
        let mut state = self.state.lock();
        state.sessions[session] = SessionState::Away;
        for pending in unanswered.into_iter().rev() {
            state.waiting.push_front(pending);
        }
        self.notify(state);
    }

    /// Marks the session as away, unless all others are away too.
    pub(super) fn yield_to_others(&self, session: usize) -> bool {
        let others =
            |(other, state): (usize, &SessionState)| other != session && *state != SessionState::Away;
        let any = self.state.lock().sessions.iter().enumerate().any(others);
        if any {
            self.requeue(session, Vec::new());
        }
        any
    }

    /// Returns when there may be a frame for this session.
    pub(super) async fn woken(&self, session: usize) {
        self.wakers[session].notified().await;
    }

    /// Closes the queue: the sessions end.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.wakers.iter().for_each(Notify::notify_one);
    }

    /// Returns whether the queue is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// The number of sessions that wait for calls.
    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        self.state.lock().sessions.iter().filter(|state| **state == SessionState::Idle).count()
    }

    /// Wakes an idle session if calls wait that no busy session will take soon.
    fn notify(&self, state: MutexGuard<'_, QueueState>) {
        let busy = state.sessions.contains(&SessionState::Busy);
        let threshold = if busy { SECOND_FRAME_THRESHOLD } else { 1 };
        let idle = state.sessions.iter().position(|state| *state == SessionState::Idle);
        let due = state.waiting.len() >= threshold;
        drop(state);
        if let Some(idle) = idle.filter(|_| due) {
            self.wakers[idle].notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::{key::Class, refusal::Refusal};

    use super::*;

    type Receiver = oneshot::Receiver<Answered>;

    fn ask(queue: &Queue) -> Receiver {
        let call = Call::Authenticate { credential: String::new(), required: Class::Api };
        let (pending, answered) = Pending::new(Arc::new(call), Span::default());
        queue.push(pending);
        answered
    }

    fn ask_many(queue: &Queue, calls: usize) -> Vec<Receiver> {
        (0..calls).map(|_| ask(queue)).collect()
    }

    fn take(queue: &Queue, session: usize) -> Vec<Arc<Pending>> {
        match queue.take(session) {
            Work::Frame(calls) => calls,
            Work::Wait | Work::End => Vec::new(),
        }
    }

    /// A queue with sessions that wait for calls.
    fn idle(sessions: usize) -> Queue {
        let queue = Queue::new(sessions);
        assert!((0..sessions).all(|session| take(&queue, session).is_empty()));
        queue
    }

    async fn is_woken(queue: &Queue, session: usize) -> bool {
        tokio::select! {
            biased;
            () = queue.woken(session) => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn one_session_does_it_all_while_it_can() {
        let queue = idle(2);
        let _first = ask(&queue);
        assert!(is_woken(&queue, 0).await);
        assert_eq!(take(&queue, 0).len(), 1);
        let _more = ask_many(&queue, SECOND_FRAME_THRESHOLD - 1);
        assert!(!is_woken(&queue, 0).await && !is_woken(&queue, 1).await, "it comes back for them by itself");
        assert_eq!(take(&queue, 0).len(), SECOND_FRAME_THRESHOLD - 1);
    }

    #[tokio::test]
    async fn under_load_every_session_has_its_part() {
        let queue = idle(2);
        let _first = ask(&queue);
        assert_eq!(take(&queue, 0).len(), 1);
        let _more = ask_many(&queue, SECOND_FRAME_THRESHOLD);
        assert!(is_woken(&queue, 1).await);
        assert_eq!(take(&queue, 1).len(), SECOND_FRAME_THRESHOLD);
    }

    #[tokio::test]
    async fn unanswered_calls_of_a_session_go_to_another_at_once_and_first() {
        let queue = idle(2);
        let _left = ask(&queue);
        queue.woken(0).await;
        let left = take(&queue, 0);
        let _later = ask(&queue);
        queue.requeue(0, left.clone());
        assert!(is_woken(&queue, 1).await);
        let calls = take(&queue, 1);
        assert!(calls.len() == 2 && Arc::ptr_eq(&calls[0], &left[0]));
        let _next = ask(&queue);
        assert!(!is_woken(&queue, 0).await, "nothing is expected of one that is away");
    }

    #[tokio::test]
    async fn the_first_answer_counts_and_calls_that_were_given_up_are_not_sent() {
        let queue = idle(1);
        let (mut answered, given_up) = (ask(&queue), ask(&queue));
        drop(given_up);
        let calls = take(&queue, 0);
        assert_eq!(calls.len(), 1);
        let response = || Ok(Answer::Authenticated(Err(Refusal::InvalidApiKey.into())));
        queue.requeue(0, calls.clone());
        assert!(calls[0].answer(response()) && answered.try_recv().is_ok());
        assert!(!calls[0].answer(response()));
        assert!(take(&queue, 0).is_empty(), "it was answered after all");
    }

    #[tokio::test]
    async fn a_failing_session_yields_only_if_another_one_is_connected() {
        let queue = idle(2);
        assert!(queue.yield_to_others(0));
        assert!(!queue.yield_to_others(1), "the last one is asked all the same");
    }
}
