//! Authorizations with an unknown outcome. Each call has a time after which key-services refuse it. Some time after
//! that, when the call can no longer be executing either, a hold that it may have opened is released.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use shared::ids::GenerationId;
use shared_rpc::{Authorize, Release};
use tokio::time::Instant;

use super::queue::Pending;

/// Maximum time for a key-service to execute a call that it accepted in time: 1.5 s in its account's lane, 0.4 s for
/// commits that lose to concurrent commits, 1.5 s for the last commit over Redis, and a margin. If SQLite's disk hangs
/// for longer, the hold ends with its lease and nothing is billed.
const LATE_EXECUTION_WINDOW: Duration = Duration::from_secs(4);
/// How long a release is repeated: an ordinary lease, after which the hold expires anyway.
const RELEASE_DEADLINE: Duration = Duration::from_secs(30);
/// Maximum number of orphans that are kept. Further holds end when their leases run out.
const MAX_ORPHANS: usize = 65_536;

/// A hold that may be open although no request uses it.
#[derive(Clone, Debug)]
pub(crate) struct Orphan {
    /// The generation that the authorization was for.
    pub(crate) generation: GenerationId,
    credential: String,
    release_at: Instant,
}

impl Orphan {
    /// Returns the call that releases this orphan.
    pub(crate) fn release(&self) -> Release {
        Release::Unknown { credential: self.credential.clone(), generation: self.generation }
    }

    /// Returns whether the orphan's lease has certainly run out.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.release_at) > RELEASE_DEADLINE
    }
}

/// The orphans of a gateway worker.
#[derive(Default)]
pub(super) struct Orphans(Mutex<Vec<Orphan>>);

impl Orphans {
    /// Adds an orphan for an authorization that may have been executed, or may still be executed.
    pub(super) fn add(&self, authorize: &Authorize) {
        let valid_until = authorize.valid_until.unwrap_or_else(Instant::now);
        self.keep(Orphan {
            generation: authorize.generation,
            credential: authorize.credential.clone(),
            release_at: valid_until + LATE_EXECUTION_WINDOW,
        });
    }

    pub(super) fn keep(&self, orphan: Orphan) {
        let mut orphans = self.0.lock();
        if orphans.iter().any(|known| known.generation == orphan.generation) {
            return;
        }
        if orphans.len() >= MAX_ORPHANS {
            tracing::warn!(
                generation = %orphan.generation,
                "too many authorizations with unknown outcomes; a hold may live until its lease ends"
            );
            return;
        }
        metrics::counter!("gateway_doubtful_holds_total").increment(1);
        orphans.push(orphan);
    }

    pub(super) fn take_due(&self, now: Instant) -> Vec<Orphan> {
        let mut orphans = self.0.lock();
        if orphans.is_empty() {
            return Vec::new();
        }
        orphans.extract_if(.., |orphan| orphan.release_at <= now).collect()
    }
}

/// Guards an authorization. If it is dropped while a copy of the call may still open a hold, it adds an orphan.
pub(super) struct OrphanGuard<'a> {
    orphans: &'a Orphans,
    authorize: Authorize,
    attempts: Vec<Arc<Pending>>,
    answered: bool,
}

impl<'a> OrphanGuard<'a> {
    pub(super) fn new(orphans: &'a Orphans, authorize: &Authorize) -> Self {
        Self { orphans, authorize: authorize.clone(), attempts: Vec::new(), answered: false }
    }

    /// Records that an attempt was queued.
    pub(super) fn sent(&mut self, attempt: &Arc<Pending>) {
        self.attempts.push(attempt.clone());
    }

    /// Records that the last attempt was answered.
    pub(super) fn answered(&mut self) {
        self.answered = true;
    }
}

impl Drop for OrphanGuard<'_> {
    fn drop(&mut self) {
        let copies: u32 = self.attempts.iter().map(|attempt| attempt.copies()).sum();
        // A copy that was answered leaves no unknown hold. All other copies may still be executed.
        if copies > u32::from(self.answered) {
            self.orphans.add(&self.authorize);
        }
    }
}
