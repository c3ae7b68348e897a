//! Locations, in a body, of parts that an upstream may refuse, and of parts that are written differently for some
//! servers.

use std::ops::Range;

use reply::carried::{self, ServerId};
use token_bounds::PromptSize;

/// Locations of parts that some upstreams refuse and others accept.
#[derive(Clone, Default)]
pub(crate) struct RefusablePlaces {
    pub(crate) image: Option<String>,
    /// Location of the first arguments of a call that are not JSON.
    pub(crate) arguments: Option<String>,
}

/// Maximum number of servers in a conversation that get their parts back. Further servers get nothing.
const MOST_SERVERS: usize = 16;

/// Sizes of the parts that a conversation carries for each server.
#[derive(Default)]
pub(crate) struct CarriedSizes(Vec<(ServerId, PromptSize)>);

impl CarriedSizes {
    /// Counts a text that only its own server gets.
    pub(super) fn add(&mut self, text: &str) {
        let Some(server) = carried::server_of(text) else { return };
        if let Some((_, shown)) = self.0.iter_mut().find(|(known, _)| *known == server) {
            shown.text(text);
        } else if self.0.len() < MOST_SERVERS || server == ServerId::ANY {
            let mut shown = PromptSize::default();
            shown.text(text);
            self.0.push((server, shown));
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ServerId, &PromptSize)> {
        self.0.iter().map(|(server, shown)| (*server, shown))
    }
}

/// Locations of a chat's messages in the written body.
#[derive(Default)]
pub(crate) struct MessageList {
    pub(super) start: usize,
    /// End of the last message.
    pub(super) end: usize,
    /// End of the first user message.
    turn: Option<usize>,
    /// Locations of the system messages, in order.
    pub(super) systems: Vec<SystemPlace>,
    is_after_user: bool,
}

pub(super) struct SystemPlace {
    pub(super) at: Range<usize>,
    /// Whether a user message comes directly before this system message.
    pub(super) is_after_user: bool,
}

/// A part of a chat that is written differently for some servers.
pub(crate) enum Mark {
    /// Members that only some servers accept.
    Optional(Range<usize>),
    /// A call: the location of its id, and where to insert further members.
    Call { id: Range<usize>, end: usize },
    /// The id in a tool's answer.
    Answer(Range<usize>),
    /// Members at the end of an earlier answer.
    Answered(AnsweredPlace),
}

/// Location of the members at the end of an earlier answer, starting with its reasoning.
pub(crate) struct AnsweredPlace {
    pub(super) members: Range<usize>,
    pub(super) reasoning: Option<Range<usize>>,
    pub(super) has_calls: bool,
    /// Whether a chat client sent the reasoning under the name used in the draft.
    pub(super) is_as_sent: bool,
}

impl MessageList {
    pub(crate) fn new(start: usize) -> Self {
        Self { start, ..Self::default() }
    }

    pub(crate) fn system(&mut self, at: Range<usize>) {
        self.systems.push(SystemPlace { at, is_after_user: self.is_after_user });
    }

    /// Notes that a user message ends here.
    pub(crate) fn user(&mut self, end: usize) {
        self.turn.get_or_insert(end);
        self.is_after_user = true;
    }

    /// Notes a message of the model or of a tool.
    pub(crate) fn other(&mut self) {
        self.is_after_user = false;
    }

    /// Returns where the opening messages end: after the first user message, or at the end of the list.
    pub(super) fn opening_end(&self, end: usize) -> usize {
        self.turn.unwrap_or(end)
    }

    /// Counts the system messages at the front.
    pub(super) fn leading_systems(&self) -> usize {
        let mut next = self.start + 1;
        let leads = |system: &&SystemPlace| {
            let leads = system.at.start == next;
            next = system.at.end + 1;
            leads
        };
        self.systems.iter().take_while(leads).count()
    }
}
