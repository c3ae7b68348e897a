//! What gateways know about their requests, and what they do.
//!
//! Simulates `open_hold.rs`, `settlement.rs` and `keys/orphans.rs` of `inference-gateway/holds`, with one phase for
//! each state there.

use domain::ledger::{Ending, Outcome, Refused};

use super::{
    setup::{Kind, Setup},
    state::{Action, Phase, Request, SERVICES, State},
};

impl Request {
    pub(super) fn sketch(&self, sketch: &mut Vec<u8>) {
        let Self { phase, copies, amount, has_reported, has_finished, is_over } = *self;
        sketch.extend([phase as u8, copies, has_reported.into(), has_finished.into(), is_over.into()]);
        sketch.extend(amount.to_be_bytes());
    }

    /// Returns the message that the gateway may send now.
    fn message(&self) -> Option<Kind> {
        match self.phase {
            Phase::New | Phase::Asked => Some(Kind::Hold),
            Phase::Open => (!self.has_reported).then_some(Kind::Extend),
            Phase::Capturing | Phase::Spooled => Some(Kind::Capture),
            Phase::Releasing | Phase::Orphan => Some(Kind::Release),
            Phase::Doubtful | Phase::Done | Phase::Lost => None,
        }
    }

    fn sent(&mut self, kind: Kind) {
        match kind {
            Kind::Hold => {
                self.phase = Phase::Asked;
                self.copies = (self.copies + 1).min(2);
            }
            Kind::Extend => self.has_reported = true,
            Kind::Capture | Kind::Release => {}
        }
    }

    /// Ends a request that was refused or released. If several copies of its authorization were sent, another copy may
    /// still open a hold.
    fn ended(&mut self) {
        self.phase = if self.copies > 1 { Phase::Doubtful } else { Phase::Done };
    }

    /// Receives an answer. Ignores an answer for which the request is no longer waiting.
    pub(super) fn hear(&mut self, kind: Kind, outcome: &Result<Outcome, Refused>) -> Result<(), String> {
        match (kind, self.phase, outcome) {
            (Kind::Hold, Phase::Asked, Ok(Outcome::Held { amount, .. })) => {
                (self.phase, self.amount) = (Phase::Open, amount.nanos());
            }
            (Kind::Hold, Phase::Asked, _) | (Kind::Release, Phase::Releasing, Ok(Outcome::Released)) => {
                self.ended();
            }
            (Kind::Extend, Phase::Open, Ok(Outcome::Extended { amount, .. })) => {
                self.amount = self.amount.max(amount.nanos());
            }
            (Kind::Capture, Phase::Capturing | Phase::Spooled, Ok(Outcome::Captured(settlement))) => {
                if settlement.ending != Ending::Captured {
                    return Err("a capture is answered with a captured bill".into());
                }
                self.phase = Phase::Done;
            }
            (Kind::Capture, Phase::Capturing | Phase::Spooled, answer) => {
                return Err(format!("a capture is billed, not answered with {answer:?}"));
            }
            (Kind::Release, Phase::Orphan, Ok(Outcome::Released)) => self.phase = Phase::Done,
            (Kind::Hold | Kind::Extend | Kind::Release | Kind::Capture, _, _) => {}
        }
        Ok(())
    }

    /// Loses what a gateway that dies has in memory about the request. The spool survives.
    fn forget(&mut self) {
        match self.phase {
            Phase::Spooled | Phase::Done => {}
            Phase::New
            | Phase::Asked
            | Phase::Open
            | Phase::Capturing
            | Phase::Releasing
            | Phase::Doubtful
            | Phase::Orphan
            | Phase::Lost => self.phase = Phase::Lost,
        }
    }
}

impl Setup {
    pub(super) fn actions_of_gateways(&self, state: &State, actions: &mut Vec<Action>) {
        for gateway in 0..self.gateways {
            let mine = (0..self.requests.len()).filter(|request| self.requests[*request].gateway == gateway);
            if !state.is_up[gateway] {
                if mine.clone().any(|request| state.requests[request].phase == Phase::Spooled) {
                    actions.push(Action::GatewayReturns(gateway));
                }
                continue;
            }
            if state.faults > 0 && mine.clone().any(|request| !is_done(state.requests[request].phase)) {
                actions.push(Action::GatewayDies(gateway));
            }
            mine.for_each(|request| self.actions_of_request(state, request, actions));
        }
    }

    fn actions_of_request(&self, state: &State, request: usize, actions: &mut Vec<Action>) {
        let of = state.requests[request];
        // Identical requests begin in their order. The other orders would lead to equivalent states.
        let is_alike = |before: usize| {
            state.requests[before].phase == Phase::New && self.requests[before] == self.requests[request]
        };
        if of.phase == Phase::New && (0..request).any(is_alike) {
            return;
        }
        let asked = &self.requests[request];
        if let Some(kind) = of.message().filter(|kind| *kind != Kind::Extend || asked.extension.is_some()) {
            let is_free = |service: &usize| state.services[*service].inbox[request] & kind.bit() == 0;
            let free: Vec<_> = (0..SERVICES).filter(is_free).collect();
            if free.len() + self.copies > SERVICES {
                actions.extend(free.into_iter().map(|service| Action::Sends { request, kind, service }));
            }
        }
        match of.phase {
            Phase::Asked if asked.may_fail => actions.push(Action::GivesUp(request)),
            Phase::Open => {
                actions.push(Action::Finishes(request));
                if asked.may_fail && !of.has_reported {
                    actions.push(Action::Fails(request));
                }
            }
            Phase::Capturing => actions.push(Action::Spools(request)),
            Phase::Doubtful if !state.is_authorizing(request) => actions.push(Action::IsOver(request)),
            Phase::New
            | Phase::Asked
            | Phase::Spooled
            | Phase::Releasing
            | Phase::Doubtful
            | Phase::Orphan
            | Phase::Done
            | Phase::Lost => {}
        }
    }
}

impl State {
    pub(super) fn take_of_gateways(&mut self, setup: &Setup, action: Action) {
        match action {
            Action::Sends { request, kind, service } => {
                self.services[service].inbox[request] |= kind.bit();
                self.requests[request].sent(kind);
            }
            Action::Finishes(request) => {
                let of = &mut self.requests[request];
                (of.phase, of.has_finished) = (Phase::Capturing, true);
            }
            Action::Fails(request) => self.requests[request].phase = Phase::Releasing,
            Action::GivesUp(request) => self.requests[request].phase = Phase::Doubtful,
            Action::IsOver(request) => {
                let of = &mut self.requests[request];
                (of.phase, of.is_over) = (Phase::Orphan, true);
            }
            Action::Spools(request) => self.requests[request].phase = Phase::Spooled,
            Action::GatewayDies(gateway) => {
                self.faults -= 1;
                self.is_up[gateway] = false;
                let of = self.requests.iter_mut().zip(&setup.requests);
                of.filter(|(_, asked)| asked.gateway == gateway).for_each(|(request, _)| request.forget());
            }
            Action::GatewayReturns(gateway) => self.is_up[gateway] = true,
            Action::Does { .. }
            | Action::StrayCommits(_)
            | Action::StrayIsLost(_)
            | Action::Loses { .. }
            | Action::PassesMidnight(_) => {}
        }
    }
}

/// Returns whether a gateway has nothing left to do for a request in this phase.
pub(super) const fn is_done(phase: Phase) -> bool {
    matches!(phase, Phase::Done | Phase::Lost)
}
