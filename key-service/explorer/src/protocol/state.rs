//! An installation between two steps, and the steps.

use std::sync::Arc;

use ::ledger::stepped::{Books, SteppedLane};
use records::maps::SpaceMaps;

use super::{sent::Sent, setup::Kind};

/// Number of key-services.
pub(super) const SERVICES: usize = 2;

/// An installation between two steps.
#[derive(Clone)]
pub(super) struct State {
    pub(super) store: Arc<SpaceMaps>,
    /// Hash of the records.
    pub(super) stored: [u8; 32],
    /// The books that the store has.
    pub(super) books: Arc<Books>,
    pub(super) services: [Service; SERVICES],
    /// Commits still on their way to the store after their key-services died.
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
    /// Copies of messages that have not arrived, by request: a bit for each kind.
    pub(super) inbox: Vec<u8>,
    /// Whether the clock has passed midnight.
    pub(super) is_morning: bool,
}

/// What can happen next.
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
    /// The authorization can no longer take effect.
    IsOver(usize),
    /// The gateway writes the capture to its spool.
    Spools(usize),
    GatewayDies(usize),
    GatewayReturns(usize),
    /// A key-service carries something out.
    Does {
        service: usize,
        what: Task,
        and: Fate,
    },
    /// A commit of a key-service that has died reaches the store.
    StrayCommits(usize),
    StrayIsLost(usize),
    /// A message is lost.
    Loses {
        request: usize,
        kind: Kind,
        service: usize,
    },
    PassesMidnight(usize),
}

/// What a key-service begins to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Arrives(usize, Kind),
    /// All messages arrive together.
    AllArrive,
    Ticks,
    Expires(usize),
    Governs(usize),
    Checks,
}

/// How a task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The callers hear the answers.
    Heard,
    /// The answers are lost.
    Unheard,
    /// The key-service dies, or gives up, with its commit on its way.
    Died,
    /// The store writes half of the commit, and the key-service forgets its copies: a script that fails after its first
    /// write, or a file that was torn.
    Half,
}

/// A request, as its gateway knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) phase: Phase,
    /// Number of copies of the authorization that were sent; 2 means two or more.
    pub(super) copies: u8,
    /// Amount that the gateway knows to be held.
    pub(super) amount: i64,
    /// Whether an extension with a report was sent.
    pub(super) has_reported: bool,
    /// Whether the request was served to its end.
    pub(super) has_finished: bool,
    /// Whether the time until which the authorization may take effect is over.
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
    /// The capture is sent until it is confirmed.
    Capturing,
    /// The same, and the spool has the capture.
    Spooled,
    /// The release is sent until it is confirmed.
    Releasing,
    /// A hold that no request uses may still be opened. Once that can no longer happen, the hold is released.
    Doubtful,
    /// The release of such a hold is sent.
    Orphan,
    /// Nothing is left to do.
    Done,
    /// The gateway has died and no longer knows the request.
    Lost,
}

impl Service {
    /// Lists the copies of messages that have not arrived.
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
