//! Forms of answers that no API documents. They are read or skipped, and counted.

/// An undocumented form, counted by server to show operators what their servers send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oddity {
    /// A text was a list of parts.
    ContentList,
    /// A part of a text had an unknown type, and was skipped.
    Part,
    /// A text was an object, a number or a boolean.
    ContentType,
    /// Reasoning was a list or an object.
    ReasoningForm,
    /// A chunk of a stream had a whole message or a text instead of a delta.
    MessageInStream,
    /// The arguments of a call were not a text.
    ArgumentsType,
    /// The arguments of a call came only at its start, at its end, or with the last event.
    LateArguments,
    /// A text came only at its end, or with the last event.
    LateOutput,
    /// A call had the form that OpenAI replaced in 2023.
    OldCall,
    /// One answer came in several choices.
    ChoicesMerged,
    /// An answer ended without a reason.
    FinishMissing,
    /// An answer ended with a reason that no known server uses.
    FinishUnknown,
    /// The status of the last event contradicted its name, or the name was unknown.
    TerminalEvent,
    /// A second answer began within the first.
    Restarted,
    /// Tokens were reported, but no output.
    Empty,
    /// The usage was in an undocumented location.
    UsagePlace,
    /// An event was not a JSON object, or was broken JSON, or several objects.
    Frame,
    /// An item, a block or an event had an unknown type, and was skipped.
    UnknownItem,
    /// A whole answer came as a stream.
    SseForWhole,
    /// A stream came as a whole answer.
    WholeForStream,
    /// A member for errors was empty.
    EmptyError,
}

impl Oddity {
    pub const ALL: [Self; 21] = [
        Self::ContentList,
        Self::Part,
        Self::ContentType,
        Self::ReasoningForm,
        Self::MessageInStream,
        Self::ArgumentsType,
        Self::LateArguments,
        Self::LateOutput,
        Self::OldCall,
        Self::ChoicesMerged,
        Self::FinishMissing,
        Self::FinishUnknown,
        Self::TerminalEvent,
        Self::Restarted,
        Self::Empty,
        Self::UsagePlace,
        Self::Frame,
        Self::UnknownItem,
        Self::SseForWhole,
        Self::WholeForStream,
        Self::EmptyError,
    ];

    /// Returns the word used in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ContentList => "content_list",
            Self::Part => "part",
            Self::ContentType => "content_type",
            Self::ReasoningForm => "reasoning_form",
            Self::MessageInStream => "message_in_stream",
            Self::ArgumentsType => "arguments_type",
            Self::LateArguments => "late_arguments",
            Self::LateOutput => "late_output",
            Self::OldCall => "old_call",
            Self::ChoicesMerged => "choices_merged",
            Self::FinishMissing => "finish_missing",
            Self::FinishUnknown => "finish_unknown",
            Self::TerminalEvent => "terminal_event",
            Self::Restarted => "restarted",
            Self::Empty => "empty",
            Self::UsagePlace => "usage_place",
            Self::Frame => "frame",
            Self::UnknownItem => "unknown_item",
            Self::SseForWhole => "sse_for_whole",
            Self::WholeForStream => "whole_for_stream",
            Self::EmptyError => "empty_error",
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The oddities of an answer, each at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities(u32);

impl Oddities {
    pub const fn add(&mut self, oddity: Oddity) {
        self.0 |= oddity.bit();
    }

    pub const fn add_if(&mut self, oddity: Oddity, has: bool) {
        if has {
            self.add(oddity);
        }
    }

    pub const fn join(&mut self, other: Self) {
        self.0 |= other.0;
    }

    #[must_use]
    pub fn without(self, oddities: &[Oddity]) -> Self {
        Self(oddities.iter().fold(self.0, |bits, oddity| bits & !oddity.bit()))
    }

    pub const fn has(self, oddity: Oddity) -> bool {
        self.0 & oddity.bit() != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Oddity> {
        Oddity::ALL.into_iter().filter(move |oddity| self.0 & oddity.bit() != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_odd_form_is_told_once_and_no_other() {
        for oddity in Oddity::ALL {
            let mut oddities = Oddities::default();
            oddities.add(oddity);
            oddities.add(oddity);
            assert_eq!(oddities.iter().collect::<Vec<_>>(), [oddity]);
        }
        assert!(Oddities::default().is_empty());
    }
}
