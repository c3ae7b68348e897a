//! Events that a commit writes, by size and time.

use shared::time::Timestamp;

/// Bytes of a logged value before the event's JSON: the event's id.
pub(crate) const ID: usize = 16;

/// Events that a commit has written.
#[derive(Clone, Copy)]
pub(crate) struct WrittenEvents {
    pub(crate) at: Timestamp,
    pub(crate) bytes: i64,
}

/// Returns the bytes of an event that count, which are those of its JSON.
pub(crate) fn size(value: &[u8]) -> i64 {
    i64::try_from(value.len().saturating_sub(ID)).unwrap_or(i64::MAX)
}
