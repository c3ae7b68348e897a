//! Queue of calls to the key-services. It decides which session sends a call.
//!
//! A session takes waiting calls when it is free to send. So a disconnected session takes no calls, and its unanswered
//! calls go to the next free session. A call whose account is known waits for the key-service that all gateways prefer
//! for that account, since that key-service has copies of the account's records. After [`SPILL_AFTER`], any session
//! takes the call. This affects only speed, not correctness.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use shared::ids::AccountId;
use shared_observe::traces::Span;
use shared_rpc::{Answer, Call, CallFailure, MAX_FRAME_CALLS};
use tokio::{
    sync::{Notify, Semaphore, SemaphorePermit, oneshot},
    time::{Instant, timeout_at},
};

/// Maximum number of calls awaiting answers at once: the default bound on chat requests. Further callers wait for a
/// permit.
const MAX_CALLS: usize = 8 * MAX_FRAME_CALLS;
/// Queue length from which an idle session sends a frame although another frame is in flight. With fewer calls it is
/// better to wait: one large frame is cheaper for the store than two small frames, and a waiting call is delayed by
/// less than a millisecond.
const SECOND_FRAME_THRESHOLD: usize = MAX_FRAME_CALLS / 8;

/// How long a call waits for the key-service that is preferred for its account.
const SPILL_AFTER: Duration = Duration::from_millis(50);

pub(super) type Answered = Result<Answer, CallFailure>;

/// A call that waits for its answer. Copies of the call may have been sent to several key-services. The first answer
/// counts; a failure counts only if no other copy can still be answered.
pub(super) struct Pending {
    pub(super) call: Arc<Call>,
    pub(super) span: Span,
    account: Option<AccountId>,
    made_at: Instant,
    answer: Mutex<Option<oneshot::Sender<Answered>>>,
    copies: AtomicU32,
    /// Number of unanswered copies. A call that waits to be sent counts as one copy.
    left: AtomicU32,
    /// A bit for each session that has sent the call, so that the call is passed on to each session at most once.
    sent_by: AtomicU64,
}

impl Pending {
    /// Makes a pending call, and the receiver of its answer.
    pub(super) fn new(
        call: Arc<Call>,
        span: Span,
        account: Option<AccountId>,
    ) -> (Arc<Self>, oneshot::Receiver<Answered>) {
        let (answer, answered) = oneshot::channel();
        let (answer, made_at) = (Mutex::new(Some(answer)), Instant::now());
        let (copies, left, sent_by) = (AtomicU32::new(0), AtomicU32::new(1), AtomicU64::new(0));
        (Arc::new(Self { call, span, account, made_at, answer, copies, left, sent_by }), answered)
    }

    /// Returns the time from which any session may take the call.
    fn spills_at(&self) -> Instant {
        self.made_at + SPILL_AFTER
    }

    /// Returns whether a caller still waits for an answer.
    pub(super) fn is_wanted(&self) -> bool {
        self.answer.lock().as_ref().is_some_and(|answer| !answer.is_closed())
    }

    /// Delivers the answer to the caller. Returns whether a caller was waiting.
    pub(super) fn answer(&self, answered: Answered) -> bool {
        let waiting = self.answer.lock().take();
        waiting.is_some_and(|waiting| waiting.send(answered).is_ok())
    }

    /// Delivers the failure of a copy to the caller if this was the last unanswered copy. Returns whether a caller was
    /// waiting for it.
    pub(super) fn copy_failed(&self, failure: CallFailure) -> bool {
        self.left.fetch_sub(1, Ordering::AcqRel) == 1 && self.answer(Err(failure))
    }

    /// Drops a copy that will not be answered. The last copy is not dropped, because it must be sent again; then this
    /// returns false.
    fn give_up_copy(&self) -> bool {
        let others = |left: u32| (left > 1).then(|| left - 1);
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, others).is_ok()
    }

    /// Adds a copy for a session. Returns false if the session has already sent the call.
    fn add_copy(&self, session: usize) -> bool {
        let is_new = self.sent_by.fetch_or(bit(session), Ordering::AcqRel) & bit(session) == 0;
        if is_new {
            self.left.fetch_add(1, Ordering::AcqRel);
        }
        is_new
    }

    fn was_sent_by(&self, session: usize) -> bool {
        self.sent_by.load(Ordering::Acquire) & bit(session) != 0
    }

    /// Counts a copy that a session sends to its key-service.
    pub(super) fn count_copy(&self, session: usize) {
        self.sent_by.fetch_or(bit(session), Ordering::AcqRel);
        self.copies.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of copies that were sent to key-services.
    pub(super) fn copies(&self) -> u32 {
        self.copies.load(Ordering::Relaxed)
    }
}

/// The queue shared by all sessions.
pub(super) struct Queue {
    state: Mutex<QueueState>,
    /// Wakes idle sessions, by session number.
    wakers: Vec<Notify>,
    permits: Semaphore,
}

struct QueueState {
    /// Calls that any session may take.
    waiting: VecDeque<Arc<Pending>>,
    sessions: Vec<SessionOf>,
    closed: bool,
}

/// A session, as the queue sees it.
struct SessionOf {
    state: SessionState,
    /// The key-service's own id; zero until it is known.
    instance: u64,
    /// Calls for which this session's key-service is preferred.
    waiting: VecDeque<Arc<Pending>>,
    /// Slow calls that were passed on from other sessions, and that only this session can still take.
    passed_on: VecDeque<Arc<Pending>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    Idle,
    /// The session waits for calls, and for the time when it may take calls that wait for another session.
    Watching,
    /// A frame is in flight. Once this frame is answered, or proves slow, the session takes more calls.
    Busy,
    /// The session is not connected, or got no answers for too long.
    Away,
}

/// What a session does next.
pub(super) enum Work {
    /// A frame of at least one call.
    Frame(Vec<Arc<Pending>>),
    /// Wait to be woken, at most until this time. From then on, the session may take calls that wait for other
    /// sessions.
    Wait(Option<Instant>),
    End,
}

impl Queue {
    /// Makes a queue for `sessions` sessions. Each counts as away until it is connected.
    pub(super) fn new(sessions: usize) -> Self {
        let away = |_| SessionOf {
            state: SessionState::Away,
            instance: 0,
            waiting: VecDeque::new(),
            passed_on: VecDeque::new(),
        };
        let sessions: Vec<_> = (0..sessions).map(away).collect();
        Self {
            wakers: sessions.iter().map(|_| Notify::new()).collect(),
            state: Mutex::new(QueueState { waiting: VecDeque::new(), sessions, closed: false }),
            permits: Semaphore::new(MAX_CALLS),
        }
    }

    /// Records the id of a session's key-service.
    pub(super) fn met(&self, session: usize, instance: u64) {
        self.state.lock().sessions[session].instance = instance;
    }

    /// Takes a permit for a call. The permit is held until the call is answered.
    pub(super) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.acquire().await.ok()
    }

    pub(super) fn push(&self, pending: Arc<Pending>) {
        let mut state = self.state.lock();
        let preferred = pending.account.and_then(|account| state.preferred(account));
        let waiting = match preferred {
            Some(session) => &mut state.sessions[session].waiting,
            None => &mut state.waiting,
        };
        enqueue(waiting, pending);
        self.notify(state);
    }

    /// Takes the next frame for this session.
    pub(super) fn take(&self, session: usize) -> Work {
        let mut state = self.state.lock();
        if state.closed {
            return Work::End;
        }
        let calls = state.take(session, Instant::now());
        if calls.is_empty() {
            let spill = state.next_spill(session);
            let waits = if spill.is_some() { SessionState::Watching } else { SessionState::Idle };
            state.sessions[session].state = waits;
            return Work::Wait(spill);
        }
        state.sessions[session].state = SessionState::Busy;
        self.notify(state);
        Work::Frame(calls)
    }

    /// Marks the session as away. Puts each of its unanswered calls at the head of the queue, unless another copy of
    /// the call is in flight.
    pub(super) fn requeue(&self, session: usize, unanswered: Vec<Arc<Pending>>) {
        let mut state = self.state.lock();
        state.sessions[session].state = SessionState::Away;
        let own = std::mem::take(&mut state.sessions[session].waiting);
        let unanswered = unanswered.into_iter().filter(|pending| !pending.give_up_copy());
        for pending in unanswered.chain(own).rev() {
            state.waiting.push_front(pending);
        }
        self.notify(state);
    }

    /// Offers each of these calls to another session that has not sent the call: preferably a connected session,
    /// otherwise one that may connect later. The copy counts only once it is sent. Until then, if all other copies
    /// fail, the failure is delivered as the answer.
    pub(super) fn pass_on(&self, session: usize, calls: Vec<Arc<Pending>>) {
        let mut state = self.state.lock();
        let count = state.sessions.len();
        for pending in calls {
            let others = (1..count).map(|step| (session + step) % count);
            let untried = others.filter(|other| !pending.was_sent_by(*other));
            let is_away = |other: &usize| state.sessions[*other].state == SessionState::Away;
            if let Some(other) = untried.min_by_key(is_away) {
                enqueue(&mut state.sessions[other].passed_on, pending);
            }
        }
        self.notify(state);
    }

    /// Marks the session as away, unless all other sessions are away too. Returns whether the session was marked.
    pub(super) fn yield_to_others(&self, session: usize) -> bool {
        let others = |(other, of): (usize, &SessionOf)| other != session && of.state != SessionState::Away;
        let any = self.state.lock().sessions.iter().enumerate().any(others);
        if any {
            self.requeue(session, Vec::new());
        }
        any
    }

    /// Waits until there may be a frame for this session.
    pub(super) async fn woken(&self, session: usize, spill: Option<Instant>) {
        let notified = self.wakers[session].notified();
        match spill {
            // From the time `spill` on, calls that wait for another session may make up a frame.
            Some(spill) => drop(timeout_at(spill, notified).await),
            None => notified.await,
        }
    }

    /// Closes the queue. This ends the sessions.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.wakers.iter().for_each(Notify::notify_one);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Returns the number of sessions that wait for calls.
    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        self.state.lock().sessions.iter().filter(|of| of.state == SessionState::Idle).count()
    }

    /// Wakes an idle session if there are calls that no busy session will take soon.
    fn notify(&self, state: MutexGuard<'_, QueueState>) {
        let due = state.due();
        drop(state);
        for session in due.into_iter().flatten() {
            self.wakers[session].notify_one();
        }
    }
}

impl QueueState {
    /// Finds the session whose key-service is preferred for the account. All gateways that are connected to the same
    /// key-services prefer the same key-service.
    fn preferred(&self, account: AccountId) -> Option<usize> {
        let mut id = [0; 8];
        id.copy_from_slice(&account.as_bytes()[8..]);
        let account = u64::from_be_bytes(id);
        let known = self.sessions.iter().enumerate();
        let known = known.filter(|(_, of)| of.instance != 0 && of.state != SessionState::Away);
        known.max_by_key(|(_, of)| mixed(account ^ of.instance)).map(|(session, _)| session)
    }

    /// Takes the calls passed on to this session, its own calls, calls for any session, and calls that other sessions
    /// left waiting for too long.
    fn take(&mut self, session: usize, now: Instant) -> Vec<Arc<Pending>> {
        let SessionOf { waiting: own, passed_on, .. } = &mut self.sessions[session];
        let own = std::mem::take(own);
        let most = passed_on.len() + own.len() + self.waiting.len();
        let mut calls = Vec::with_capacity(most.min(MAX_FRAME_CALLS));
        while calls.len() < MAX_FRAME_CALLS
            && let Some(pending) = passed_on.pop_front()
        {
            if pending.is_wanted() && pending.add_copy(session) {
                calls.push(pending);
            }
        }
        let mut own = fill(&mut calls, own, |_| true);
        self.waiting = fill(&mut calls, std::mem::take(&mut self.waiting), |_| true);
        std::mem::swap(&mut self.sessions[session].waiting, &mut own);
        for (other, of) in self.sessions.iter_mut().enumerate() {
            if other != session && !of.waiting.is_empty() {
                of.waiting =
                    fill(&mut calls, std::mem::take(&mut of.waiting), |call| call.spills_at() <= now);
            }
        }
        calls
    }

    /// Returns the time from which this session may take the oldest call that waits for another session.
    fn next_spill(&self, session: usize) -> Option<Instant> {
        let others = self.sessions.iter().enumerate().filter(|(other, _)| *other != session);
        others.filter_map(|(_, of)| of.waiting.front()).map(|call| call.spills_at()).min()
    }

    /// Returns the sessions to wake: a session for which calls wait, and a session that takes calls for any session or
    /// watches the calls that wait for a busy session.
    fn due(&self) -> [Option<usize>; 2] {
        let idle = |of: &SessionOf| matches!(of.state, SessionState::Idle | SessionState::Watching);
        let has_own = |of: &SessionOf| idle(of) && !(of.waiting.is_empty() && of.passed_on.is_empty());
        let own = self.sessions.iter().position(has_own);
        let busy = self.sessions.iter().any(|of| of.state == SessionState::Busy);
        let threshold = if busy { SECOND_FRAME_THRESHOLD } else { 1 };
        let leaves = |of: &SessionOf| of.state == SessionState::Busy && !of.waiting.is_empty();
        let is_watched = self.sessions.iter().any(|of| of.state == SessionState::Watching);
        let any = if self.waiting.len() >= threshold {
            self.sessions.iter().position(idle)
        } else if !is_watched && self.sessions.iter().any(leaves) {
            self.sessions.iter().position(|of| of.state == SessionState::Idle)
        } else {
            None
        };
        [own, any.filter(|any| own != Some(*any))]
    }
}

/// Adds a call to a queue. Abandoned calls are dropped once they are the majority, so the number of waiting callers
/// bounds the queue's length.
fn enqueue(waiting: &mut VecDeque<Arc<Pending>>, pending: Arc<Pending>) {
    if waiting.len() >= 2 * MAX_CALLS {
        // At least half of the waiting calls are abandoned, so drop those.
        waiting.retain(|pending| pending.is_wanted());
    }
    waiting.push_back(pending);
}

/// Returns a session's bit. If two sessions share a bit, a call that one of them has sent is not passed on to the
/// other.
const fn bit(session: usize) -> u64 {
    1 << (session % 64)
}

/// Fills a frame with calls that are still wanted and may be taken. Keeps the rest.
fn fill(
    calls: &mut Vec<Arc<Pending>>,
    mut waiting: VecDeque<Arc<Pending>>,
    may_take: impl Fn(&Pending) -> bool,
) -> VecDeque<Arc<Pending>> {
    while calls.len() < MAX_FRAME_CALLS
        && let Some(pending) = waiting.pop_front_if(|pending| may_take(pending) || !pending.is_wanted())
    {
        if pending.is_wanted() {
            calls.push(pending);
        }
    }
    waiting
}

/// Mixes the bits of a number like `splitmix64`.
const fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use shared::{key::Class, refusal::Refusal, time::Timestamp};

    use super::*;

    type Receiver = oneshot::Receiver<Answered>;

    fn ask(queue: &Queue) -> Receiver {
        ask_for(queue, None)
    }

    fn ask_for(queue: &Queue, account: Option<AccountId>) -> Receiver {
        let call = Call::Authenticate { credential: String::new(), required: Class::Api };
        let (pending, answered) = Pending::new(Arc::new(call), Span::default(), account);
        queue.push(pending);
        answered
    }

    fn account(n: u8) -> AccountId {
        AccountId::new(Timestamp::from_millis(0), [n; 10])
    }

    fn ask_many(queue: &Queue, calls: usize) -> Vec<Receiver> {
        (0..calls).map(|_| ask(queue)).collect()
    }

    fn take(queue: &Queue, session: usize) -> Vec<Arc<Pending>> {
        match queue.take(session) {
            Work::Frame(calls) => calls,
            Work::Wait(_) | Work::End => Vec::new(),
        }
    }

    /// Makes a queue whose sessions wait for calls.
    fn idle(sessions: usize) -> Queue {
        let queue = Queue::new(sessions);
        assert!((0..sessions).all(|session| take(&queue, session).is_empty()));
        queue
    }

    async fn is_woken(queue: &Queue, session: usize) -> bool {
        tokio::select! {
            biased;
            () = queue.woken(session, None) => true,
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
        queue.woken(0, None).await;
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

    /// Takes the next frame of a session and treats it as sent.
    fn send(queue: &Queue, session: usize) -> Vec<Arc<Pending>> {
        let calls = take(queue, session);
        for call in &calls {
            call.count_copy(session);
        }
        calls
    }

    fn failure() -> CallFailure {
        CallFailure { code: tonic::Code::Unavailable, message: "the store is away".into() }
    }

    #[tokio::test]
    async fn a_slow_call_is_passed_on_to_every_other_session_once_and_fails_with_its_last_copy() {
        let queue = idle(3);
        let mut answered = ask(&queue);
        let slow = send(&queue, 0);
        queue.pass_on(0, slow.clone());
        assert!(send(&queue, 0).is_empty() && send(&queue, 2).is_empty(), "one other session takes it");
        assert_eq!(send(&queue, 1).len(), 1);
        queue.pass_on(1, slow.clone());
        assert!(send(&queue, 0).is_empty());
        assert_eq!(send(&queue, 2).len(), 1);
        queue.pass_on(2, slow.clone());
        assert!((0..3).all(|session| send(&queue, session).is_empty()), "all have it");
        assert!(!slow[0].copy_failed(failure()));
        queue.requeue(1, slow.clone());
        assert!(send(&queue, 2).is_empty(), "a copy is in flight");
        assert!(answered.try_recv().is_err());
        assert!(slow[0].copy_failed(failure()));
        assert_eq!(answered.try_recv().unwrap().unwrap_err(), failure());
    }

    #[tokio::test]
    async fn a_slow_call_is_offered_to_a_session_that_is_away_and_its_failure_does_not_wait_for_it() {
        let queue = idle(2);
        let (_slow, mut failing) = (ask(&queue), ask(&queue));
        let slow = send(&queue, 0);
        queue.requeue(1, Vec::new());
        queue.pass_on(0, slow.clone());
        assert!(slow[1].copy_failed(failure()) && failing.try_recv().unwrap().is_err());
        assert_eq!(send(&queue, 1).len(), 1, "once it is back");
        let alone = idle(1);
        let mut answered = ask(&alone);
        let slow = send(&alone, 0);
        alone.pass_on(0, slow.clone());
        assert!(send(&alone, 0).is_empty(), "there is no other");
        assert!(slow[0].copy_failed(failure()) && answered.try_recv().unwrap().is_err());
    }

    #[tokio::test]
    async fn every_gateway_prefers_the_same_key_service_for_an_account() {
        let (one, other) = (idle(3), idle(3));
        for (session, instance) in [(0, 7), (1, 8), (2, 9)] {
            one.met(session, instance);
            other.met(2 - session, instance);
        }
        let mut taken = [0; 3];
        for n in 0..60 {
            let (_first, _second) = (ask_for(&one, Some(account(n))), ask_for(&other, Some(account(n))));
            let session = (0..3).find(|session| !take(&one, *session).is_empty()).unwrap();
            assert_eq!(take(&other, 2 - session).len(), 1, "{n}");
            taken[session] += 1;
        }
        assert!(taken.iter().all(|taken| *taken > 5), "{taken:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_the_preferred_key_service_and_spills_over() {
        let queue = idle(2);
        queue.met(0, 7);
        queue.met(1, 8);
        let _call = ask_for(&queue, Some(account(1)));
        let preferred = (0..2).find(|session| !take(&queue, *session).is_empty()).unwrap();
        let other = 1 - preferred;
        let _next = ask_for(&queue, Some(account(1)));
        assert!(is_woken(&queue, other).await, "it watches");
        let Work::Wait(Some(spill)) = queue.take(other) else { panic!("it is too early") };
        let _third = ask_for(&queue, Some(account(1)));
        assert!(!is_woken(&queue, other).await, "it watches already");
        queue.woken(other, Some(spill)).await;
        assert_eq!(take(&queue, other).len(), 2);
    }

    #[tokio::test]
    async fn the_calls_of_a_key_service_that_goes_away_are_taken_by_others() {
        let queue = idle(2);
        queue.met(0, 7);
        queue.met(1, 8);
        let _calls: Vec<_> = (0..8).map(|n| ask_for(&queue, Some(account(n)))).collect();
        queue.requeue(0, Vec::new());
        assert_eq!(take(&queue, 1).len(), 8);
    }
}
