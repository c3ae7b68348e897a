//! The lanes of a process, one per account: waiting calls, and copies of the account's records.

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
use records::{Failure, Records, Space};
use shared::{clock::Clock, ids::AccountId, time::Timestamp};
use tokio::{
    sync::{Mutex as AsyncMutex, oneshot},
    time::Instant,
};

use crate::{batch::Outcomes, kept::Retention, lanes::steady::SteadyTime, view::View};

/// Maximum number of commands in a commit: a few milliseconds of work. A commit with large writes has fewer commands.
pub(crate) const MOST_COMMANDS: usize = 64;
/// Maximum time for which a call waits for earlier calls. After that, its caller has probably stopped waiting.
const MOST_WAIT: Duration = Duration::from_millis(1_500);
/// Maximum number of accounts with copies in a process.
const MOST_LANES: usize = 4_096;
/// Maximum number of an account's calls that wait for a commit; further calls are refused.
const MOST_WAITING: usize = 4_096;

/// The lanes of the accounts that a process serves.
pub struct Lanes {
    pub(crate) records: Arc<dyn Records>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) kept: Retention,
    /// Lanes of the most recently used accounts. Dropping a lane while it leads is safe, because its commits are
    /// guarded.
    pub(crate) of_accounts: Cache<AccountId, Arc<Lane>>,
    /// The clock for housekeeping, which decides which records are old.
    pub(crate) steady: Mutex<SteadyTime>,
    pub(crate) copies: Arc<AtomicUsize>,
}

/// The waiting calls of an account, and the process's copies of the account's records.
pub(crate) struct Lane {
    pub(crate) account: AccountId,
    pub(crate) space: Space,
    pub(crate) waiting: Mutex<VecDeque<WaitingCall>>,
    /// Locked by the caller that leads.
    pub(crate) view: AsyncMutex<View>,
    /// When housekeeping for the account is next due.
    pub(crate) house_due: Mutex<Instant>,
    /// Number of this lane's copies as last added to the count over all lanes.
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
    /// When the call was made, by the caller's clock.
    pub(crate) now: Timestamp,
    /// When the call was made, by the lanes' clock.
    pub(crate) came_at: Timestamp,
    pub(crate) made_at: Instant,
    pub(crate) reply: oneshot::Sender<Result<Outcomes, Failure>>,
}

impl WaitingCall {
    /// Returns what the caller's clock shows when the lanes' clock shows `present`.
    pub(crate) fn now_at(&self, present: Timestamp) -> Timestamp {
        Timestamp::from_millis(self.now.millis() + (present.millis() - self.came_at.millis()))
    }
}

impl Lanes {
    pub fn new(records: Arc<dyn Records>, clock: Arc<dyn Clock>, kept: Retention) -> Self {
        let (of_accounts, steady, copies) = (Cache::new(MOST_LANES), Mutex::default(), Arc::default());
        Self { records, clock, kept, of_accounts, steady, copies }
    }

    /// Returns the time that housekeeping uses to judge age; `None` until two readings of the clock, some minutes
    /// apart, agree.
    pub fn steady_time(&self) -> Option<Timestamp> {
        self.steady.lock().look(Instant::now(), self.clock.now())
    }
}

impl Lane {
    pub(crate) fn wait(&self, call: WaitingCall) -> Result<(), Failure> {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= MOST_WAITING {
            return Err(Failure::NotDone("too many calls for the account are waiting".into()));
        }
        waiting.push_back(call);
        Ok(())
    }

    /// Takes the calls for the next commit: at least one call, if any is waiting.
    pub(crate) fn next_calls(&self) -> Vec<WaitingCall> {
        let mut waiting = self.waiting.lock();
        let (mut calls, mut commands) = (Vec::new(), 0);
        while let Some(call) = waiting.front() {
            if call.made_at.elapsed() > MOST_WAIT {
                let late = Failure::NotDone("the call waited too long for other calls of the account".into());
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
