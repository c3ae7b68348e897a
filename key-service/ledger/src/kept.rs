//! What the ledger keeps, and how long.

use std::time::Duration;

/// How long the ledger's records are kept.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Number of entries of the journal.
    pub journal_entries: u64,
    /// Bounds of the events.
    pub events: EventBounds,
    /// Time for which bills of expiries are remembered.
    pub expired: Duration,
    /// Days of the sums of usage; `None` for all.
    pub usage_days: Option<u32>,
}

/// Life of events unless configured otherwise: a year, and time to read what it began with.
pub const EVENTS_KEPT: Duration = Duration::from_hours(400 * 24);
/// Events that an account keeps: a hundred acts a day for longer than [`EVENTS_KEPT`], and with indexes some 60 MB of Redis.
const MAX_EVENTS: u64 = 100_000;
/// Bytes of events that an account keeps, without indexes: 670 for each of [`MAX_EVENTS`], which is more than most acts write.
const MAX_EVENT_BYTES: u64 = 64 << 20;

/// Bounds of the events that an account keeps. The oldest are dropped first; the latest always stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventBounds {
    /// Life of an event.
    pub life: Duration,
    /// Number of events.
    pub count: u64,
    /// Bytes of the events, as the store writes each.
    pub bytes: u64,
}

impl EventBounds {
    /// The bounds with this life of events.
    pub const fn with_life(life: Duration) -> Self {
        Self { life, count: MAX_EVENTS, bytes: MAX_EVENT_BYTES }
    }
}
