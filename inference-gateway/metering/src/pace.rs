//! The pace of an upstream's generation, to estimate how many tokens it may have generated silently.

use std::time::Duration;

/// Minimum time over which a pace is measured. Over a shorter time, tokens that arrive together would seem faster than
/// any model.
const MEASURED_OVER: Duration = Duration::from_millis(250);
/// Longest pause between two tokens that does not count as silence. A batch of prompts or a busy gateway can cause one,
/// and the next report shows what was generated during a shorter pause.
const SILENCE_AFTER: Duration = Duration::from_secs(1);
/// Pace assumed for each choice before any was measured, in tokens per second. Most models are slower.
const UNSEEN_PER_SECOND: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pace {
    /// Output tokens per second, for each choice.
    pub per_second: u64,
}

/// Measures the pace of a stream.
#[derive(Clone, Copy, Debug)]
pub struct PaceMeter {
    choices: u64,
    /// Time and count of the first output.
    first: Option<(Duration, u64)>,
}

impl Pace {
    /// Pace assumed for an upstream before any was measured.
    pub const UNSEEN: Self = Self { per_second: UNSEEN_PER_SECOND };

    /// Longest pause between two tokens that does not count as silence.
    pub const SILENCE_AFTER: Duration = SILENCE_AFTER;

    /// Returns the tokens that this many choices may have generated in this time without a sign of output.
    pub fn silent_tokens(self, time: Duration, choices: u64) -> u64 {
        if time < SILENCE_AFTER {
            return 0;
        }
        let tokens = time.as_millis() * u128::from(self.per_second) * u128::from(choices) / 1_000;
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }
}

impl PaceMeter {
    /// Starts measuring a stream of this many choices, before its first output.
    pub const fn new(choices: u64) -> Self {
        Self { choices, first: None }
    }

    /// Notes the output tokens counted at `at`, a time since any fixed instant. Returns the average pace since the
    /// first output, once enough time has passed. The average evens out tokens that arrive together after a wait.
    pub fn counted(&mut self, tokens: u64, at: Duration) -> Option<Pace> {
        if tokens == 0 {
            return None;
        }
        let (began, first) = *self.first.get_or_insert((at, tokens));
        let took = at.saturating_sub(began);
        if took < MEASURED_OVER {
            return None;
        }
        let tokens = u128::from(tokens.saturating_sub(first)) * 1_000;
        let per_second = tokens.div_ceil(took.as_millis() * u128::from(self.choices.max(1)));
        Some(Pace { per_second: u64::try_from(per_second).unwrap_or(u64::MAX) })
    }

    /// Returns whether the first output has arrived.
    pub const fn has_begun(&self) -> bool {
        self.first.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_pace_is_that_of_a_choice_since_the_first_token() {
        let mut meter = PaceMeter::new(2);
        assert!(meter.counted(0, ms(0)).is_none() && !meter.has_begun());
        assert_eq!(meter.counted(4, ms(1_000)), None);
        assert_eq!(meter.counted(80, ms(1_249)), None, "too short");
        assert!(meter.has_begun());
        assert_eq!(meter.counted(104, ms(2_000)), Some(Pace { per_second: 50 }));
        assert_eq!(meter.counted(105, ms(11_000)), Some(Pace { per_second: 6 }));
    }

    #[test]
    fn a_pause_is_no_silence_and_a_silence_counts_from_its_begin() {
        let pace = Pace { per_second: 50 };
        assert_eq!(pace.silent_tokens(ms(999), 1), 0);
        assert_eq!(pace.silent_tokens(ms(1_000), 1), 50);
        assert_eq!(pace.silent_tokens(ms(2_500), 4), 500);
        assert_eq!(Pace { per_second: u64::MAX }.silent_tokens(ms(2_000), 8), u64::MAX);
    }
}
