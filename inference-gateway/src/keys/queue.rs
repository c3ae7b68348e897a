//! Calls that wait for a key-service, and which session takes them.
//!
//! There is one queue for all sessions. A session takes what waits when it is free to send it, so that one that is away
//! gets nothing, and what it leaves unanswered goes to whoever is free next.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use shared::rpc::{
    MAX_FRAME_CALLS,
    v1::{answer, call},
};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot};

/// Calls that somebody waits for at once; further callers wait for room, within their deadline. As many as chat
/// requests are let in by default.
const ROOM: usize = 8 * MAX_FRAME_CALLS;
/// So many calls wait when a second session joins in while another is busy. Below it, one large frame costs the store
/// less than two small ones, and waiting for it costs a call less than a millisecond.
const ENOUGH_FOR_ANOTHER: usize = MAX_FRAME_CALLS / 8;

/// A call that waits for its answer. Copies may be with several key-services: the first answer counts.
pub(super) struct Pending {
    /// What is asked.
    pub(super) request: call::Request,
    answer: Mutex<Option<oneshot::Sender<answer::Response>>>,
    sent: AtomicBool,
}

impl Pending {
    /// A call, and where its answer will be.
    pub(super) fn new(request: call::Request) -> (Arc<Self>, oneshot::Receiver<answer::Response>) {
        let (answer, answered) = oneshot::channel();
        let pending = Self { request, answer: Mutex::new(Some(answer)), sent: AtomicBool::new(false) };
        (Arc::new(pending), answered)
    }

    /// Whether somebody still waits for an answer.
    pub(super) fn is_wanted(&self) -> bool {
        locked(&self.answer).as_ref().is_some_and(|answer| !answer.is_closed())
    }

    /// Gives the answer to whoever waits; gives it back where nobody does (any more).
    pub(super) fn answer(&self, response: answer::Response) -> Result<(), answer::Response> {
        match locked(&self.answer).take() {
            Some(answer) => answer.send(response),
            None => Err(response),
        }
    }

    /// It leaves for a key-service.
    pub(super) fn leave(&self) {
        self.sent.store(true, Ordering::Relaxed);
    }

    /// Whether a key-service may have heard of it.
    pub(super) fn was_sent(&self) -> bool {
        self.sent.load(Ordering::Relaxed)
    }
}

/// What all sessions take from.
pub(super) struct Queue {
    state: Mutex<State>,
    /// What wakes each session while it has nothing to do.
    bells: Vec<Notify>,
    room: Semaphore,
}

struct State {
    waiting: VecDeque<Arc<Pending>>,
    sessions: Vec<Standing>,
    closed: bool,
}

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Waits for calls.
    Idle,
    /// Has sent a frame, and comes back for more once that is answered.
    Busy,
    /// There is none, or it is silent: nothing is to be expected of it.
    Away,
}

/// What a session gets to do.
pub(super) enum Work {
    /// These calls, at least one.
    Calls(Vec<Arc<Pending>>),
    /// Nothing; it will be woken.
    Wait,
    /// Nothing any more.
    End,
}

impl Queue {
    /// A queue for so many sessions, all of them away.
    pub(super) fn new(sessions: usize) -> Self {
        let sessions = vec![Standing::Away; sessions];
        Self {
            bells: sessions.iter().map(|_| Notify::new()).collect(),
            state: Mutex::new(State { waiting: VecDeque::new(), sessions, closed: false }),
            room: Semaphore::new(ROOM),
        }
    }

    /// Room for one call, to be kept for as long as its answer is waited for.
    pub(super) async fn room(&self) -> Option<SemaphorePermit<'_>> {
        self.room.acquire().await.ok()
    }

    /// Adds a call.
    pub(super) fn push(&self, pending: Arc<Pending>) {
        let mut state = locked(&self.state);
        if state.waiting.len() >= 2 * ROOM {
            // At least half of them have been given up.
            state.waiting.retain(|pending| pending.is_wanted());
        }
        state.waiting.push_back(pending);
        self.ring(state);
    }

    /// The next frame of this session, which has none under way.
    pub(super) fn take(&self, session: usize) -> Work {
        let mut state = locked(&self.state);
        if state.closed {
            return Work::End;
        }
        let mut calls = Vec::new();
        while calls.len() < MAX_FRAME_CALLS
            && let Some(pending) = state.waiting.pop_front()
        {
            if pending.is_wanted() {
                calls.push(pending);
            }
        }
        if calls.is_empty() {
            state.sessions[session] = Standing::Idle;
            return Work::Wait;
        }
        state.sessions[session] = Standing::Busy;
        self.ring(state);
        Work::Calls(calls)
    }

    /// Nothing is to be expected of this session for now. What it has not answered comes before everything else.
    pub(super) fn step_back(&self, session: usize, unanswered: Vec<Arc<Pending>>) {
        let mut state = locked(&self.state);
        state.sessions[session] = Standing::Away;
        for pending in unanswered.into_iter().rev() {
            state.waiting.push_front(pending);
        }
        self.ring(state);
    }

    /// Steps back like [`Queue::step_back`], unless there is nobody else to go to.
    pub(super) fn give_way(&self, session: usize) -> bool {
        let others = |(other, standing): (usize, &Standing)| other != session && *standing != Standing::Away;
        let someone = locked(&self.state).sessions.iter().enumerate().any(others);
        if someone {
            self.step_back(session, Vec::new());
        }
        someone
    }

    /// Returns when there may be something to do for this session.
    pub(super) async fn woken(&self, session: usize) {
        self.bells[session].notified().await;
    }

    /// Nobody asks any more.
    pub(super) fn close(&self) {
        locked(&self.state).closed = true;
        self.bells.iter().for_each(Notify::notify_one);
    }

    /// Whether nobody asks any more.
    pub(super) fn is_closed(&self) -> bool {
        locked(&self.state).closed
    }

    /// Sessions that wait for calls.
    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        locked(&self.state).sessions.iter().filter(|standing| **standing == Standing::Idle).count()
    }

    /// Wakes a session if there is something to do that no busy one does soon.
    fn ring(&self, state: MutexGuard<'_, State>) {
        let busy = state.sessions.contains(&Standing::Busy);
        let enough = if busy { ENOUGH_FOR_ANOTHER } else { 1 };
        let idle = state.sessions.iter().position(|standing| *standing == Standing::Idle);
        let due = state.waiting.len() >= enough;
        drop(state);
        if let Some(idle) = idle.filter(|_| due) {
            self.bells[idle].notify_one();
        }
    }
}

/// A lock that a panic elsewhere does not take away: what it guards is changed in single steps.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use shared::rpc::v1::{AuthenticateRequest, AuthenticateResponse};

    use super::*;

    type Answered = oneshot::Receiver<answer::Response>;

    fn ask(queue: &Queue) -> Answered {
        let (pending, answered) = Pending::new(call::Request::Authenticate(AuthenticateRequest::default()));
        queue.push(pending);
        answered
    }

    fn ask_many(queue: &Queue, calls: usize) -> Vec<Answered> {
        (0..calls).map(|_| ask(queue)).collect()
    }

    fn take(queue: &Queue, session: usize) -> Vec<Arc<Pending>> {
        match queue.take(session) {
            Work::Calls(calls) => calls,
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
        let _more = ask_many(&queue, ENOUGH_FOR_ANOTHER - 1);
        assert!(!is_woken(&queue, 0).await && !is_woken(&queue, 1).await, "it comes back for them by itself");
        assert_eq!(take(&queue, 0).len(), ENOUGH_FOR_ANOTHER - 1);
    }

    #[tokio::test]
    async fn under_load_every_session_has_its_part() {
        let queue = idle(2);
        let _first = ask(&queue);
        assert_eq!(take(&queue, 0).len(), 1);
        let _more = ask_many(&queue, ENOUGH_FOR_ANOTHER);
        assert!(is_woken(&queue, 1).await);
        assert_eq!(take(&queue, 1).len(), ENOUGH_FOR_ANOTHER);
    }

    #[tokio::test]
    async fn what_a_session_leaves_unanswered_goes_to_another_at_once_and_first() {
        let queue = idle(2);
        let _left = ask(&queue);
        queue.woken(0).await;
        let left = take(&queue, 0);
        let _later = ask(&queue);
        queue.step_back(0, left.clone());
        assert!(is_woken(&queue, 1).await);
        let calls = take(&queue, 1);
        assert!(calls.len() == 2 && Arc::ptr_eq(&calls[0], &left[0]));
        let _next = ask(&queue);
        assert!(!is_woken(&queue, 0).await, "nothing is expected of one that is away");
    }

    #[tokio::test]
    async fn the_first_answer_counts_and_what_nobody_waits_for_is_not_sent() {
        let queue = idle(1);
        let (mut answered, given_up) = (ask(&queue), ask(&queue));
        drop(given_up);
        let calls = take(&queue, 0);
        assert_eq!(calls.len(), 1);
        let response = || answer::Response::Authenticate(AuthenticateResponse::default());
        queue.step_back(0, calls.clone());
        assert!(calls[0].answer(response()).is_ok() && answered.try_recv().is_ok());
        assert!(calls[0].answer(response()).is_err());
        assert!(take(&queue, 0).is_empty(), "it was answered after all");
    }

    #[tokio::test]
    async fn whoever_fails_gives_way_only_to_somebody() {
        let queue = idle(2);
        assert!(queue.give_way(0));
        assert!(!queue.give_way(1), "the last one is asked all the same");
    }
}
