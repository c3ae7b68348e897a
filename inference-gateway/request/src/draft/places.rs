//! Places in a body: of what an upstream may refuse, and of the messages within the body that is being written.

use std::ops::Range;

/// Places of the body that an upstream may refuse, where others take them.
#[derive(Clone, Default)]
pub(crate) struct RefusablePlaces {
    /// The first image.
    pub(crate) image: Option<String>,
    /// The first arguments of a call that are no JSON.
    pub(crate) arguments: Option<String>,
}

/// The messages of a chat within the body that is being written.
#[derive(Default)]
pub(crate) struct MessageList {
    /// Where the list begins.
    pub(super) start: usize,
    /// Where the first message of a user ends, or else the list.
    pub(super) turn: usize,
    /// System messages, in order.
    pub(super) systems: Vec<Range<usize>>,
}

impl MessageList {
    /// A list that begins at `start`.
    pub(crate) fn new(start: usize) -> Self {
        Self { start, turn: usize::MAX, systems: Vec::new() }
    }

    /// Notes a system message.
    pub(crate) fn system(&mut self, at: Range<usize>) {
        self.systems.push(at);
    }

    /// Notes that a message of a user ends here.
    pub(crate) fn user(&mut self, end: usize) {
        self.turn = self.turn.min(end);
    }

    /// Returns whether the only system message, if any, comes first.
    pub(super) fn is_ordered(&self) -> bool {
        match &self.systems[..] {
            [] => true,
            [only] => only.start == self.start + 1,
            _ => false,
        }
    }
}
