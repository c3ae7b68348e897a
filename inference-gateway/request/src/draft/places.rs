//! Places in a body: of parts that an upstream may refuse, and of parts of a chat that servers take in different forms.

use std::ops::Range;

use reply::carried::{self, ServerId};
use token_bounds::PromptSize;

/// Places of parts that some upstreams refuse and others accept.
#[derive(Clone, Default)]
pub(crate) struct RefusablePlaces {
    pub(crate) image: Option<String>,
    /// The first arguments of a call that are not JSON.
    pub(crate) arguments: Option<String>,
}

/// Most servers of a conversation that get back what they made. Further ones get nothing.
const MOST_SERVERS: usize = 16;

/// Sizes of what the earlier answers of a conversation have for their servers.
#[derive(Default)]
pub(crate) struct CarriedSizes(Vec<(ServerId, PromptSize)>);

impl CarriedSizes {
    /// Counts a text that only its server gets.
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

/// Messages of a chat within the body that is written.
#[derive(Default)]
pub(crate) struct MessageList {
    pub(super) start: usize,
    /// End of the last message.
    pub(super) end: usize,
    /// End of the first message of a user.
    turn: Option<usize>,
    /// Places of the system messages, in order.
    pub(super) systems: Vec<SystemPlace>,
    is_after_user: bool,
}

/// Place of a system message.
pub(super) struct SystemPlace {
    pub(super) at: Range<usize>,
    /// A message of a user comes right before it.
    pub(super) is_after_user: bool,
}

/// A part of a chat that servers take in different forms.
pub(crate) enum Mark {
    /// Members that not all kinds of servers take.
    Optional(Range<usize>),
    /// A call: its id, and the place of further members.
    Call { id: Range<usize>, end: usize },
    /// The id of the call that a tool answers.
    Answer(Range<usize>),
    /// Members at the end of an earlier answer.
    Answered(AnsweredPlace),
}

/// Place of the members at the end of an earlier answer, which begin with its reasoning.
pub(crate) struct AnsweredPlace {
    pub(super) members: Range<usize>,
    /// Place of the reasoning's value.
    pub(super) reasoning: Option<Range<usize>>,
    pub(super) has_calls: bool,
    /// A client of chats sent the reasoning under the name that it has in the draft.
    pub(super) is_as_sent: bool,
}

impl MessageList {
    pub(crate) fn new(start: usize) -> Self {
        Self { start, ..Self::default() }
    }

    pub(crate) fn system(&mut self, at: Range<usize>) {
        self.systems.push(SystemPlace { at, is_after_user: self.is_after_user });
    }

    /// Notes that a message of a user ends here.
    pub(crate) fn user(&mut self, end: usize) {
        self.turn.get_or_insert(end);
        self.is_after_user = true;
    }

    /// Notes a message of the model or a tool.
    pub(crate) fn other(&mut self) {
        self.is_after_user = false;
    }

    /// Returns the end of the messages that open the conversation: of the first one of a user, or else of the list.
    pub(super) fn opening_end(&self, end: usize) -> usize {
        self.turn.unwrap_or(end)
    }

    /// Counts the system messages that come first.
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
