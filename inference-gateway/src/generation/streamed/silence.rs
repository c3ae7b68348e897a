//! Handles the silence of an upstream that shows its progress. During silence, the upstream may generate tokens that
//! nobody sees, and these must be held.

use std::time::Duration;

use metering::Pace;
use tokio::time::Instant;

use super::stream::Stream;

/// Time between two checks of a silent upstream. In this time, it may generate some tens of tokens.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Stream {
    /// Notes signs of output. These end the silence and show the upstream's pace.
    pub(super) fn hear(&mut self, now: Instant) {
        let counter = self.meter.counter();
        if counter.signs() == self.signs {
            return;
        }
        self.signs = counter.signs();
        if let Some(pace) = self.pace.counted(counter.completion(), now.duration_since(self.began)) {
            self.running.observe_pace(pace);
        }
        self.meter.assume_silent(0);
        self.deadlines.heard(now);
    }

    /// Counts the tokens that the upstream may have generated during the current silence, so that the hold must cover
    /// them.
    pub(super) fn count_silence(&mut self, now: Instant) {
        let tokens = self.silent_since().map_or(0, |since| {
            let silence = now.saturating_duration_since(since);
            self.running.fastest_pace().silent_tokens(silence, self.meter.open_choices())
        });
        self.meter.assume_silent(tokens);
    }

    /// Returns when to check for silence next, whether or not the upstream is silent now.
    pub(super) fn next_look(&self, now: Instant) -> Option<Instant> {
        self.silent_since().map(|since| (since + Pace::SILENCE_AFTER).max(now + LOOK_EVERY))
    }

    /// Returns when the current silence began; `None` if the hold covers all that can be generated during it.
    fn silent_since(&self) -> Option<Instant> {
        let meter = &self.meter;
        let generates = self.pace.has_begun() && !meter.is_finished() && !meter.has_last_chunk();
        self.deadlines.silent_since().filter(|_| generates && meter.is_by_grants())
    }
}
