//! The clock of a session. Deadlines are sent as times on this clock.

use std::time::Duration;

use shared::time::millis;
use tokio::time::Instant;

/// The clock of a session: milliseconds since the key-service opened it. Deadlines are written as times on this clock,
/// so that the clocks of two machines are never compared.
#[derive(Clone, Copy, Debug)]
pub struct SessionClock {
    opened: Instant,
}

impl SessionClock {
    /// Starts the clock of a session that is opened at this instant.
    pub const fn starting(now: Instant) -> Self {
        Self { opened: now }
    }

    /// Copies the clock of the peer. A frame that arrived at `now` says that the clock showed `clock_ms`. The copy is
    /// slow by the time that the frame was on its way. So the peer reaches a deadline early if the deadline was
    /// converted with the copy.
    pub fn observed(now: Instant, clock_ms: u64) -> Self {
        Self { opened: now.checked_sub(Duration::from_millis(clock_ms)).unwrap_or(now) }
    }

    /// Returns the better of two copies: the one whose frame was on its way for a shorter time.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { opened: self.opened.min(other.opened) }
    }

    /// Converts an instant to a time on this clock.
    pub fn millis(&self, at: Instant) -> u64 {
        millis(at.saturating_duration_since(self.opened))
    }

    pub(super) fn instant(&self, clock_ms: u64) -> Option<Instant> {
        self.opened.checked_add(Duration::from_millis(clock_ms))
    }
}
