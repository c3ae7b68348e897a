//! Authorizations of unknown outcome. A hold that one of them may have opened is released as soon as the call can no longer
//! take effect: it names an instant after which the key-service refuses it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use shared::{
    ids::GenerationId,
    rpc::{Authorize, Release},
};
use tokio::time::Instant;

use super::queue::Pending;

/// The time that a key-service may take to carry out what it accepted in time: its store's own deadline, and some.
const LATE_EXECUTION_WINDOW: Duration = Duration::from_secs(2);
/// The time that a release is tried: an ordinary lease, which then does the same.
const RELEASE_DEADLINE: Duration = Duration::from_secs(30);
/// Orphans remembered at most; the leases of further ones run out.
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
    /// The call that releases it.
    pub(crate) fn release(&self) -> Release {
        Release::Unknown { credential: self.credential.clone(), generation: self.generation }
    }

    /// Returns whether its lease has run out by now in any case.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.release_at) > RELEASE_DEADLINE
    }
}

/// The orphans of one gateway worker.
#[derive(Default)]
pub(super) struct Orphans(Mutex<Vec<Orphan>>);

impl Orphans {
    /// Adds the authorization of a call that may have been carried out, or may be carried out yet.
    pub(super) fn add(&self, authorize: &Authorize) {
        let valid_until = authorize.valid_until.unwrap_or_else(Instant::now);
        self.keep(Orphan {
            generation: authorize.generation,
            credential: authorize.credential.clone(),
            release_at: valid_until + LATE_EXECUTION_WINDOW,
        });
    }

    pub(super) fn keep(&self, orphan: Orphan) {
        let mut orphans = self.locked();
        if orphans.iter().any(|known| known.generation == orphan.generation) {
            return;
        }
        if orphans.len() >= MAX_ORPHANS {
            tracing::warn!(generation = %orphan.generation, "too many authorizations of unknown outcome; a hold may live until its lease ends");
            return;
        }
        metrics::counter!("gateway_doubtful_holds_total").increment(1);
        orphans.push(orphan);
    }

    pub(super) fn take_due(&self, now: Instant) -> Vec<Orphan> {
        let mut orphans = self.locked();
        if orphans.is_empty() {
            return Vec::new();
        }
        orphans.extract_if(.., |orphan| orphan.release_at <= now).collect()
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Orphan>> {
        // Every change is a single step, so that a panic elsewhere leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches one authorization. Dropped while a copy of it may still open a hold, it adds an orphan.
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

    /// An attempt is queued.
    pub(super) fn sent(&mut self, attempt: &Arc<Pending>) {
        self.attempts.push(attempt.clone());
    }

    /// The last attempt was answered.
    pub(super) fn answered(&mut self) {
        self.answered = true;
    }
}

impl Drop for OrphanGuard<'_> {
    fn drop(&mut self) {
        let copies: u32 = self.attempts.iter().map(|attempt| attempt.copies()).sum();
        // The one copy that was answered leaves nothing behind; every other one may be carried out.
        if copies > u32::from(self.answered) {
            self.orphans.add(&self.authorize);
        }
    }
}
