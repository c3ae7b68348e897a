//! How much the ledger keeps, and for how long.

pub(crate) mod dropped;

use std::time::Duration;

/// Bounds of the ledger's records, by number and age.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Number of entries of the journal.
    pub journal_entries: u64,
    pub events: EventBounds,
    /// How long bills of expiries are remembered.
    pub expired: Duration,
    /// Days that usage sums are kept; `None` for ever.
    pub usage_days: Option<u32>,
}

/// Default life of events: a year, plus some time to read the oldest ones.
pub const EVENTS_KEPT: Duration = Duration::from_hours(400 * 24);
/// Most events of an account: a hundred changes a day for longer than [`EVENTS_KEPT`]. With indexes, they take about 60
/// MB in Redis.
const MAX_EVENTS: u64 = 100_000;
/// Most bytes of an account's events, without indexes: 670 for each of [`MAX_EVENTS`], more than most changes write.
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
