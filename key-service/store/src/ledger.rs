//! The ledger over records: what is decided is decided by [`domain::ledger::apply`], over copies of the records, and
//! committed under the condition that the records are still as the copies.
//!
//! Each account has a lane in a process. One caller leads: it decides the calls that wait, commits them together, and hands
//! out the outcomes. A conflict brings the records as they are, and the calls are decided again at once. A caller that has
//! lost three times takes the turn, a record that all spending guards.

mod batch;
mod change;
mod codec;
mod copies;
mod names;

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use domain::{ledger::Command, usage::Day};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use shared::{
    clock::{Clock, random_bytes},
    ids::AccountId,
    time::Timestamp,
};
use tokio::{
    sync::{
        Mutex as AsyncMutex,
        oneshot::{self, error::TryRecvError},
    },
    time::sleep,
};

pub use self::{
    batch::Outcomes,
    change::{Change, Unreadable},
};
use self::{
    batch::{Batch, Commands, Decided, Effects},
    copies::{Copies, Slot, TheTurn},
};
use crate::records::{Answer, Commit, Committed, Failure, Question, Records, Revision, Space};

/// Commands of a commit, so that it keeps within the words of a backend.
const MOST_COMMANDS: usize = 64;
/// Copies of keys, and of sums of payers, that an account keeps.
const MOST_COPIES: usize = 4_096;
/// Attempts after which a caller takes the turn.
const ATTEMPTS_WITHOUT_TURN: u32 = 3;
/// Attempts at a commit; more than any rivals take with turns.
const MOST_ATTEMPTS: u32 = 1_000;
/// Accounts whose copies a process keeps.
const MOST_LANES: usize = 4_096;
/// Calls of an account that wait for a commit; further calls are not carried out.
const MOST_WAITING: usize = 4_096;
/// Pause between two looks at another's turn.
const TURN_LOOK: Duration = Duration::from_micros(500);
/// Looks after which a turn that has not changed is taken over: who had it is gone.
const TURN_LOOKS: u32 = 40;

/// How long the ledger's records are kept.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Number of entries of the journal.
    pub journal_entries: u64,
    /// Number of events.
    pub events: u64,
    /// Time for which bills of expiries are remembered.
    pub expired: Duration,
}

/// The ledger of one process.
pub struct Ledger {
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    kept: Kept,
    /// Lanes of the accounts that were asked for last. One that is dropped while it leads stays correct by its guards.
    lanes: Cache<AccountId, Arc<Lane>>,
}

/// The calls of an account that wait, and the copies of the account's records.
struct Lane {
    account: AccountId,
    space: Space,
    waiting: Mutex<VecDeque<Call>>,
    /// Locked by the caller that leads.
    copies: AsyncMutex<Copies>,
}

/// A call that waits.
struct Call {
    commands: Vec<Command>,
    now: Timestamp,
    reply: oneshot::Sender<Result<Outcomes, Failure>>,
}

impl Ledger {
    /// A ledger over these records.
    pub fn new(records: Arc<dyn Records>, clock: Arc<dyn Clock>, kept: Kept) -> Self {
        Self { records, clock, kept, lanes: Cache::new(MOST_LANES) }
    }

    /// Changes money of an account, its keys and groups by other than commands. `decide` is asked again after a conflict, and
    /// while it has looked at records that were not read: it then finds them absent or unreadable, and its answer does not
    /// count.
    pub async fn change<T>(
        &self,
        account: AccountId,
        mut decide: impl FnMut(&mut Change<'_>) -> T,
    ) -> Result<T, Failure> {
        let lane = self.lane(account);
        let mut copies = lane.copies.lock().await;
        let mut held = std::mem::take(&mut *copies);
        let mine = random_bytes(&*self.clock);
        for attempt in 1..=MOST_ATTEMPTS {
            self.wait_for_turn(&lane, &mut held, (mine, attempt > ATTEMPTS_WITHOUT_TURN)).await?;
            let mut change = Change::new(&mut held);
            let answer = decide(&mut change);
            let missing = change.missing();
            if !missing.is_empty() {
                held.roll_back();
                self.read(&lane, &mut held, missing).await?;
                continue;
            }
            if let Some(()) = self.commit(&lane, &mut held, (mine, Effects::default())).await? {
                *copies = held;
                return Ok(answer);
            }
        }
        Err(Failure::NotDone("others change the account".into()))
    }

    /// Applies commands in their order to one account.
    pub async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, Failure> {
        if commands.len() <= MOST_COMMANDS {
            return self.execute_together(account, commands, now).await;
        }
        let mut outcomes = Vec::with_capacity(commands.len());
        for part in commands.chunks(MOST_COMMANDS) {
            outcomes.extend(self.execute_together(account, part.to_vec(), now).await?);
        }
        Ok(outcomes)
    }

    async fn execute_together(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, Failure> {
        let lane = self.lane(account);
        let (reply, mut answer) = oneshot::channel();
        lane.wait(Call { commands, now, reply })?;
        // The caller that gets the copies leads, until its own call is answered.
        let mut copies = lane.copies.lock().await;
        loop {
            match answer.try_recv() {
                Ok(outcomes) => return outcomes,
                Err(TryRecvError::Empty) => {}
                // The caller that led gave up: nobody knows what became of the commit.
                Err(TryRecvError::Closed) => return Err(Failure::Unknown("the call was given up".into())),
            }
            let calls = lane.next_calls();
            // A leader that gives up leaves no copies.
            let mut held = std::mem::take(&mut *copies);
            let result = self.lead(&lane, &mut held, &calls).await;
            *copies = held;
            match result {
                Ok(outcomes) => {
                    for (call, outcomes) in calls.into_iter().zip(outcomes) {
                        // A caller that gave up needs no answer.
                        let _ = call.reply.send(Ok(outcomes));
                    }
                }
                Err(failure) => {
                    *copies = Copies::default();
                    for call in calls {
                        let _ = call.reply.send(Err(failure.clone()));
                    }
                }
            }
        }
    }

    fn lane(&self, account: AccountId) -> Arc<Lane> {
        let lane = || {
            let space = names::space(account);
            let (waiting, copies) = (Mutex::default(), AsyncMutex::default());
            Ok(Arc::new(Lane { account, space, waiting, copies }))
        };
        let Ok::<_, Infallible>(lane) = self.lanes.get_or_insert_with(&account, lane);
        lane
    }

    /// Decides and commits the calls, again and again until a commit holds.
    async fn lead(&self, lane: &Lane, copies: &mut Copies, calls: &[Call]) -> Result<Vec<Outcomes>, Failure> {
        let mine = random_bytes(&*self.clock);
        for attempt in 1..=MOST_ATTEMPTS {
            self.wait_for_turn(lane, copies, (mine, attempt > ATTEMPTS_WITHOUT_TURN)).await?;
            let (outcomes, effects) = self.decide(lane, copies, calls).await?;
            if let Some(()) = self.commit(lane, copies, (mine, effects)).await? {
                copies.shrink(MOST_COPIES, Day::of(self.clock.now()));
                return Ok(outcomes);
            }
        }
        Err(Failure::NotDone("others change the account".into()))
    }

    /// Commits what was decided. `None` after a conflict, which has brought the records as they are.
    async fn commit(
        &self,
        lane: &Lane,
        copies: &mut Copies,
        (mine, effects): ([u8; 8], Effects),
    ) -> Result<Option<()>, Failure> {
        if copies.turn.get(&TheTurn) == Some(&Some(mine)) {
            // The turn ends with the commit.
            copies.set_turn(&TheTurn, None);
        }
        let revision = Revision(random_bytes(&*self.clock));
        let commit = effects.commit(copies, revision, self.kept);
        match self.records.commit(&lane.space, commit).await? {
            Committed::Written(_) => {
                copies.settle(revision);
                Ok(Some(()))
            }
            Committed::Conflict(present) => {
                copies.replace(&present);
                Ok(None)
            }
        }
    }

    async fn decide(
        &self,
        lane: &Lane,
        copies: &mut Copies,
        calls: &[Call],
    ) -> Result<(Vec<Outcomes>, Effects), Failure> {
        let commands: Vec<_> =
            calls.iter().map(|call| Commands { all: &call.commands, now: call.now }).collect();
        loop {
            match Batch::new(copies, lane.account, self.kept).decide(&commands) {
                Decided::Outcomes(outcomes, effects) => return Ok((outcomes, effects)),
                Decided::Missing(slots) => self.read(lane, copies, slots).await?,
            }
        }
    }

    async fn read(&self, lane: &Lane, copies: &mut Copies, slots: Vec<Slot>) -> Result<(), Failure> {
        let names = slots.iter().map(Slot::name).collect();
        let mut answers = self.records.read(&lane.space, vec![Question::Records(names)]).await?;
        let Some(Answer::Records(records)) = answers.pop() else {
            return Err(Failure::Damaged("no records in an answer".into()));
        };
        for (slot, record) in slots.into_iter().zip(records) {
            copies.keep(slot, record.as_ref());
        }
        Ok(())
    }

    /// Waits while another has the turn, and takes the turn where this caller wants it. A turn that stays the same for long is
    /// taken over: who had it is gone. No clock is compared.
    async fn wait_for_turn(
        &self,
        lane: &Lane,
        copies: &mut Copies,
        (mine, is_wanted): ([u8; 8], bool),
    ) -> Result<(), Failure> {
        let mut looks = 0;
        loop {
            let present = copies.turn.get(&TheTurn).copied().flatten();
            match present {
                None if !is_wanted => return Ok(()),
                Some(turn) if turn == mine => return Ok(()),
                Some(turn) if looks < TURN_LOOKS => {
                    sleep(TURN_LOOK).await;
                    self.read(lane, copies, vec![Slot::Turn]).await?;
                    let is_same = copies.turn.get(&TheTurn) == Some(&Some(turn));
                    looks = if is_same { looks + 1 } else { 0 };
                }
                None | Some(_) => {
                    if !copies.has(&Slot::Turn) {
                        self.read(lane, copies, vec![Slot::Turn]).await?;
                    }
                    self.take_turn(lane, copies, mine).await?;
                    looks = 0;
                }
            }
        }
    }

    async fn take_turn(&self, lane: &Lane, copies: &mut Copies, mine: [u8; 8]) -> Result<(), Failure> {
        copies.turn(&TheTurn);
        copies.set_turn(&TheTurn, Some(mine));
        let revision = Revision(random_bytes(&*self.clock));
        let (guards, writes) = copies.changes(revision);
        match self.records.commit(&lane.space, Commit { guards, writes }).await? {
            Committed::Written(_) => copies.settle(revision),
            Committed::Conflict(present) => copies.replace(&present),
        }
        Ok(())
    }
}

impl Lane {
    fn wait(&self, call: Call) -> Result<(), Failure> {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= MOST_WAITING {
            return Err(Failure::NotDone("too many calls of the account wait".into()));
        }
        waiting.push_back(call);
        Ok(())
    }

    /// The calls of the next commit: at least one, while any wait.
    fn next_calls(&self) -> Vec<Call> {
        let mut waiting = self.waiting.lock();
        let (mut calls, mut commands) = (Vec::new(), 0);
        while let Some(call) = waiting.front() {
            commands += call.commands.len();
            if commands > MOST_COMMANDS && !calls.is_empty() {
                break;
            }
            calls.extend(waiting.pop_front());
        }
        calls
    }
}

#[cfg(test)]
mod tests;
