//! How much the ledger keeps, and for how long.

pub(crate) mod dropped;

use std::time::Duration;

/// Limits on the ledger's records, by number and age.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Maximum number of an account's journal entries.
    pub journal_entries: u64,
    pub events: EventBounds,
    /// How long bills of expiries are remembered.
    pub expired: Duration,
    /// Number of days for which usage sums are kept; `None` if they are kept forever.
    pub usage_days: Option<u32>,
}

/// How long events are kept by default: a year, plus some time in which the oldest events can still be read.
pub const EVENTS_KEPT: Duration = Duration::from_hours(400 * 24);
/// Maximum number of an account's events: enough for a hundred changes a day for longer than [`EVENTS_KEPT`]. This many
/// events with their indexes take about 60 MB in Redis.
const MAX_EVENTS: u64 = 100_000;
/// Maximum number of bytes of an account's events, without indexes: 670 bytes for each of [`MAX_EVENTS`] events, which
/// is more than most events need.
const MAX_EVENT_BYTES: u64 = 64 << 20;

/// Limits on an account's events. The oldest events are dropped first. The latest event is never dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventBounds {
    pub life: Duration,
    pub count: u64,
    /// Total bytes of the events' JSON.
    pub bytes: u64,
}

impl EventBounds {
    pub const fn with_life(life: Duration) -> Self {
        Self { life, count: MAX_EVENTS, bytes: MAX_EVENT_BYTES }
    }
}
