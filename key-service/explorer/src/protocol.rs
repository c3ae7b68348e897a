//! Gateways, two key-services and a store, in single steps.
//!
//! A gateway sends copies of its messages to either key-service, any number of times. Each copy arrives once, at any
//! time, or never. A key-service decides on its own copies of records, which may be stale, and sends a commit. A
//! conflict returns the current records, and the key-service decides again; since it sends no answer until a commit
//! succeeds, all these attempts count as one step. The commit of a dead key-service may reach the store at any later
//! time. Only the protocol imposes an order.

mod facts;
mod gateways;
mod ledger;
mod promises;
mod sent;
mod services;
mod setup;
mod state;

use std::sync::Arc;

use domain::ledger::{Command, Record, histories::key};

use self::{
    sent::{Job, hash},
    setup::Setup,
    state::{Action, Fate, Request, SERVICES, Service, State, Task},
};
use crate::explorer::Model;

impl Model for Setup {
    type State = State;
    type Action = Action;

    fn start(&self) -> State {
        let store = self.records();
        let books = self.books(&store).expect("the installation has books");
        let inbox = vec![0; self.requests.len()];
        let service = Service { lane: Arc::new(Self::lane()), inbox, is_morning: false };
        State {
            stored: hash(&store),
            store: Arc::new(store),
            books: Arc::new(books),
            services: [service.clone(), service],
            strays: Vec::new(),
            is_up: vec![true; self.gateways],
            requests: vec![Request::default(); self.requests.len()],
            acts: vec![false; self.acts.len()],
            faults: self.faults,
            revisions: 0,
        }
    }

    fn actions(&self, state: &State) -> Vec<Action> {
        let mut actions = Vec::new();
        self.actions_of_gateways(state, &mut actions);
        for service in 0..SERVICES {
            self.actions_of_service(state, service, &mut actions);
        }
        for stray in 0..state.strays.len() {
            actions.extend([Action::StrayCommits(stray), Action::StrayIsLost(stray)]);
        }
        actions
    }

    fn take(&self, state: &State, action: Action) -> Result<State, String> {
        let mut next = state.clone();
        match action {
            Action::Sends { .. }
            | Action::Finishes(_)
            | Action::Fails(_)
            | Action::GivesUp(_)
            | Action::IsOver(_)
            | Action::Spools(_)
            | Action::GatewayDies(_)
            | Action::GatewayReturns(_) => next.take_of_gateways(self, action),
            Action::Does { service, what, and } => {
                next.faults -= u8::from(and != Fate::Heard);
                if let Some(job) = next.job(what, service) {
                    next.carry_out(self, &job, service, and)?;
                }
            }
            Action::StrayCommits(stray) => {
                let sent = next.strays.remove(stray);
                next.write(self, &sent)?;
            }
            Action::StrayIsLost(stray) => drop(next.strays.remove(stray)),
            Action::Loses { request, kind, service } => {
                next.faults -= 1;
                next.services[service].inbox[request] &= !kind.bit();
            }
            Action::PassesMidnight(service) => next.services[service].is_morning = true,
        }
        next.forget_dead_strays();
        Ok(next)
    }

    fn is_optional(&self, action: Action) -> bool {
        match action {
            Action::GatewayDies(_)
            | Action::StrayIsLost(_)
            | Action::Loses { .. }
            | Action::Does { what: Task::Checks, .. } => true,
            Action::Does { and, .. } => and != Fate::Heard,
            Action::Sends { .. }
            | Action::Finishes(_)
            | Action::Fails(_)
            | Action::GivesUp(_)
            | Action::IsOver(_)
            | Action::Spools(_)
            | Action::GatewayReturns(_)
            | Action::StrayCommits(_)
            | Action::PassesMidnight(_) => false,
        }
    }

    fn rest(&self, state: &State) -> Result<(), String> {
        promises::at_rest(self, state)
    }

    fn sketch(&self, state: &State) -> Vec<u8> {
        let State { stored, services, strays, is_up, requests, acts, faults, store, .. } = state;
        let mut sketch = stored.to_vec();
        sketch.push(*faults);
        sketch.extend(is_up.iter().chain(acts).map(|is| u8::from(*is)));
        for request in requests {
            request.sketch(&mut sketch);
        }
        // Key-services differ only in their state, and strays have no order.
        let mut of_services = services.each_ref().map(|service| service.sketch(store));
        let mut of_strays: Vec<_> = strays.iter().map(|sent| sent.sketch(store)).collect();
        of_services.sort_unstable();
        of_strays.sort_unstable();
        for part in of_services.into_iter().chain(of_strays) {
            sketch.extend((part.len() as u64).to_be_bytes());
            sketch.extend(part);
        }
        sketch
    }
}

impl Setup {
    fn actions_of_service(&self, state: &State, service: usize, actions: &mut Vec<Action>) {
        let of = &state.services[service];
        for what in self.tasks(state, service) {
            actions.push(Action::Does { service, what, and: Fate::Heard });
            let has_effect = !matches!(what, Task::Ticks | Task::Checks);
            if state.faults > 0 && has_effect {
                let fates = [Fate::Unheard, Fate::Died];
                actions.extend(fates.map(|and| Action::Does { service, what, and }));
                if self.halves {
                    actions.push(Action::Does { service, what, and: Fate::Half });
                }
            }
        }
        if state.faults > 0 {
            actions.extend(of.waiting().map(|(request, kind)| Action::Loses { request, kind, service }));
        }
        if self.a_day.or(self.until_midnight).is_some() && !of.is_morning {
            actions.push(Action::PassesMidnight(service));
        }
    }

    fn tasks(&self, state: &State, service: usize) -> Vec<Task> {
        let of = &state.services[service];
        let mut tasks: Vec<_> = of.waiting().map(|(request, kind)| Task::Arrives(request, kind)).collect();
        if tasks.len() > 1 {
            tasks.push(Task::AllArrive);
        }
        let tick = state.books.account.tick;
        let mut is_running = false;
        for (request, record) in state.books.generations.iter().enumerate() {
            match record {
                Record::Open(hold) if hold.lease_until <= tick => tasks.push(Task::Expires(request)),
                Record::Open(_) => is_running = true,
                Record::None | Record::Closed(_) | Record::Deposited(_) => {}
            }
        }
        if is_running {
            tasks.push(Task::Ticks);
        }
        let unanswered = state.acts.iter().enumerate().filter(|(_, is_answered)| !**is_answered);
        tasks.extend(unanswered.map(|(act, _)| Task::Governs(act)));
        if self.checks {
            tasks.push(Task::Checks);
        }
        tasks
    }

    /// Returns the commands of a job; none if the job changes records in another way.
    fn commands(&self, job: &Job) -> Vec<Command> {
        match job {
            Job::Calls(calls) => calls.iter().map(|(request, kind)| self.command(*request, *kind)).collect(),
            Job::Tick(seen) => vec![Command::Tick { seen: Some(*seen) }],
            Job::Expire(request) => vec![self.expire(*request)],
            Job::Act(act) => self.acts[*act].command().into_iter().collect(),
            Job::Check => vec![Command::Check { key: key(0), credential: 0 }],
        }
    }
}
