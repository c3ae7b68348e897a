//! Pauses between retries that double, and vary at random so that many callers do not retry at the same moment.

use std::time::Duration;

use crate::timing::clock::{Clock, random_bytes};

/// The pauses in one series of attempts.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    step: Duration,
}

impl Backoff {
    /// Starts with a pause of about `first`. The following pauses double, but do not exceed `most`.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, step: first }
    }

    /// Returns the pause before the next attempt: it is between half of the present step and the whole step.
    pub fn pause(&mut self, clock: &dyn Clock) -> Duration {
        let step = self.step.min(self.most);
        self.step = step.saturating_mul(2).min(self.most);
        jittered(step, u16::from_le_bytes(random_bytes(clock)))
    }

    pub const fn reset(&mut self) {
        self.step = self.first;
    }
}

/// Returns a pause between half of a step and the whole step. `chance` is a random number that chooses it.
pub fn jittered(step: Duration, chance: u16) -> Duration {
    step / 2 + (step / 2).saturating_mul(chance.into()) / u32::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::clock::System;

    #[test]
    fn pauses_double_up_to_their_bound_and_vary() {
        let millis = Duration::from_millis;
        let mut backoff = Backoff::new(millis(20), millis(100));
        for step in [20, 40, 80, 100, 100] {
            let pause = backoff.pause(&System);
            assert!((millis(step) / 2..=millis(step)).contains(&pause), "{pause:?} of {step} ms");
        }
        backoff.reset();
        assert!(backoff.pause(&System) <= millis(20));
        let mut other = Backoff::new(Duration::from_hours(1), Duration::from_hours(1));
        assert_ne!(other.pause(&System), other.pause(&System));
    }
}
