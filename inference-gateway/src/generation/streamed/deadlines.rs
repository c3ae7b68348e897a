//! The times of a stream: its upstream's silence, the silence towards its client, and its standstills.

use std::time::Duration;

use tokio::time::Instant;

/// Silence towards the client is bridged this often, so that proxies on the way do not give up.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Time in which an upstream has to end a stream whose choices are finished, once its usage is reported.
const LINGER_REPORTED: Duration = Duration::from_secs(2);
/// The same time while its usage is still missing.
const LINGER_UNREPORTED: Duration = Duration::from_secs(10);
/// Longest time that a stream which needs an extension waits for a key-service that is away.
const EXTENSION_BOUND: Duration = Duration::from_secs(5);
/// Pause before an extension that failed is tried again.
const EXTENSION_PAUSE: Duration = Duration::from_millis(500);

/// Times of the last events of a stream. Every method takes the present time as an argument.
pub(super) struct Deadlines {
    upstream_silence: Duration,
    /// Start of the present standstill, which ends with an extension or a renewed lease.
    blocked_since: Option<Instant>,
    /// Last event of the upstream.
    read_at: Instant,
    /// Last piece that was handed to the client.
    written_at: Instant,
    /// Event that finished the last choice.
    finished_at: Option<Instant>,
}

impl Deadlines {
    /// Starts at `now`; the upstream may be silent for `upstream_silence`.
    pub(super) fn new(upstream_silence: Duration, now: Instant) -> Self {
        Self { upstream_silence, blocked_since: None, read_at: now, written_at: now, finished_at: None }
    }

    /// Notes an event of the upstream.
    pub(super) fn read(&mut self, now: Instant) {
        self.read_at = now;
    }

    /// Notes a piece that was handed to the client.
    pub(super) fn wrote(&mut self, now: Instant) {
        self.written_at = now;
    }

    /// Notes that every choice is finished. Later calls change nothing.
    pub(super) fn finished(&mut self) {
        self.finished_at.get_or_insert(self.read_at);
    }

    /// Returns whether every choice is finished.
    pub(super) fn is_finished(&self) -> bool {
        self.finished_at.is_some()
    }

    /// Notes whether the stream stands still.
    pub(super) fn set_blocked(&mut self, blocked: bool, now: Instant) {
        if blocked {
            self.blocked_since.get_or_insert(now);
        } else {
            self.blocked_since = None;
        }
    }

    /// Returns whether the stream stands still.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked_since.is_some()
    }

    /// Returns whether a stream that stands still has waited for its extension long enough.
    pub(super) fn extension_is_overdue(&self, now: Instant) -> bool {
        self.blocked_since.is_some_and(|since| now.duration_since(since) >= EXTENSION_BOUND)
    }

    /// Returns whether the upstream has been silent, or has lingered after its choices, for longer than it may.
    pub(super) fn upstream_is_overdue(&self, reported: bool, now: Instant) -> bool {
        now >= self.upstream_deadline(reported)
    }

    /// Returns whether the client needs a sign of life.
    pub(super) fn keep_alive_is_due(&self, now: Instant) -> bool {
        now.duration_since(self.written_at) >= KEEP_ALIVE
    }

    /// Returns the next time at which something is due if nothing happens before.
    pub(super) fn next(&self, reported: bool, extending: bool, now: Instant) -> Instant {
        if self.is_blocked() && !extending {
            return now + EXTENSION_PAUSE;
        }
        self.upstream_deadline(reported).min(self.written_at + KEEP_ALIVE)
    }

    fn upstream_deadline(&self, reported: bool) -> Instant {
        let linger = if reported { LINGER_REPORTED } else { LINGER_UNREPORTED };
        self.finished_at.map_or(self.read_at + self.upstream_silence, |at| at + linger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_mins(5);

    fn begun() -> (Deadlines, Instant) {
        let now = Instant::now();
        (Deadlines::new(SILENCE, now), now)
    }

    #[test]
    fn an_upstream_may_be_silent_until_its_bound_after_its_last_event() {
        let (mut deadlines, start) = begun();
        deadlines.read(start + Duration::from_secs(7));
        let last = start + Duration::from_secs(7) + SILENCE;
        assert!(!deadlines.upstream_is_overdue(false, last.checked_sub(Duration::from_millis(1)).unwrap()));
        assert!(deadlines.upstream_is_overdue(false, last));
    }

    #[test]
    fn a_finished_stream_lingers_longer_while_its_usage_is_missing_and_later_events_do_not_prolong_it() {
        let (mut deadlines, start) = begun();
        deadlines.finished();
        deadlines.read(start + Duration::from_secs(1));
        deadlines.finished();
        assert!(deadlines.upstream_is_overdue(true, start + LINGER_REPORTED));
        assert!(!deadlines.upstream_is_overdue(false, start + LINGER_REPORTED));
        assert!(deadlines.upstream_is_overdue(false, start + LINGER_UNREPORTED));
    }

    #[test]
    fn a_client_is_written_to_every_fifteen_seconds_however_long_its_upstream_may_be_silent() {
        let (mut deadlines, start) = begun();
        deadlines.wrote(start + Duration::from_secs(1));
        let due = start + Duration::from_secs(16);
        assert_eq!(deadlines.next(false, false, start), due);
        assert!(deadlines.keep_alive_is_due(due));
    }

    #[test]
    fn a_standstill_retries_its_extension_until_the_bound_that_counts_from_its_start() {
        let (mut deadlines, start) = begun();
        deadlines.set_blocked(true, start);
        let later = start + Duration::from_secs(4);
        deadlines.set_blocked(true, later);
        assert_eq!(deadlines.next(false, false, later), later + EXTENSION_PAUSE);
        assert_eq!(deadlines.next(false, true, later), start + KEEP_ALIVE, "one is in flight");
        assert!(deadlines.extension_is_overdue(start + EXTENSION_BOUND));
        deadlines.set_blocked(false, later);
        assert!(!deadlines.extension_is_overdue(start + EXTENSION_BOUND));
    }
}
