//! Places in a body: of parts that an upstream may refuse, and of the messages in the body that is written.

use std::ops::Range;

/// Places of parts that some upstreams refuse and others accept.
#[derive(Clone, Default)]
pub(crate) struct RefusablePlaces {
    pub(crate) image: Option<String>,
    /// The first arguments of a call that are not JSON.
    pub(crate) arguments: Option<String>,
}

/// Messages of a chat within the body that is written.
#[derive(Default)]
pub(crate) struct MessageList {
    pub(super) start: usize,
    /// End of the first message of a user or, without one, of the list.
    pub(super) turn: usize,
    /// Places of the system messages, in order.
    pub(super) systems: Vec<Range<usize>>,
}

impl MessageList {
    pub(crate) fn new(start: usize) -> Self {
        Self { start, turn: usize::MAX, systems: Vec::new() }
    }

    pub(crate) fn system(&mut self, at: Range<usize>) {
        self.systems.push(at);
    }

    /// Notes that a message of a user ends here.
    pub(crate) fn user(&mut self, end: usize) {
        self.turn = self.turn.min(end);
    }

    /// Returns whether the system message is the only one and comes first, or there is none.
    pub(super) fn is_ordered(&self) -> bool {
        match &self.systems[..] {
            [] => true,
            [only] => only.start == self.start + 1,
            _ => false,
        }
    }
}
