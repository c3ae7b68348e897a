//! The state of an installation between two steps, and the possible steps.

use std::sync::Arc;

use ::ledger::stepped::{Books, SteppedLane};
use records::maps::SpaceMaps;

use super::{sent::Sent, setup::Kind};

/// Number of key-services.
pub(super) const SERVICES: usize = 2;

/// The state of an installation between two steps.
#[derive(Clone)]
pub(super) struct State {
    pub(super) store: Arc<SpaceMaps>,
    /// Hash of the records.
    pub(super) stored: [u8; 32],
    /// The books in the store's records.
    pub(super) books: Arc<Books>,
    pub(super) services: [Service; SERVICES],
    /// Commits that are still on their way to the store although their key-services have died.
    pub(super) strays: Vec<Arc<Sent>>,
    pub(super) is_up: Vec<bool>,
    pub(super) requests: Vec<Request>,
    /// Whether each action of the owner was answered.
    pub(super) acts: Vec<bool>,
    pub(super) faults: u8,
    pub(super) revisions: u64,
}

#[derive(Clone)]
pub(super) struct Service {
    pub(super) lane: Arc<SteppedLane>,
    /// For each request, the kinds of messages of which a copy is on its way, as one bit each.
    pub(super) inbox: Vec<u8>,
    /// Whether the clock has passed midnight.
    pub(super) is_morning: bool,
}

/// A step: something that can happen next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// A gateway sends a copy of a message.
    Sends {
        request: usize,
        kind: Kind,
        service: usize,
    },
    /// The client is served to the end.
    Finishes(usize),
    /// The upstream fails before its first token.
    Fails(usize),
    /// The gateway stops waiting for the authorization.
    GivesUp(usize),
    /// The time ends during which the request's authorization may take effect.
    IsOver(usize),
    /// The gateway writes the capture to its spool.
    Spools(usize),
    GatewayDies(usize),
    GatewayReturns(usize),
    /// A key-service carries out a task.
    Does {
        service: usize,
        what: Task,
        and: Fate,
    },
    /// A commit reaches the store after its key-service has died.
    StrayCommits(usize),
    StrayIsLost(usize),
    /// A copy of a message is lost.
    Loses {
        request: usize,
        kind: Kind,
        service: usize,
    },
    PassesMidnight(usize),
}

/// What a key-service does in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Arrives(usize, Kind),
    /// All messages on their way to the key-service arrive together.
    AllArrive,
    Ticks,
    Expires(usize),
    Governs(usize),
    Checks,
}

/// How a step of a key-service ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The commit is written, and the callers get the answers.
    Heard,
    /// The commit is written, but the answers are lost.
    Unheard,
    /// The key-service dies or gives up while its commit is on its way to the store.
    Died,
    /// The store writes only half of the commit, as after a script that fails midway or with a file that was torn. The
    /// key-service forgets its copies.
    Half,
}

/// A request, as its gateway knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) phase: Phase,
    /// How many copies of the authorization were sent; 2 stands for two or more.
    pub(super) copies: u8,
    /// Amount of the hold, according to the last answer that the gateway received.
    pub(super) amount: i64,
    /// Whether an extension with a report was sent.
    pub(super) has_reported: bool,
    /// Whether the request was served to its end.
    pub(super) has_finished: bool,
    /// Whether the time has ended during which the authorization may take effect.
    pub(super) is_over: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    New,
    /// The authorization was sent.
    Asked,
    /// The hold is open, and the upstream works.
    Open,
    /// The gateway sends the capture until it is confirmed.
    Capturing,
    /// The gateway sends the capture until it is confirmed, and has also written it to its spool.
    Spooled,
    /// The gateway sends the release until it is confirmed.
    Releasing,
    /// A copy of the authorization may still open a hold that no request needs. Once that is no longer possible, the
    /// gateway releases the hold.
    Doubtful,
    /// The gateway sends the release of a hold that no request needs.
    Orphan,
    /// Nothing is left to do.
    Done,
    /// The gateway has died and no longer knows the request.
    Lost,
}

impl Service {
    /// Lists the copies of messages that are on their way to the key-service.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (usize, Kind)> {
        self.inbox.iter().enumerate().flat_map(|(request, bits)| {
            Kind::ALL.into_iter().filter(move |kind| bits & kind.bit() != 0).map(move |kind| (request, kind))
        })
    }

    pub(super) fn sketch(&self, store: &SpaceMaps) -> Vec<u8> {
        let mut sketch = self.inbox.clone();
        sketch.push(u8::from(self.is_morning));
        self.lane.sketch(store, &mut sketch);
        sketch
    }
}
