//! Decides the waiting calls of an account and commits them together. After a conflict, it decides again, until a
//! commit succeeds.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use domain::{ledger::Command, usage::Day};
use parking_lot::Mutex;
use records::{Commit, Committed, Durability, Failure, Record, Revision};
use shared::{clock::random_bytes, ids::AccountId, time::Timestamp};
use tokio::{
    sync::{
        Mutex as AsyncMutex,
        oneshot::{self, error::TryRecvError},
    },
    time::Instant,
};

use crate::{
    batch::{
        Batch, Outcomes,
        commands::{self, Commands},
        effects::Effects,
        written::WrittenEvents,
    },
    error::StoreError,
    lanes::{
        change::Change,
        house,
        lane::{Lane, Lanes, MOST_COMMANDS, WaitingCall},
        turn::ATTEMPTS_WITHOUT_TURN,
    },
    names,
    stored::Turn,
    view::{self, View},
};

/// Maximum number of copies of an account's records.
const MOST_COPIES: usize = 32_768;
/// Maximum number of attempts at a commit. Competing processes take turns, so they need fewer attempts.
const MOST_ATTEMPTS: u32 = 1_000;
/// Commands whose commits keep losing to other processes are given up after this time. Otherwise their gateway would
/// soon send them to another key-service too, and that key-service would then compete for the same account.
const COMMANDS_GIVEN_UP_AFTER: Duration = Duration::from_millis(400);
/// Other changes whose commits keep losing are given up after this time.
const CHANGE_GIVEN_UP_AFTER: Duration = Duration::from_secs(2);
/// Maximum number of copies in a process, over all accounts: a few hundred megabytes if all copies have the maximum
/// size.
const MOST_COPIES_IN_ALL: usize = 200_000;

/// A decided commit and its events.
struct DecidedCommit {
    commit: Commit,
    revision: Revision,
    events: Option<WrittenEvents>,
}

/// How far the waiting commands have been committed. They may take several commits.
struct CommandsLeft {
    /// Number of commands committed so far.
    done: usize,
    /// Maximum number of commands in the next commit. It is lowered until the commit is small enough.
    most: usize,
}

impl Lanes {
    /// Makes a change to an account. The change is not a command. `decide` runs again after a conflict. It also runs
    /// again if it needed records that had not been read yet: in such a run, these records look absent, and the answer
    /// is discarded. If `decide` refuses, nothing changes.
    pub async fn change<T, E: From<Failure> + From<StoreError>>(
        &self,
        account: AccountId,
        decide: impl FnMut(&mut Change<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let lane = self.lane(account);
        let term = self.records.term(&lane.space).await;
        let answer = self.change_in_lane(&lane, decide).await?;
        // This happens after the lane is released, so that the next commit does not wait for the disk. A refusal waits
        // too, because an earlier attempt that is not durable yet may be the reason for it.
        self.records.settle(&lane.space, Durability::Durable, term).await?;
        answer
    }

    async fn change_in_lane<T, E>(
        &self,
        lane: &Lane,
        mut decide: impl FnMut(&mut Change<'_>) -> Result<T, E>,
    ) -> Result<Result<T, E>, Failure> {
        let mut view = lane.view.lock().await;
        // The view is taken out of the lane, so that no half-changed copies stay there if the caller is cancelled.
        let mut held = std::mem::replace(&mut *view, View::of(&lane.space));
        let (mine, began, mut lost) = (random_bytes(&*self.clock), Instant::now(), 0);
        while lost < MOST_ATTEMPTS && began.elapsed() <= CHANGE_GIVEN_UP_AFTER {
            self.wait_for_turn(lane, &mut held, mine, lost >= ATTEMPTS_WITHOUT_TURN).await?;
            let mut change = Change::new(&mut held);
            let answer = decide(&mut change);
            let Some(effects) = change.finish() else {
                view::read(&self.records, &mut held).await?;
                continue;
            };
            let is_done = match &answer {
                Ok(_) => {
                    let decided = self.prepare(&mut held, effects, mine);
                    self.commit(lane, &mut held, decided).await?
                }
                Err(_) => self.confirm(lane, &mut held, mine).await?,
            };
            if is_done.is_some() {
                self.bound(lane, &mut held);
                *view = held;
                return Ok(answer);
            }
            lost += 1;
        }
        Err(Failure::NotDone("other processes keep changing the account".into()))
    }

    /// Confirms that a refusal was decided with current records. `None` if there was a conflict.
    async fn confirm(&self, lane: &Lane, view: &mut View, mine: [u8; 8]) -> Result<Option<()>, Failure> {
        let commit = Commit { guards: view.guards(), writes: Vec::new() };
        match self.records.commit(&lane.space, commit).await? {
            Committed::Written => {
                view.refuse();
                if view.peek(&names::turn()) == Some(&Turn { of: mine }) {
                    self.set_turn(lane, view, None).await?;
                }
                Ok(Some(()))
            }
            Committed::Conflict(present) => {
                take_over(view, present);
                Ok(None)
            }
        }
    }

    /// Applies commands to one account, in their order. `now` is the time of the call by the caller's clock. Each
    /// attempt adds the time that has passed since then.
    pub async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, Failure> {
        let (lane, came_at) = (self.lane(account), self.clock.now());
        let term = self.records.term(&lane.space).await;
        let durability = commands.iter().map(durability).max().unwrap_or(Durability::Volatile);
        let outcomes = if commands.len() <= MOST_COMMANDS {
            self.execute_together(&lane, commands, now, came_at).await?
        } else {
            let mut outcomes = Vec::with_capacity(commands.len());
            for part in commands.chunks(MOST_COMMANDS) {
                outcomes.extend(self.execute_together(&lane, part.to_vec(), now, came_at).await?);
            }
            outcomes
        };
        // This happens after the lane is released, so that the next commit does not wait for the disk.
        self.records.settle(&lane.space, durability, term).await?;
        Ok(outcomes)
    }

    async fn execute_together(
        &self,
        lane: &Lane,
        commands: Vec<Command>,
        now: Timestamp,
        came_at: Timestamp,
    ) -> Result<Outcomes, Failure> {
        let (reply, mut answer) = oneshot::channel();
        lane.wait(WaitingCall { commands, now, came_at, made_at: Instant::now(), reply })?;
        // The caller that locks the view leads until its call is answered.
        let mut view = lane.view.lock().await;
        loop {
            match answer.try_recv() {
                Ok(outcomes) => return outcomes,
                Err(TryRecvError::Empty) => {}
                // The leading caller was cancelled, so it is unknown whether the commit was written.
                Err(TryRecvError::Closed) => return Err(Failure::Unknown("the call was abandoned".into())),
            }
            let calls = lane.next_calls();
            if calls.is_empty() {
                continue; // this caller's own call waited too long
            }
            // The view is taken out of the lane, so that no half-changed copies stay there if the leader is cancelled.
            let mut held = std::mem::replace(&mut *view, View::of(&lane.space));
            let result = self.lead(lane, &mut held, &calls).await;
            match result {
                Ok(outcomes) => {
                    *view = held;
                    for (call, outcomes) in calls.into_iter().zip(outcomes) {
                        // Sending fails if the caller was cancelled. It then needs no answer.
                        let _ = call.reply.send(Ok(outcomes));
                    }
                    self.keep_house_if_due(lane).await;
                }
                Err(failure) => {
                    for call in calls {
                        let _ = call.reply.send(Err(failure.clone()));
                    }
                }
            }
        }
    }

    pub(crate) fn lane(&self, account: AccountId) -> Arc<Lane> {
        let lane = || {
            let space = names::space(account);
            let (waiting, view) = (Mutex::default(), AsyncMutex::new(View::of(&space)));
            let house_due = Mutex::new(Instant::now() + house::EVERY);
            let (counted, in_all) = (AtomicUsize::new(0), Arc::clone(&self.copies));
            Ok(Arc::new(Lane { account, space, waiting, view, house_due, counted, in_all }))
        };
        let Ok::<_, Infallible>(lane) = self.of_accounts.get_or_insert_with(&account, lane);
        lane
    }

    /// Keeps the copies of this lane and of all lanes within their bounds.
    fn bound(&self, lane: &Lane, view: &mut View) {
        view.shrink(MOST_COPIES, Day::of(self.clock.now()));
        let now = view.len();
        let before = lane.counted.swap(now, Ordering::Relaxed);
        self.copies.fetch_add(now, Ordering::Relaxed);
        if self.copies.fetch_sub(before, Ordering::Relaxed) - before > MOST_COPIES_IN_ALL {
            // This is rare. Lanes that are in use keep working, and other accounts' records are read again when needed.
            self.of_accounts.clear();
        }
    }

    /// Decides and commits the calls, in several commits if they write more than one commit allows.
    async fn lead(
        &self,
        lane: &Lane,
        view: &mut View,
        calls: &[WaitingCall],
    ) -> Result<Vec<Outcomes>, Failure> {
        let all = calls.iter().map(|call| call.commands.len()).sum();
        let mut outcomes: Vec<Outcomes> = calls.iter().map(|_| Vec::new()).collect();
        let mut left = CommandsLeft { done: 0, most: all };
        while left.done < all {
            let part = self.lead_part(lane, view, calls, &mut left).await.map_err(|failure| {
                // If earlier parts have been committed, some of the commands took effect.
                if left.done > 0 { Failure::Unknown(failure.to_string()) } else { failure }
            })?;
            left.done += part.iter().map(Vec::len).sum::<usize>();
            outcomes.iter_mut().zip(part).for_each(|(outcomes, part)| outcomes.extend(part));
        }
        Ok(outcomes)
    }

    /// Decides and commits the next commands. After a conflict, decides them again, until a commit succeeds.
    async fn lead_part(
        &self,
        lane: &Lane,
        view: &mut View,
        calls: &[WaitingCall],
        left: &mut CommandsLeft,
    ) -> Result<Vec<Outcomes>, Failure> {
        let (mine, began) = (random_bytes(&*self.clock), Instant::now());
        let mut attempt = 1;
        while attempt <= MOST_ATTEMPTS {
            self.wait_for_turn(lane, view, mine, attempt > ATTEMPTS_WITHOUT_TURN).await?;
            // The time is read for each attempt, because calls may have waited and attempts take time.
            let present = self.clock.now();
            let commands: Vec<_> = calls
                .iter()
                .map(|call| Commands { all: &call.commands, now: call.now_at(present) })
                .collect();
            let part = commands::part(&commands, left.done, left.most);
            let (outcomes, effects) = self.decide(lane, view, &part).await?;
            let decided = self.prepare(view, effects, mine);
            let (words, number) = (decided.commit.words(), outcomes.iter().map(Vec::len).sum::<usize>());
            if words > self.records.most_words() && number > 1 {
                left.most = (number * self.records.most_words() / words).clamp(1, number - 1);
                view.begin();
                continue;
            }
            if let Some(()) = self.commit(lane, view, decided).await? {
                self.bound(lane, view);
                return Ok(outcomes);
            }
            if began.elapsed() > COMMANDS_GIVEN_UP_AFTER {
                break;
            }
            attempt += 1;
        }
        Err(Failure::NotDone("other processes keep changing the account".into()))
    }

    /// Builds the commit for what was decided.
    fn prepare(&self, view: &mut View, effects: Effects, mine: [u8; 8]) -> DecidedCommit {
        if view.peek(&names::turn()) == Some(&Turn { of: mine }) {
            // The turn ends with the commit.
            view.remove(&names::turn());
        }
        let revision = Revision(random_bytes(&*self.clock));
        let events = effects.written_events();
        DecidedCommit { commit: effects.commit(view, revision, self.kept), revision, events }
    }

    /// Sends the commit to the store. `None` if there was a conflict; the copies are then replaced by the current
    /// records.
    async fn commit(
        &self,
        lane: &Lane,
        view: &mut View,
        DecidedCommit { commit, revision, events }: DecidedCommit,
    ) -> Result<Option<()>, Failure> {
        match self.records.commit(&lane.space, commit).await? {
            Committed::Written => {
                view.settle(revision);
                if let Some(events) = events {
                    self.trim(lane, view, events).await;
                }
                Ok(Some(()))
            }
            Committed::Conflict(present) => {
                take_over(view, present);
                Ok(None)
            }
        }
    }

    async fn decide(
        &self,
        lane: &Lane,
        view: &mut View,
        calls: &[Commands<'_>],
    ) -> Result<(Vec<Outcomes>, Effects), Failure> {
        loop {
            if let Some(decided) = Batch::new(view, lane.account, self.kept).decide(calls) {
                return Ok(decided);
            }
            view::read(&self.records, view).await?;
        }
    }
}

/// Replaces copies by the current records that a conflict returned. The numbers are indexes of guards.
fn take_over(view: &mut View, present: Vec<(usize, Option<Record>)>) {
    metrics::counter!("keyservice_store_conflicts_total").increment(1);
    view.replace(present);
}

/// Returns which failures the state must survive before the command is answered. A refused command also waits until the
/// state is durable, because an earlier attempt at the same command may have been applied.
const fn durability(command: &Command) -> Durability {
    match command {
        Command::Deposit { .. }
        | Command::Refund { .. }
        | Command::Capture { .. }
        | Command::Expire { .. } => Durability::Durable,
        Command::Hold(_) | Command::Extend { .. } | Command::Release { .. } => Durability::Replicated,
        Command::Tick { .. } | Command::Check { .. } => Durability::Volatile,
    }
}
