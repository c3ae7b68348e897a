//! State of a connection: its owner, its requests, and the progress of its writes. The connection reports events to the
//! register. The register makes the decisions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use shared::time::millis;
use tokio::{sync::Notify, time::Instant};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::bounds::Bounds;
use crate::admission::{Network, Owner, Snapshot};

/// This many bytes of a request's head weigh as much as another request, because the head may stay in memory until the
/// answer begins.
const HEAD_BYTES_OF_A_REQUEST: usize = 3 << 10;

/// What a connection did not do in time. The names are labels of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// The first head did not arrive completely.
    Head,
    Idle,
    /// The client read an answer too slowly, or did not read it.
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

/// Receives the events of a port's connections.
pub(super) trait ConnectionReport: Send + Sync {
    /// Adds `weight` to the load of all trusted or of all untrusted connections.
    fn loaded(&self, trusted: bool, weight: usize);

    fn unloaded(&self, trusted: bool, weight: usize);

    /// Called when a credential of this owner was accepted on a connection.
    fn trusted(&self, connection: &Arc<Connection>, owner: Owner);
}

/// State shared by a connection's task, its requests and the register.
pub(super) struct Connection {
    /// Position in the order in which connections were opened.
    pub(super) number: u64,
    pub(super) network: Network,
    report: Arc<dyn ConnectionReport>,
    opened: Instant,
    state: Mutex<PortConnectionState>,
    /// Time at which the present write began to wait, in milliseconds after `opened`, but at least 1; 0 if no write
    /// waits.
    write_waits_since: AtomicU64,
    /// Time at which a write last continued after it had waited, in the same unit.
    write_went_on_at: AtomicU64,
    /// Whether a write has begun to wait since the task last checked.
    began_to_wait: AtomicBool,
    /// Whether a read found no bytes, which means that everything that the client sent before has been read.
    found_nothing: AtomicBool,
    pub(super) evicted: Notify,
}

struct PortConnectionState {
    /// While this exists, the connection counts as arriving. It is taken when the connection's first head is complete.
    arriving: Option<TaskTrackerToken>,
    /// The connection's network, until a credential is accepted on the connection; then the owner of the first accepted
    /// credential.
    owner: Owner,
    /// False after the connection was evicted. Its requests then no longer count.
    admitted: bool,
    handling: usize,
    /// Number of responses that are neither fully written nor abandoned.
    responding: usize,
    /// Weight of all requests as the register counts it: each request weighs 1, or more if its head is large.
    load: usize,
    /// Time at which a request last began or ended.
    quiet_since: Instant,
}

impl PortConnectionState {
    const fn is_idle(&self) -> bool {
        self.handling == 0 && self.responding == 0
    }

    const fn is_trusted(&self) -> bool {
        match self.owner {
            Owner::Network(_) => false,
            Owner::Account(_) | Owner::Service => true,
        }
    }
}

impl Connection {
    pub(super) fn new(
        number: u64,
        network: Network,
        report: Arc<dyn ConnectionReport>,
        arriving: TaskTrackerToken,
        now: Instant,
    ) -> Self {
        let state = PortConnectionState {
            arriving: Some(arriving),
            owner: Owner::Network(network),
            admitted: true,
            handling: 0,
            responding: 0,
            load: 0,
            quiet_since: now,
        };
        Self {
            number,
            network,
            report,
            opened: now,
            state: Mutex::new(state),
            write_waits_since: AtomicU64::new(0),
            write_went_on_at: AtomicU64::new(0),
            began_to_wait: AtomicBool::new(false),
            found_nothing: AtomicBool::new(false),
            evicted: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, PortConnectionState> {
        self.state.lock()
    }

    pub(super) fn snapshot(&self, now: Instant) -> Snapshot {
        let state = self.state();
        let idle = state.is_idle().then(|| now.saturating_duration_since(state.quiet_since));
        let read = self.found_nothing.load(Ordering::Relaxed);
        Snapshot { number: self.number, idle, read, load: state.load }
    }

    pub(super) fn note_silence(&self) {
        self.found_nothing.store(true, Ordering::Relaxed);
    }

    /// Records whether the last write has to wait for the client.
    pub(super) fn note_write(&self, waits: bool) {
        let waited = self.write_waits_since.load(Ordering::Relaxed) != 0;
        if waits == waited {
            return;
        }
        let now = millis(self.opened.elapsed()).max(1);
        self.write_waits_since.store(if waits { now } else { 0 }, Ordering::Relaxed);
        if waited {
            self.write_went_on_at.store(now, Ordering::Relaxed);
        } else {
            self.began_to_wait.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether a write has begun to wait since the last call.
    pub(super) fn began_to_wait(&self) -> bool {
        self.began_to_wait.load(Ordering::Relaxed) && self.began_to_wait.swap(false, Ordering::Relaxed)
    }

    pub(super) fn write_waits_since(&self) -> Option<Instant> {
        self.instant(&self.write_waits_since)
    }

    fn instant(&self, millis: &AtomicU64) -> Option<Instant> {
        let millis = millis.load(Ordering::Relaxed);
        (millis > 0).then(|| self.opened + Duration::from_millis(millis))
    }

    /// Returns when to check the connection again, or what it did not do in time. A write may wait for as long as
    /// `unread`.
    pub(super) fn look(&self, bounds: &Bounds, unread: Duration, now: Instant) -> Result<Instant, Overdue> {
        let state = self.state();
        let (arriving, busy, quiet_since) = (state.arriving.is_some(), !state.is_idle(), state.quiet_since);
        drop(state);
        let (deadline, overdue) = if arriving {
            (self.opened + bounds.head, Overdue::Head)
        } else if let Some(since) = self.write_waits_since() {
            (since + unread, Overdue::Unread)
        } else if busy {
            return Ok(now + bounds.look_every());
        } else {
            // After the body of a response has ended, its last bytes may still be in the connection's buffers.
            let written = self.instant(&self.write_went_on_at).unwrap_or(quiet_since);
            (quiet_since.max(written) + bounds.idle, Overdue::Idle)
        };
        if deadline <= now { Err(overdue) } else { Ok(deadline.min(now + bounds.look_every())) }
    }

    /// Counts a request. Its head is complete and has `head_bytes` bytes.
    pub(super) fn begin_request(self: &Arc<Self>, head_bytes: usize) -> RequestGuard {
        let weight = 1 + head_bytes / HEAD_BYTES_OF_A_REQUEST;
        let mut state = self.state();
        let arrival = state.arriving.take();
        state.handling += 1;
        state.quiet_since = Instant::now();
        self.load_more(state, weight);
        RequestGuard { connection: self.clone(), weight, answered: false, arrival }
    }

    /// Records that a response ended, or that it was abandoned because its client had not read anything after `since`.
    pub(super) fn end_response(&self, since: Instant) {
        let mut state = self.state();
        state.responding = state.responding.saturating_sub(1);
        state.quiet_since = state.quiet_since.max(since);
    }

    /// Adds weight to this connection, and to all connections together.
    pub(super) fn load(&self, weight: usize) {
        self.load_more(self.state(), weight);
    }

    /// Removes weight from this connection, and from all connections together.
    pub(super) fn unload(&self, weight: usize) {
        self.load_less(&mut self.state(), weight);
    }

    fn load_more(&self, mut state: MutexGuard<'_, PortConnectionState>, weight: usize) {
        state.load += weight;
        let (admitted, trusted) = (state.admitted, state.is_trusted());
        // The register locks all connections, including this one. So this lock is released first.
        drop(state);
        if admitted {
            self.report.loaded(trusted, weight);
        }
    }

    fn load_less(&self, state: &mut PortConnectionState, weight: usize) {
        state.load = state.load.saturating_sub(weight);
        if state.admitted {
            self.report.unloaded(state.is_trusted(), weight);
        }
    }

    /// Returns the owner of the first credential that was accepted on the connection or, before that, the connection's
    /// network.
    pub(super) fn owner(&self) -> Owner {
        self.state().owner
    }

    /// Reports that a credential of this owner was accepted, unless another credential was accepted on the connection
    /// before.
    pub(super) fn trust(self: &Arc<Self>, owner: Owner) {
        if !self.is_trusted() {
            self.report.trusted(self, owner);
        }
    }

    /// Returns whether a credential was accepted on the connection.
    pub(super) fn is_trusted(&self) -> bool {
        self.state().is_trusted()
    }

    /// Makes the owner of an accepted credential the owner of the connection. Returns the connection's load.
    pub(super) fn become_trusted(&self, owner: Owner) -> usize {
        let mut state = self.state();
        state.owner = owner;
        state.load
    }

    /// Makes the connection's task end. Returns whether the connection was trusted, and its load, which from now on no
    /// longer counts.
    pub(super) fn evict(&self) -> (bool, usize) {
        let mut state = self.state();
        state.admitted = false;
        let of = (state.is_trusted(), state.load);
        drop(state);
        self.evicted.notify_one();
        of
    }
}

/// A request that is being handled.
pub(super) struct RequestGuard {
    connection: Arc<Connection>,
    weight: usize,
    answered: bool,
    /// While this exists, the connection counts as arriving. Only the first request of a connection has it.
    pub(super) arrival: Option<TaskTrackerToken>,
}

impl RequestGuard {
    /// Turns the request into a response. The response weighs 1 until the caller removes that weight from the
    /// connection.
    pub(super) fn respond(mut self) -> Arc<Connection> {
        let mut state = self.connection.state();
        state.handling = state.handling.saturating_sub(1);
        state.responding += 1;
        // The head was dropped together with the handler, so its weight is removed.
        self.connection.load_less(&mut state, self.weight - 1);
        drop(state);
        self.answered = true;
        self.connection.clone()
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if !self.answered {
            let mut state = self.connection.state();
            state.handling = state.handling.saturating_sub(1);
            self.connection.load_less(&mut state, self.weight);
            state.quiet_since = Instant::now();
        }
    }
}
