//! Deadlines of a stream: how long the upstream may be silent, when the client gets a keep-alive or counts as gone, and
//! how long a stream may be blocked.

use std::time::Duration;

use tokio::time::Instant;

/// Interval of keep-alives during silence, so that proxies on the way do not time out.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long an upstream may take to end a stream once it has sent all choices and their usage.
const LINGER_SETTLED: Duration = Duration::from_secs(2);
/// How long an upstream may take to end a stream in which every choice that began has finished, but usage or further
/// choices are missing.
const LINGER_UNSETTLED: Duration = Duration::from_secs(10);
/// Maximum time that a stream that needs an extension waits for a key-service that is away.
const EXTENSION_BOUND: Duration = Duration::from_secs(5);
/// Pause before a failed extension is retried.
const EXTENSION_PAUSE: Duration = Duration::from_millis(500);

/// If the upstream sends nothing for this long, everything that it sent before the client left has been read. The next
/// token would take longer than this to come.
pub(super) const CAUGHT_UP_AFTER: Duration = Duration::from_millis(10);
/// Maximum time to read and count the upstream's output after a stream has ended. The upstream continues to generate
/// during this time.
pub(super) const CATCH_UP_BOUND: Duration = Duration::from_millis(100);
/// Maximum time to read and count output after a lost hold. It is longer because the sockets of a gateway that was
/// frozen contain a lot.
pub(super) const CATCH_UP_BOUND_OF_LOST: Duration = Duration::from_millis(500);
/// Once the buffer for a client that reads nothing is full, its stream ends after this many quarters of `client_stall`.
/// So a client that reads again before it counts as gone can still be told why the stream ended.
const UNREAD_QUARTERS: u32 = 3;

/// Times of a stream's last events. Every method takes the current time as an argument.
pub(super) struct Deadlines {
    upstream_silence: Duration,
    unread_bound: Duration,
    /// Whether nothing is read until an extension or a renewed lease arrives.
    is_blocked: bool,
    /// When the stream began to wait for an extension or a renewed lease, if it still does.
    waiting_since: Option<Instant>,
    /// When the gateway stopped reading the upstream because the client reads nothing and its buffer is full.
    full_since: Option<Instant>,
    /// Whether the upstream is being read.
    listening: bool,
    /// When the upstream's last event was read, or reading began.
    read_at: Instant,
    /// When the upstream last showed output, or reading began.
    heard_at: Instant,
    /// When the last piece was handed to the client.
    written_at: Instant,
    /// When the last choice was finished.
    finished_at: Option<Instant>,
    left_at: Option<Instant>,
}

/// What the next deadline of a stream depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamState {
    /// Whether the answer and its usage are complete.
    pub(super) settled: bool,
    /// When to check a silent upstream next.
    pub(super) silence: Option<Instant>,
    /// Whether an extension is in flight.
    pub(super) extending: bool,
    /// Whether output waits for the client.
    pub(super) unwritten: bool,
    /// Why to continue reading after the client has left.
    pub(super) reading_on: ReadingOn,
}

/// Why to continue reading an upstream whose client has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadingOn {
    /// To count the output that the upstream has already sent.
    Received,
    /// The choices are finished, but usage may be missing.
    Usage,
    /// The catalogue says so (`left_mid_stream`). Reading continues for at most this long.
    ToTheEnd(Duration),
}

impl Deadlines {
    /// Starts at `now`. The upstream may be silent for `upstream_silence`, and a client counts as gone after
    /// `client_stall`.
    pub(super) fn new(upstream_silence: Duration, client_stall: Duration, now: Instant) -> Self {
        Self {
            upstream_silence,
            unread_bound: client_stall * UNREAD_QUARTERS / 4,
            is_blocked: false,
            waiting_since: None,
            full_since: None,
            listening: true,
            read_at: now,
            heard_at: now,
            written_at: now,
            finished_at: None,
            left_at: None,
        }
    }

    /// Notes an event from the upstream.
    pub(super) fn read(&mut self, now: Instant) {
        self.read_at = now;
    }

    /// Notes an event that shows output.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// Notes a piece that was handed to the client.
    pub(super) fn wrote(&mut self, now: Instant) {
        self.written_at = now;
    }

    /// Notes whether the upstream is being read. Silence counts only then.
    pub(super) fn set_listening(&mut self, listening: bool, now: Instant) {
        if listening && !self.listening {
            (self.read_at, self.heard_at) = (now, now);
        }
        self.listening = listening;
    }

    /// Notes whether every choice is finished. The time at which they finished is kept, unless a choice continued in
    /// between.
    pub(super) fn set_finished(&mut self, finished: bool) {
        self.finished_at = finished.then(|| self.finished_at.unwrap_or(self.read_at));
    }

    /// Notes that the client left.
    pub(super) fn left(&mut self, now: Instant) {
        self.left_at = Some(now);
    }

    /// Returns when the client left. Output read from then on is counted, but not delivered.
    pub(super) fn left_at(&self) -> Option<Instant> {
        self.left_at
    }

    /// Notes whether the stream is blocked, and whether it waits for an extension although it is not blocked. The
    /// latter happens when the upstream is silent: it is still read.
    pub(super) fn set_waiting(&mut self, blocked: bool, waiting: bool, now: Instant) {
        self.is_blocked = blocked;
        self.waiting_since = (blocked || waiting).then(|| self.waiting_since.unwrap_or(now));
    }

    /// Notes whether the gateway has stopped reading from the upstream because the client takes no data.
    pub(super) fn set_full(&mut self, full: bool, now: Instant) {
        self.full_since = full.then(|| self.full_since.unwrap_or(now));
    }

    /// Returns whether the stream is blocked.
    pub(super) const fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Returns whether a stream has waited too long for its extension, even if a call is in flight.
    pub(super) fn extension_is_overdue(&self, now: Instant) -> bool {
        self.waiting_since.is_some_and(|since| now.duration_since(since) >= EXTENSION_BOUND)
    }

    /// Returns since when the upstream has been read without showing output.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        self.listening.then_some(self.heard_at)
    }

    /// Returns whether the client read nothing for too long while the upstream was not read.
    pub(super) fn client_is_overdue(&self, now: Instant) -> bool {
        self.full_since.is_some_and(|since| now.duration_since(since) >= self.unread_bound)
    }

    /// Returns whether the upstream was silent for too long, or did not end the stream after all choices finished.
    pub(super) fn upstream_is_overdue(&self, settled: bool, now: Instant) -> bool {
        self.upstream_deadline(settled).is_some_and(|deadline| now >= deadline)
    }

    /// Returns whether the client needs a keep-alive.
    pub(super) fn keep_alive_is_due(&self, now: Instant) -> bool {
        self.left_at.is_none() && now.duration_since(self.written_at) >= KEEP_ALIVE
    }

    /// Returns whether the client left and the upstream was read long enough after that.
    pub(super) fn reading_on_is_over(&self, reading_on: ReadingOn, now: Instant) -> bool {
        self.reading_on_deadline(reading_on).is_some_and(|deadline| now >= deadline)
    }

    /// Returns the time of the next deadline, unless an event comes before it.
    pub(super) fn next(&self, state: StreamState, now: Instant) -> Instant {
        let StreamState { settled, silence, extending, unwritten, reading_on } = state;
        let extension = self.waiting_since.filter(|_| !extending).map(|_| now + EXTENSION_PAUSE);
        let keep_alive = (!unwritten && self.left_at.is_none()).then(|| self.written_at + KEEP_ALIVE);
        let due = [
            extension,
            self.waiting_since.map(|since| since + EXTENSION_BOUND),
            silence,
            keep_alive,
            self.upstream_deadline(settled),
            self.full_since.map(|since| since + self.unread_bound),
            self.reading_on_deadline(reading_on),
        ];
        due.into_iter().flatten().min().unwrap_or(now + KEEP_ALIVE)
    }

    fn upstream_deadline(&self, settled: bool) -> Option<Instant> {
        let linger = if settled { LINGER_SETTLED } else { LINGER_UNSETTLED };
        let deadline = self.finished_at.map_or(self.read_at + self.upstream_silence, |at| at + linger);
        self.listening.then_some(deadline)
    }

    fn reading_on_deadline(&self, reading_on: ReadingOn) -> Option<Instant> {
        let left_at = self.left_at?;
        Some(match reading_on {
            ReadingOn::Received => {
                (self.read_at.max(left_at) + CAUGHT_UP_AFTER).min(left_at + CATCH_UP_BOUND)
            }
            ReadingOn::Usage => left_at + LINGER_UNSETTLED,
            ReadingOn::ToTheEnd(bound) => left_at + bound,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_mins(5);
    const STALL: Duration = Duration::from_secs(12);
    const UNREAD_BOUND: Duration = Duration::from_secs(9);
    /// A state in which nothing is reported, in flight or unwritten.
    const PLAIN: StreamState = StreamState {
        settled: false,
        silence: None,
        extending: false,
        unwritten: false,
        reading_on: ReadingOn::Received,
    };

    fn begun() -> (Deadlines, Instant) {
        let now = Instant::now();
        (Deadlines::new(SILENCE, STALL, now), now)
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
    fn silence_is_counted_only_while_the_upstream_is_listened_to() {
        let (mut deadlines, start) = begun();
        deadlines.set_listening(false, start);
        assert!(!deadlines.upstream_is_overdue(false, start + 2 * SILENCE));
        let again = start + 3 * SILENCE;
        deadlines.set_listening(true, again);
        assert!(!deadlines.upstream_is_overdue(false, again + SILENCE / 2));
        assert!(deadlines.upstream_is_overdue(false, again + SILENCE));
    }

    #[test]
    fn events_that_show_no_output_do_not_end_a_silence() {
        let (mut deadlines, start) = begun();
        deadlines.heard(start + Duration::from_secs(1));
        deadlines.read(start + Duration::from_secs(9));
        assert_eq!(deadlines.silent_since(), Some(start + Duration::from_secs(1)));
        deadlines.set_listening(false, start + Duration::from_secs(10));
        assert_eq!(deadlines.silent_since(), None);
        deadlines.set_listening(true, start + Duration::from_secs(20));
        assert_eq!(deadlines.silent_since(), Some(start + Duration::from_secs(20)));
    }

    #[test]
    fn a_finished_stream_lingers_longer_while_its_usage_is_missing_and_later_events_do_not_prolong_it() {
        let (mut deadlines, start) = begun();
        deadlines.set_finished(true);
        deadlines.read(start + Duration::from_secs(1));
        deadlines.set_finished(true);
        assert!(deadlines.upstream_is_overdue(true, start + LINGER_SETTLED));
        assert!(!deadlines.upstream_is_overdue(false, start + LINGER_SETTLED));
        assert!(deadlines.upstream_is_overdue(false, start + LINGER_UNSETTLED));
    }

    #[test]
    fn a_stream_that_goes_on_after_its_finish_lingers_from_its_last_finish() {
        let (mut deadlines, start) = begun();
        deadlines.set_finished(true);
        deadlines.read(start + Duration::from_secs(1));
        deadlines.set_finished(false);
        assert!(!deadlines.upstream_is_overdue(false, start + LINGER_UNSETTLED));
        deadlines.read(start + Duration::from_secs(9));
        deadlines.set_finished(true);
        assert!(!deadlines.upstream_is_overdue(true, start + Duration::from_secs(10)));
        assert!(deadlines.upstream_is_overdue(true, start + Duration::from_secs(9) + LINGER_SETTLED));
    }

    #[test]
    fn a_client_is_written_to_every_fifteen_seconds_however_long_its_upstream_may_be_silent() {
        let (mut deadlines, start) = begun();
        deadlines.wrote(start + Duration::from_secs(1));
        let due = start + Duration::from_secs(16);
        assert_eq!(deadlines.next(PLAIN, start), due);
        assert!(deadlines.keep_alive_is_due(due));
    }

    #[test]
    fn a_stream_that_waits_for_its_extension_retries_until_the_bound_that_counts_from_the_start_of_its_wait()
    {
        for blocked in [true, false] {
            let (mut deadlines, start) = begun();
            deadlines.set_waiting(blocked, true, start);
            let later = start + Duration::from_secs(4);
            deadlines.set_waiting(blocked, true, later);
            assert_eq!(deadlines.is_blocked(), blocked);
            assert_eq!(deadlines.next(PLAIN, later), later + EXTENSION_PAUSE);
            let extending = StreamState { extending: true, ..PLAIN };
            assert_eq!(deadlines.next(extending, later), start + EXTENSION_BOUND, "one is in flight");
            assert!(deadlines.extension_is_overdue(start + EXTENSION_BOUND));
            deadlines.set_waiting(false, false, later);
            assert!(!deadlines.extension_is_overdue(start + EXTENSION_BOUND) && !deadlines.is_blocked());
        }
    }

    #[test]
    fn a_client_that_takes_nothing_is_read_for_until_nothing_more_is_kept_for_its_bound() {
        let (mut deadlines, start) = begun();
        let unwritten = StreamState { unwritten: true, ..PLAIN };
        deadlines.set_listening(false, start);
        deadlines.set_full(true, start);
        deadlines.set_full(true, start + UNREAD_BOUND / 2);
        assert_eq!(deadlines.next(unwritten, start), start + UNREAD_BOUND);
        assert!(deadlines.client_is_overdue(start + UNREAD_BOUND));
        deadlines.set_full(false, start);
        assert!(!deadlines.client_is_overdue(start + UNREAD_BOUND));
        assert_eq!(deadlines.next(unwritten, start), start + KEEP_ALIVE, "it waits, and does not turn idly");
    }

    #[test]
    fn after_its_client_left_an_upstream_is_read_for_what_it_had_sent_or_its_usage_or_to_its_end() {
        let (mut deadlines, start) = begun();
        let (left, bound) = (start + Duration::from_secs(20), Duration::from_secs(30));
        for reading_on in [ReadingOn::Received, ReadingOn::Usage, ReadingOn::ToTheEnd(bound)] {
            assert!(!deadlines.reading_on_is_over(reading_on, left + SILENCE), "the client is there");
        }
        deadlines.left(left);
        assert!(deadlines.reading_on_is_over(ReadingOn::Received, left + CAUGHT_UP_AFTER));
        deadlines.read(left + CATCH_UP_BOUND);
        assert!(deadlines.reading_on_is_over(ReadingOn::Received, left + CATCH_UP_BOUND));
        assert!(!deadlines.reading_on_is_over(ReadingOn::Usage, left + LINGER_SETTLED));
        assert!(deadlines.reading_on_is_over(ReadingOn::Usage, left + LINGER_UNSETTLED));
        assert!(!deadlines.reading_on_is_over(ReadingOn::ToTheEnd(bound), left + LINGER_UNSETTLED));
        assert!(deadlines.reading_on_is_over(ReadingOn::ToTheEnd(bound), left + bound));
        assert!(!deadlines.keep_alive_is_due(left + KEEP_ALIVE));
    }
}
