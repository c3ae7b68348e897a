//! State of a connection for the server: requests, progress, and the deadline.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};

use super::{
    Bounds, Caller,
    admission::Admission,
    group::Network,
    response::{ResponseState, WatchedBody, WatchedBodyOptions},
};

/// Bytes of a request's head that weigh as much as another request: the head may stay in memory until the answer.
const HEAD_BYTES_OF_A_REQUEST: usize = 3 << 10;

/// Step that a connection did not do in time. The names are labels of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// No whole head of a first request.
    Head,
    /// No request in flight.
    Idle,
    /// An answer that the client takes too slowly or not at all.
    Unread,
}

impl Overdue {
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Idle => "idle",
            Self::Unread => "unread",
        }
    }
}

/// State shared by a connection's task, the requests and the admission.
pub(super) struct Connection {
    /// Place in the order of admission.
    pub(super) number: u64,
    /// Network of the peer, which owns the connection until a credential is accepted.
    pub(super) network: Network,
    admission: Arc<Admission>,
    opened: Instant,
    state: Mutex<ConnectionState>,
    /// Since when a write waits, in milliseconds after `opened` and never 0; 0 while none does.
    write_waits_since: AtomicU64,
    /// When a write that had waited went on, likewise.
    write_went_on_at: AtomicU64,
    /// True once a read found no bytes: everything sent by then was read.
    found_nothing: AtomicBool,
    /// Notified on eviction.
    pub(super) evicted: Notify,
}

struct ConnectionState {
    /// True once a whole head has arrived.
    spoke: bool,
    /// First caller whose credential was accepted on the connection.
    caller: Option<Caller>,
    /// False after eviction: requests are not counted any more.
    admitted: bool,
    /// Requests whose handlers run.
    handling: usize,
    /// Weight of all requests, as the admission counts: 1 each, and more for large heads.
    load: usize,
    /// Responses neither written to the end nor given up.
    responding: Vec<Arc<ResponseState>>,
    /// The last time that a request began, or ended.
    quiet_since: Instant,
}

impl ConnectionState {
    const fn is_idle(&self) -> bool {
        self.handling == 0 && self.responding.is_empty()
    }
}

impl Connection {
    pub(super) fn new(number: u64, network: Network, admission: Arc<Admission>, now: Instant) -> Self {
        let state = ConnectionState {
            spoke: false,
            caller: None,
            admitted: true,
            handling: 0,
            load: 0,
            responding: Vec::new(),
            quiet_since: now,
        };
        Self {
            number,
            network,
            admission,
            opened: now,
            state: Mutex::new(state),
            write_waits_since: AtomicU64::new(0),
            write_went_on_at: AtomicU64::new(0),
            found_nothing: AtomicBool::new(false),
            evicted: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock()
    }

    /// Start of the idle time; `None` while the connection carries a request.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        state.is_idle().then_some(state.quiet_since)
    }

    /// Weight of the requests in flight.
    pub(super) fn load(&self) -> usize {
        self.state().load
    }

    /// Notes that a read finds nothing.
    pub(super) fn note_silence(&self) {
        self.found_nothing.store(true, Ordering::Relaxed);
    }

    /// Returns whether the connection has been idle for `time`, although everything sent was read.
    pub(super) fn is_silent_for(&self, time: Duration, now: Instant) -> bool {
        self.found_nothing.load(Ordering::Relaxed)
            && self.idle_since().is_some_and(|since| now.saturating_duration_since(since) >= time)
    }

    /// Notes whether the last write waits for the peer.
    pub(super) fn note_write(&self, waits: bool) {
        let waited = self.write_waits_since.load(Ordering::Relaxed) != 0;
        if waits == waited {
            return;
        }
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        self.write_waits_since.store(if waits { now } else { 0 }, Ordering::Relaxed);
        if waited {
            self.write_went_on_at.store(now, Ordering::Relaxed);
        }
    }

    fn instant(&self, millis: &AtomicU64) -> Option<Instant> {
        let millis = millis.load(Ordering::Relaxed);
        (millis > 0).then(|| self.opened + Duration::from_millis(millis))
    }

    /// The next time to look at the connection, or the overdue step. Overdue answers are dropped on the way, so that
    /// an abandoned answer frees its memory while others on the connection go on.
    pub(super) fn look(&self, bounds: &Bounds, now: Instant) -> Result<Instant, Overdue> {
        // Responses have separate locks, held while bodies are polled, and are checked outside the connection's lock.
        let mut responding = self.state().responding.clone();
        let longest =
            responding.iter().map(|response| response.unread_bound).fold(bounds.unread, Duration::max);
        let mut quiet_since = self.opened;
        responding.retain(|response| {
            let since = response.overdue_since(now);
            quiet_since = quiet_since.max(since.unwrap_or(quiet_since));
            since.is_some()
        });
        let overdue = responding;
        let mut state = self.state();
        // A dropped response counts until the written bytes have left the buffer.
        state.responding.retain(|response| !overdue.iter().any(|other| Arc::ptr_eq(other, response)));
        state.quiet_since = state.quiet_since.max(quiet_since);
        let (spoke, busy, quiet_since) = (state.spoke, !state.is_idle(), state.quiet_since);
        drop(state);
        for response in &overdue {
            tracing::info!("a client takes too little of its answer, which is dropped");
            response.abandon();
        }
        if overdue.iter().any(|response| response.alone) {
            return Err(Overdue::Unread);
        }
        let (deadline, overdue) = if !spoke {
            (self.opened + bounds.head, Overdue::Head)
        } else if let Some(since) = self.instant(&self.write_waits_since) {
            (since + longest, Overdue::Unread)
        } else if busy {
            return Ok(now + bounds.look_every());
        } else {
            // The last bytes of a response, in the buffers of the connection, may take longer than the body.
            let written = self.instant(&self.write_went_on_at).unwrap_or(quiet_since);
            (quiet_since.max(written) + bounds.idle, Overdue::Idle)
        };
        if deadline <= now { Err(overdue) } else { Ok(deadline.min(now + bounds.look_every())) }
    }

    /// Counts a request whose whole head, of `head_bytes`, has arrived.
    pub(super) fn begin_request(self: &Arc<Self>, head_bytes: usize) -> RequestGuard {
        let weight = 1 + head_bytes / HEAD_BYTES_OF_A_REQUEST;
        let mut state = self.state();
        state.spoke = true;
        state.handling += 1;
        state.quiet_since = Instant::now();
        self.load_more(state, weight);
        RequestGuard { connection: self.clone(), weight, handling: true }
    }

    /// Notes that a full piece of an answer waits for the client.
    pub(super) fn begin_piece(&self) {
        self.load_more(self.state(), 1);
    }

    /// Notes that a full piece was written, or given up.
    pub(super) fn end_piece(&self) {
        self.unload(&mut self.state(), 1);
    }

    /// Adds weight to the connection and to the total. Too much of it closes some connections.
    fn load_more(&self, mut state: MutexGuard<'_, ConnectionState>, weight: usize) {
        state.load += weight;
        let trusted = state.caller.is_some();
        let too_much = state.admitted && self.admission.load(trusted, weight);
        drop(state);
        if too_much {
            self.admission.relieve(trusted);
        }
    }

    /// Removes weight from the connection and from the total.
    fn unload(&self, state: &mut ConnectionState, weight: usize) {
        state.load = state.load.saturating_sub(weight);
        if state.admitted {
            self.admission.unload(state.caller.is_some(), weight);
        }
    }

    fn end_handling(&self, weight: usize) {
        let mut state = self.state();
        state.handling = state.handling.saturating_sub(1);
        self.unload(&mut state, weight);
        state.quiet_since = Instant::now();
    }

    /// Forgets a response that was written to the end, or given up with everything that waited.
    pub(super) fn end_response(&self, response: &Arc<ResponseState>) {
        let mut state = self.state();
        let before = state.responding.len();
        state.responding.retain(|other| !Arc::ptr_eq(other, response));
        if state.responding.len() < before {
            state.quiet_since = Instant::now();
        }
        self.unload(&mut state, 1);
    }

    /// First caller whose credential was accepted on the connection, if any.
    pub(super) fn caller(&self) -> Option<Caller> {
        self.state().caller
    }

    /// Notes that a credential of this caller was accepted.
    pub(super) fn trust(self: &Arc<Self>, caller: Caller) {
        // The state stays unlocked while the admission looks at connections.
        if self.caller().is_none() {
            self.admission.trust(self, caller);
        }
    }

    /// Moves the connection among those of authenticated callers, and returns the connection's load.
    pub(super) fn become_trusted(&self, caller: Caller) -> usize {
        let mut state = self.state();
        state.caller = Some(caller);
        state.load
    }

    /// Asks the connection's task to end. Returns whether the connection was authenticated, and its load, which no
    /// longer counts.
    pub(super) fn evict(&self) -> (bool, usize) {
        let mut state = self.state();
        state.admitted = false;
        let of = (state.caller.is_some(), state.load);
        drop(state);
        self.evicted.notify_one();
        of
    }
}

/// A request whose handler runs.
pub(super) struct RequestGuard {
    connection: Arc<Connection>,
    weight: usize,
    handling: bool,
}

impl RequestGuard {
    /// Body of the response, watched until the client took everything.
    pub(super) fn respond(mut self, body: Body, watch: WatchedBodyOptions) -> WatchedBody {
        let mut state = self.connection.state();
        let response = Arc::new(ResponseState::new(body, watch, state.caller.is_some()));
        state.handling = state.handling.saturating_sub(1);
        state.responding.push(response.clone());
        // The head is gone with the handler.
        self.connection.unload(&mut state, self.weight - 1);
        drop(state);
        self.handling = false;
        WatchedBody::new(response, self.connection.clone())
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if self.handling {
            self.connection.end_handling(self.weight);
        }
    }
}
