//! A time for judging the age of records: a clock that is briefly ahead must not make housekeeping forget bills.

use std::time::Duration;

use shared::time::Timestamp;
use tokio::time::Instant;

/// Two readings of the clock at least this long apart have to agree.
pub(crate) const APART: Duration = Duration::from_mins(10);

/// Readings of the wall clock. The steady time is never later than any reading plus the monotonic time passed since.
#[derive(Debug, Default)]
pub(crate) struct SteadyTime {
    earlier: Option<ClockLook>,
    last: Option<ClockLook>,
}

#[derive(Clone, Copy, Debug)]
struct ClockLook {
    at: Instant,
    now: Timestamp,
}

impl SteadyTime {
    /// Records a reading of the clock. Returns the steady time once a reading is at least [`APART`] old.
    pub(crate) fn look(&mut self, at: Instant, now: Timestamp) -> Option<Timestamp> {
        let is_old = |look: ClockLook| at.saturating_duration_since(look.at) >= APART;
        match self.last {
            Some(last) if is_old(last) => {
                (self.earlier, self.last) = (Some(last), Some(ClockLook { at, now }));
            }
            Some(_) => {}
            None => self.last = Some(ClockLook { at, now }),
        }
        self.earlier?;
        let looks = self.earlier.into_iter().chain(self.last);
        let later = looks.map(|look| look.now.plus(at.saturating_duration_since(look.at)));
        Some(later.fold(now, Timestamp::min))
    }
}

#[cfg(test)]
mod tests {
    use domain::ledger::histories::START;

    use super::*;

    #[test]
    fn a_clock_that_is_ahead_at_one_look_makes_nothing_old() {
        let (began, ahead) = (Instant::now(), Duration::from_hours(5));
        for ahead_at in 0..6_u32 {
            let mut steady = SteadyTime::default();
            for n in 0..6 {
                let passed = n * APART;
                let true_time = START.plus(passed);
                let now = if n == ahead_at { true_time.plus(ahead) } else { true_time };
                let found = steady.look(began + passed, now);
                assert_eq!(found, (n > 0).then_some(true_time), "ahead at look {ahead_at}, look {n}");
            }
        }
    }

    #[test]
    fn a_clock_that_was_set_right_is_believed_at_the_second_look_after() {
        let (began, behind) = (Instant::now(), START.minus(Duration::from_hours(24 * 365)));
        let mut steady = SteadyTime::default();
        assert_eq!(steady.look(began, behind), None);
        assert_eq!(steady.look(began + APART, START), Some(behind.plus(APART)));
        assert_eq!(steady.look(began + 2 * APART, START.plus(APART)), Some(START.plus(APART)));
    }
}
