//! Silence of an upstream that shows its progress. It may generate tokens that nothing shows, which must be held.

use std::time::Duration;

use metering::Pace;
use tokio::time::Instant;

use super::stream::Stream;

/// Time between two checks of a silent upstream, in which it generates some tens of tokens.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Stream {
    /// Notes the signs of output that were read. An upstream that gives one is not silent, and shows its pace.
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

    /// Counts for the hold what the upstream may have generated in its present silence.
    pub(super) fn count_silence(&mut self, now: Instant) {
        let tokens = self.silent_since().map_or(0, |since| {
            let silence = now.saturating_duration_since(since);
            self.running.fastest_pace().silent_tokens(silence, self.meter.open_choices())
        });
        self.meter.assume_silent(tokens);
    }

    /// Returns when to check an upstream that is silent, or becomes so.
    pub(super) fn next_look(&self, now: Instant) -> Option<Instant> {
        self.silent_since().map(|since| (since + Pace::SILENCE_AFTER).max(now + LOOK_EVERY))
    }

    /// Returns when the present silence began; `None` if nothing is generated in silence that is not held.
    fn silent_since(&self) -> Option<Instant> {
        let meter = &self.meter;
        let generates = self.pace.has_begun() && !meter.is_finished() && !meter.has_last_chunk();
        self.deadlines.silent_since().filter(|_| generates && meter.is_by_grants())
    }
}
