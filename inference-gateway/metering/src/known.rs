//! What is known about a stream so far.

use answer::Oddities;
use shared::tokens::Usage;

use crate::{meter::StreamMeter, usage::UsageCounter};

impl StreamMeter {
    /// Returns whether the upstream may generate more than is granted, so that its silence must be watched.
    pub fn is_by_grants(&self) -> bool {
        !self.granted.is_complete()
    }

    /// Returns whether an event waits for more tokens to be granted.
    pub const fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Returns whether every requested choice has its finish reason and no choice continues, so that only usage and
    /// `[DONE]` may be missing.
    pub fn is_finished(&self) -> bool {
        self.writer.finished_choices() >= self.choices && !self.goes_on
    }

    /// Counts the requested choices that are not finished, including those that have not begun; at least one is
    /// returned.
    pub fn open_choices(&self) -> u64 {
        self.choices.saturating_sub(self.writer.finished_choices()).max(1)
    }

    /// Returns whether a chunk without choices came after every choice that began had its finish reason. It ends the
    /// stream, unless more choices begin.
    pub const fn has_last_chunk(&self) -> bool {
        self.last_chunk
    }

    /// Returns whether every choice that began has its finish reason. More choices may follow.
    pub fn is_complete(&self) -> bool {
        self.writer.is_finished()
    }

    /// Returns whether only usage may be missing. An upstream may make fewer choices than requested.
    pub fn may_be_finished(&self) -> bool {
        self.is_complete() && !self.goes_on
    }

    /// Returns whether usage was reported for everything delivered.
    pub const fn is_reported(&self) -> bool {
        !self.counter.is_estimate()
    }

    /// Returns whether any output was received or reported.
    pub fn has_begun(&self) -> bool {
        self.begun || self.counter.completion() > 0
    }

    /// Returns whether a stream that fails now costs nothing: it had no output, and all of it could be read.
    pub fn is_free(&self) -> bool {
        !self.has_begun() && !self.is_unreadable
    }

    /// Returns whether the stream ended because it could not be read.
    pub const fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// Returns whether the upstream ended an answer without any content.
    pub const fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Returns the oddities in the answer.
    pub const fn oddities(&self) -> Oddities {
        self.odd
    }

    /// Counts the events that were skipped because they were too long.
    pub const fn too_long_events(&self) -> u64 {
        self.too_long
    }

    /// Returns the number of prompt tokens that the upstream reported, if it has.
    pub fn reported_prompt(&self) -> Option<u64> {
        self.counter.reported().prompt
    }

    pub const fn counter(&self) -> &UsageCounter {
        &self.counter
    }

    /// Returns the first finish reason received that is not among those of known servers, if any.
    pub fn unknown_finish(&self) -> Option<&str> {
        self.unknown_finish.as_deref()
    }

    /// Returns the usage so far.
    pub fn usage(&self) -> Usage {
        self.counter.usage()
    }
}
