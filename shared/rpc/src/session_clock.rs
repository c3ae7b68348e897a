//! The clock of a session. Deadlines are sent as times on this clock.

use std::time::Duration;

use shared::time::millis;
use tokio::time::Instant;

/// The clock of a session: milliseconds since the key-service opened it. Deadlines use it, so that the clocks of two
/// machines are never compared.
#[derive(Clone, Copy, Debug)]
pub struct SessionClock {
    opened: Instant,
}

impl SessionClock {
    /// Starts the clock of a session that is opened at `now`.
    pub const fn starting(now: Instant) -> Self {
        Self { opened: now }
    }

    /// Copies the peer's clock, which read `clock_ms` in a frame that arrived at `now`. The copy is behind by the
    /// frame's delay, so converted deadlines come early.
    pub fn observed(now: Instant, clock_ms: u64) -> Self {
        Self { opened: now.checked_sub(Duration::from_millis(clock_ms)).unwrap_or(now) }
    }

    /// Returns the better of two observations, the one with the shorter delay.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { opened: self.opened.min(other.opened) }
    }

    /// Converts an instant to this clock.
    pub fn millis(&self, at: Instant) -> u64 {
        millis(at.saturating_duration_since(self.opened))
    }

    pub(super) fn instant(&self, clock_ms: u64) -> Option<Instant> {
        self.opened.checked_add(Duration::from_millis(clock_ms))
    }
}
