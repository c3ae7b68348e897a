//! The lanes of a process, one for each account: the calls that wait, and copies of the account's records.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use domain::ledger::Command;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use records::{Failure, Record, Records, Space};
use shared::{clock::Clock, ids::AccountId, time::Timestamp};
use tokio::{
    sync::{Mutex as AsyncMutex, oneshot},
    time::Instant,
};

use crate::{
    batch::Outcomes,
    copies::{Copies, Slot},
    kept::Retention,
    lanes::steady::SteadyTime,
    view::{self, View},
};

/// Commands of a commit: some milliseconds of the ledger. Fewer are committed together if they write much.
pub(crate) const MOST_COMMANDS: usize = 64;
/// Longest wait of a call for the calls before it. If its hold came later, its caller might be gone.
const MOST_WAIT: Duration = Duration::from_millis(1_500);
/// Accounts whose copies a process keeps.
const MOST_LANES: usize = 4_096;
/// Calls of an account that wait for a commit; further calls are refused.
const MOST_WAITING: usize = 4_096;

/// The lanes of the accounts that a process serves.
pub struct Lanes {
    pub(crate) records: Arc<dyn Records>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) kept: Retention,
    /// Lanes of the accounts asked for last. A lane that is dropped while it leads stays correct by its guards.
    pub(crate) of_accounts: Cache<AccountId, Arc<Lane>>,
    /// Clock that decides which records are old.
    pub(crate) steady: Mutex<SteadyTime>,
    pub(crate) copies: Arc<AtomicUsize>,
}

/// Waiting calls of an account, and copies of its records.
pub(crate) struct Lane {
    pub(crate) account: AccountId,
    pub(crate) space: Space,
    pub(crate) waiting: Mutex<VecDeque<WaitingCall>>,
    /// Locked by the caller that leads.
    pub(crate) copies: AsyncMutex<Copies>,
    /// Time of the next housekeeping.
    pub(crate) house_due: Mutex<Instant>,
    /// Number of this lane's copies that are counted among all.
    pub(crate) counted: AtomicUsize,
    pub(crate) in_all: Arc<AtomicUsize>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.in_all.fetch_sub(self.counted.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

pub(crate) struct WaitingCall {
    pub(crate) commands: Vec<Command>,
    /// Time at which the call was made, by its caller.
    pub(crate) now: Timestamp,
    /// Time at which the call was made, by the clock of the lanes.
    pub(crate) came_at: Timestamp,
    pub(crate) made_at: Instant,
    pub(crate) reply: oneshot::Sender<Result<Outcomes, Failure>>,
}

impl WaitingCall {
    /// Returns the caller's time when the lanes' clock shows `present`.
    pub(crate) fn now_at(&self, present: Timestamp) -> Timestamp {
        Timestamp::from_millis(self.now.millis() + (present.millis() - self.came_at.millis()))
    }
}

impl Lanes {
    pub fn new(records: Arc<dyn Records>, clock: Arc<dyn Clock>, kept: Retention) -> Self {
        let (of_accounts, steady, copies) = (Cache::new(MOST_LANES), Mutex::default(), Arc::default());
        Self { records, clock, kept, of_accounts, steady, copies }
    }

    /// Returns the time by which records may be called old; `None` until two looks at the clock, some minutes apart, agree.
    pub fn steady_time(&self) -> Option<Timestamp> {
        self.steady.lock().look(Instant::now(), self.clock.now())
    }
}

impl Lane {
    /// Takes over the records that a conflict brought, by their places among the guards: first the copies, then the
    /// others.
    pub(crate) fn take_over(
        &self,
        copies: &mut Copies,
        view: &mut View,
        present: Vec<(usize, Option<Record>)>,
    ) {
        metrics::counter!("keyservice_store_conflicts_total").increment(1);
        let changed: Vec<_> =
            present.iter().filter_map(|(place, _)| copies.touched().get(*place).cloned()).collect();
        let guards = copies.replace(&present);
        for slot in changed {
            self.tell_damage(copies, &slot);
        }
        let others = |(place, record): (usize, _)| Some((place.checked_sub(guards)?, record));
        view.replace(present.into_iter().filter_map(others));
    }

    /// Logs and counts a record that cannot be read.
    pub(crate) fn tell_damage(&self, copies: &Copies, slot: &Slot) {
        if copies.is_damaged(slot) {
            view::tell_damage(&self.space, &slot.name());
        }
    }

    pub(crate) fn wait(&self, call: WaitingCall) -> Result<(), Failure> {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= MOST_WAITING {
            return Err(Failure::NotDone("too many calls of the account wait".into()));
        }
        waiting.push_back(call);
        Ok(())
    }

    /// Takes the calls of the next commit: at least one, if any wait.
    pub(crate) fn next_calls(&self) -> Vec<WaitingCall> {
        let mut waiting = self.waiting.lock();
        let (mut calls, mut commands) = (Vec::new(), 0);
        while let Some(call) = waiting.front() {
            if call.made_at.elapsed() > MOST_WAIT {
                let late = Failure::NotDone("the call waited too long for others of the account".into());
                let call = waiting.pop_front();
                let _ = call.map(|call| call.reply.send(Err(late)));
                continue;
            }
            commands += call.commands.len();
            if commands > MOST_COMMANDS && !calls.is_empty() {
                break;
            }
            calls.extend(waiting.pop_front());
        }
        calls
    }
}
