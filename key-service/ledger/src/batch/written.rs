//! Size and time of the events that a commit writes.

use shared::time::Timestamp;

/// Length in bytes of the event's id, which precedes its JSON in the log.
pub(crate) const ID: usize = 16;

/// Events that a commit has written.
#[derive(Clone, Copy)]
pub(crate) struct WrittenEvents {
    pub(crate) at: Timestamp,
    pub(crate) bytes: i64,
}

/// Returns the size of an event's JSON; the limits on an account's events count only this.
pub(crate) fn size(value: &[u8]) -> i64 {
    i64::try_from(value.len().saturating_sub(ID)).unwrap_or(i64::MAX)
}
