//! What key-services do, and its effect on the store.

use std::sync::Arc;

use ledger::Outcomes;
use records::{Committed, Revision};

use super::{
    promises,
    sent::{Job, Sent, Sight, conflict, hash, sight},
    setup::{Kind, Setup, now},
    state::{Fate, State, Task},
};

/// Maximum number of attempts at a commit. Nobody writes between them, so the second one always succeeds.
const ATTEMPTS: u32 = 3;

impl State {
    /// Returns the job of a task. Its messages leave the inbox; an authorization that can no longer take effect is
    /// refused without being read.
    pub(super) fn job(&mut self, what: Task, service: usize) -> Option<Job> {
        let of = &mut self.services[service];
        let mut calls = match what {
            Task::Arrives(request, kind) => vec![(request, kind)],
            Task::AllArrive => of.waiting().collect(),
            Task::Ticks => return Some(Job::Tick(self.books.account.tick)),
            Task::Expires(request) => return Some(Job::Expire(request)),
            Task::Governs(act) => return Some(Job::Act(act)),
            Task::Checks => return Some(Job::Check),
        };
        for (request, kind) in &calls {
            of.inbox[*request] &= !kind.bit();
        }
        calls.retain(|(request, kind)| *kind != Kind::Hold || !self.requests[*request].is_over);
        (!calls.is_empty()).then_some(Job::Calls(calls))
    }

    /// Lets a key-service do a job, deciding again after a conflict.
    pub(super) fn carry_out(
        &mut self,
        setup: &Setup,
        job: &Job,
        service: usize,
        and: Fate,
    ) -> Result<(), String> {
        for _ in 0..ATTEMPTS {
            let sent = self.decide(setup, job.clone(), service);
            if and == Fate::Half {
                return self.write_half(setup, &sent, service);
            }
            if and == Fate::Died {
                self.services[service].lane = Arc::new(Setup::lane());
                self.strays.push(Arc::new(sent));
                return Ok(());
            }
            match self.write(setup, &sent)? {
                Committed::Written => {
                    Arc::make_mut(&mut self.services[service].lane).written(sent.revision);
                    return if and == Fate::Heard { self.answer(setup, &sent) } else { Ok(()) };
                }
                Committed::Conflict(present) => {
                    Arc::make_mut(&mut self.services[service].lane).conflict(&present);
                }
            }
        }
        Err("a key-service that nobody disturbs gets its commit written".into())
    }

    /// Lets the key-service decide on its copies.
    fn decide(&mut self, setup: &Setup, job: Job, service: usize) -> Sent {
        self.revisions += 1;
        let revision = Revision(self.revisions.to_be_bytes());
        let (commands, of) = (setup.commands(&job), &mut self.services[service]);
        let (now, lane) = (now(of.is_morning), Arc::make_mut(&mut of.lane));
        let (outcomes, commit) = match &job {
            Job::Act(act) if commands.is_empty() => {
                let act = setup.acts[*act];
                (Outcomes::new(), lane.change(&self.store, |change| act.change(change, now), revision))
            }
            Job::Calls(_) | Job::Tick(_) | Job::Expire(_) | Job::Act(_) | Job::Check => {
                lane.execute(&self.store, &commands, now, revision)
            }
        };
        Sent { job, now, revision, outcomes, commit }
    }

    /// Lets a commit reach the store. If it is written, outcomes and books must be the same as if the commands were
    /// applied one after another.
    pub(super) fn write(&mut self, setup: &Setup, sent: &Sent) -> Result<Committed, String> {
        if let Some(conflict) = conflict(&self.store, &sent.commit) {
            return Ok(conflict);
        }
        let (expected, books) = setup.apply(&self.books, sent);
        if !sent.commit.writes.is_empty() {
            let written = Arc::make_mut(&mut self.store).commit(sent.commit.clone());
            written.map_err(|failure| format!("the store can write: {failure}"))?;
            self.stored = hash(&self.store);
            let found = setup.books(&self.store).ok_or("the books can be read")?;
            promises::after_commit(setup, self, &found)?;
            self.books = Arc::new(found);
        }
        promises::answers_are_of_the_present(&sent.outcomes, &expected)?;
        promises::books_are_those_of_the_commands(&self.books, &books)?;
        Ok(Committed::Written)
    }

    /// Lets the store write half of a commit, which no backend may do. The key-service drops its copies, and nobody
    /// gets an answer.
    fn write_half(&mut self, setup: &Setup, sent: &Sent, service: usize) -> Result<(), String> {
        self.services[service].lane = Arc::new(Setup::lane());
        let mut commit = sent.commit.clone();
        commit.writes.truncate(commit.writes.len() / 2);
        let written = Arc::make_mut(&mut self.store).commit(commit);
        written.map_err(|failure| format!("the store can write: {failure}"))?;
        self.stored = hash(&self.store);
        let found = setup.books(&self.store).ok_or("the books can be read")?;
        promises::after_commit(setup, self, &found)?;
        self.books = Arc::new(found);
        Ok(())
    }

    /// Reports the outcomes to the callers.
    fn answer(&mut self, setup: &Setup, sent: &Sent) -> Result<(), String> {
        match &sent.job {
            Job::Calls(calls) => {
                for ((request, kind), outcome) in calls.iter().zip(&sent.outcomes) {
                    if self.is_up[setup.requests[*request].gateway] {
                        self.requests[*request].hear(*kind, outcome)?;
                    }
                }
            }
            Job::Act(act) => self.acts[*act] = true,
            Job::Tick(_) | Job::Expire(_) | Job::Check => {}
        }
        Ok(())
    }

    /// Forgets commits that can never be written: a guarded record has had another revision since.
    pub(super) fn forget_dead_strays(&mut self) {
        let store = &self.store;
        self.strays.retain(|sent| {
            !sent.commit.writes.is_empty()
                && sent.commit.guards.iter().all(|guard| sight(store, guard) != Sight::Earlier)
        });
    }

    /// Returns whether a copy of the request's authorization may still be carried out.
    pub(super) fn is_authorizing(&self, request: usize) -> bool {
        self.strays.iter().any(|sent| match &sent.job {
            Job::Calls(calls) => calls.contains(&(request, Kind::Hold)),
            Job::Tick(_) | Job::Expire(_) | Job::Act(_) | Job::Check => false,
        })
    }
}
