//! Silence of an upstream that shows its progress. It may be generating tokens unseen, which must be held.

use std::time::Duration;

use metering::Pace;
use tokio::time::Instant;

use super::stream::Stream;

/// Time between two checks of a silent upstream, in which it may generate some tens of tokens.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Stream {
    /// Notes signs of output. They end the silence and show the upstream's pace.
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

    /// Counts towards the hold what the upstream may have generated in the current silence.
    pub(super) fn count_silence(&mut self, now: Instant) {
        let tokens = self.silent_since().map_or(0, |since| {
            let silence = now.saturating_duration_since(since);
            self.running.fastest_pace().silent_tokens(silence, self.meter.open_choices())
        });
        self.meter.assume_silent(tokens);
    }

    /// Returns when to check an upstream that is or becomes silent.
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
