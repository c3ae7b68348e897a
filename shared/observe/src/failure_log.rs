//! Failures that repeat while their cause lasts. They are logged once per process, not once per caller.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time between two lines while failures continue.
const TELL_EVERY: Duration = Duration::from_mins(1);
/// Minimum time without failures after which a new one is logged at once. Failures that come and go faster are logged
/// once a minute.
const QUIET: Duration = Duration::from_secs(5);

/// Failures of one cause, and when they were last logged.
#[derive(Debug, Default)]
pub struct FailureLog {
    /// Whether the last outcome was a failure. It is read without the lock, since nearly every success follows another.
    is_failing: AtomicBool,
    state: Mutex<FailureState>,
}

#[derive(Debug, Default)]
struct FailureState {
    /// The first failure since the last success.
    began: Option<Instant>,
    /// Number of failures since then, and number since the last log line.
    failures: u64,
    untold: u64,
    /// When the last line was logged, and whether it is about these failures.
    told: Option<Instant>,
    is_told: bool,
    /// When a success last ended failures.
    ended: Option<Instant>,
}

/// What to log about failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures {
    /// Failures since the last success.
    pub count: u64,
    /// Failures since the last log line, for causes whose success is not recorded.
    pub untold: u64,
    /// Time since the first of them, in seconds.
    pub seconds: u64,
}

impl FailureLog {
    pub const fn new() -> Self {
        let state =
            FailureState { began: None, failures: 0, untold: 0, told: None, is_told: false, ended: None };
        Self { is_failing: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// Records a failure. Returns what to log if a line is due: for the first failure, then once a minute.
    pub fn failed(&self) -> Option<Failures> {
        let (mut state, now) = (self.state.lock(), Instant::now());
        self.is_failing.store(true, Ordering::Relaxed);
        state.failures += 1;
        state.untold += 1;
        let began = *state.began.get_or_insert(now);
        let since = |then: Instant| now.saturating_duration_since(then);
        let is_quiet = !state.is_told && state.ended.is_none_or(|ended| since(ended) >= QUIET);
        let is_due = state.told.is_none_or(|told| since(told) >= TELL_EVERY) || is_quiet;
        if !is_due {
            return None;
        }
        (state.told, state.is_told) = (Some(now), true);
        let untold = std::mem::take(&mut state.untold);
        Some(Failures { count: state.failures, untold, seconds: since(began).as_secs() })
    }

    /// Records a success. Returns what to log if it ends failures that were logged.
    pub fn succeeded(&self) -> Option<Failures> {
        if !self.is_failing.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.state.lock();
        self.is_failing.store(false, Ordering::Relaxed);
        let began = state.began.take()?;
        let (count, untold) = (std::mem::take(&mut state.failures), std::mem::take(&mut state.untold));
        let ended = Failures { count, untold, seconds: began.elapsed().as_secs() };
        state.ended = Some(Instant::now());
        std::mem::take(&mut state.is_told).then_some(ended)
    }
}

/// Lets a warning pass at most once a minute for each `K`.
#[derive(Debug)]
pub struct Throttle<K> {
    last: HashMap<K, Instant>,
}

impl<K> Default for Throttle<K> {
    fn default() -> Self {
        Self { last: HashMap::new() }
    }
}

impl<K: Hash + Eq> Throttle<K> {
    /// Returns whether the warning about `what` passes now.
    pub fn passes(&mut self, what: K, now: Instant) -> bool {
        self.last.retain(|_, at| now.saturating_duration_since(*at) < TELL_EVERY);
        match self.last.entry(what) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(now);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const fn told(count: u64, untold: u64, seconds: u64) -> Failures {
        Failures { count, untold, seconds }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_failure_is_told_and_then_one_line_a_minute_and_the_end() {
        let log = FailureLog::new();
        assert_eq!((log.succeeded(), log.failed()), (None, Some(told(1, 1, 0))));
        for second in 1..=150 {
            advance(Duration::from_secs(1)).await;
            let expected = if second % 60 == 0 { Some(told(second + 1, 60, second)) } else { None };
            assert_eq!(log.failed(), expected, "{second}");
        }
        assert_eq!((log.succeeded(), log.succeeded()), (Some(told(151, 30, 150)), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_failure_is_told_at_once() {
        let log = FailureLog::new();
        log.failed();
        log.succeeded();
        advance(QUIET).await;
        assert_eq!(log.failed(), Some(told(1, 1, 0)));
        assert_eq!(log.succeeded(), Some(told(1, 0, 0)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_and_goes_is_told_once_a_minute() {
        let log = FailureLog::new();
        let mut lines = 0;
        for _ in 0..100 {
            lines += usize::from(log.failed().is_some()) + usize::from(log.succeeded().is_some());
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(lines, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_without_an_end_are_told_again_after_a_minute() {
        let log = FailureLog::new();
        log.failed();
        advance(TELL_EVERY).await;
        assert_eq!(log.failed(), Some(told(2, 1, 60)));
    }

    #[test]
    fn a_warning_comes_once_a_minute() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(throttle.passes(1, after(0)) && throttle.passes(2, after(30)));
        assert!(!throttle.passes(1, after(59)) && throttle.passes(1, after(60)));
        assert!(!throttle.passes(2, after(60)));
    }
}
