//! Amount and age of what the ledger keeps.

pub(crate) mod dropped;

use std::time::Duration;

/// Bounds of the ledger's records, by number and by age.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Number of entries of the journal.
    pub journal_entries: u64,
    pub events: EventBounds,
    /// Time for which bills of expiries are remembered.
    pub expired: Duration,
    /// Days of the sums of usage; `None` for all.
    pub usage_days: Option<u32>,
}

/// Life of events unless configured otherwise: a year, and some time to read its first ones.
pub const EVENTS_KEPT: Duration = Duration::from_hours(400 * 24);
/// Events that an account keeps: a hundred acts a day for longer than [`EVENTS_KEPT`]. With indexes, they take some 60
/// MB of Redis.
const MAX_EVENTS: u64 = 100_000;
/// Bytes of events that an account keeps, without indexes. They are 670 for each of [`MAX_EVENTS`], more than most acts
/// write.
const MAX_EVENT_BYTES: u64 = 64 << 20;

/// Bounds of an account's events. The oldest are dropped first; the latest always stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventBounds {
    pub life: Duration,
    pub count: u64,
    /// Bytes of the events, as the store writes each.
    pub bytes: u64,
}

impl EventBounds {
    pub const fn with_life(life: Duration) -> Self {
        Self { life, count: MAX_EVENTS, bytes: MAX_EVENT_BYTES }
    }
}
