//! Computes the spend in a budget's windows from the journal.

use std::{ops::RangeInclusive, time::Duration};

use shared::{calendar::Per, money::NanoUsd, time::Timestamp};

use crate::ledger::{Budget, MOST_CARRIED, Window};

/// A bill this close to the start of a window may count in this window or in the previous window, because clocks may be
/// fast or slow.
const UNSURE: Duration = Duration::from_mins(10);

/// The current window of each length, computed from the entries so far.
///
/// Holds and bills of a budget advance its windows. Each bill has an entry, so the entries show what was billed in a
/// window, with three exceptions. A bill within minutes of the window's start, or of the time when its bound was set,
/// may or may not count. Money returned by a late capture may have been billed in another window. And a window that a
/// fast clock started may include earlier bills.
#[derive(Debug, Default)]
pub(super) struct Replay {
    running: [WindowBills; 4],
    since: [Option<BoundSince>; 4],
    /// Sum of all bills so far, without money that was returned.
    total: NanoUsd,
    last: Option<Timestamp>,
    /// The latest time of any entry. It differs from the last entry's time after a clock was far ahead.
    latest: Option<Timestamp>,
}

/// For the window of each length: when its bound was set, if that was within the recorded window.
pub(super) type Since = [Option<Timestamp>; 4];

/// Which entries a journal still has.
#[derive(Clone, Copy)]
pub(super) struct KnownEntries {
    pub(super) complete: bool,
    pub(super) begins_at: Option<Timestamp>,
}

/// For each bound that was set within its window, returns when it was set. `None` if there is no such bound.
pub(super) fn since(budget: &Budget) -> Option<Since> {
    let mut since = Since::default();
    for window in budget.bounds.iter().flat_map(|bounds| &bounds.windows) {
        since[window.per as usize] = Some(window.start).filter(|_| is_first(window));
    }
    since.iter().any(Option::is_some).then_some(since)
}

/// Returns whether the bound was set within the window.
fn is_first(window: &Window) -> bool {
    window.per.beginning(window.start) != window.start
}

/// Bills since a bound was set.
#[derive(Clone, Copy, Debug)]
struct BoundSince {
    set_at: Timestamp,
    /// Sum of all bills that may count.
    most: NanoUsd,
    /// Sum of the bills that certainly count, whatever the clocks showed.
    least: NanoUsd,
    given_back: NanoUsd,
}

/// Bills in the current window.
#[derive(Clone, Copy, Debug, Default)]
struct WindowBills {
    start: Option<Timestamp>,
    /// Sum of all bills since `start` and of the previous window's late bills.
    most: NanoUsd,
    /// Sum of the bills that certainly count, whatever the clocks showed.
    least: NanoUsd,
    /// Sum of the bills near the window's end, which the next window may count instead.
    late: NanoUsd,
    /// Money returned since `start` that this or an earlier window had billed.
    given_back: NanoUsd,
    /// Number of earlier windows, at most two.
    turns: u8,
}

impl Replay {
    pub(super) fn new(since: Since) -> Self {
        let zero = NanoUsd::ZERO;
        let bound = |set_at| BoundSince { set_at, most: zero, least: zero, given_back: zero };
        Self { since: since.map(|set_at| set_at.map(bound)), ..Self::default() }
    }

    pub(super) fn add(&mut self, at: Timestamp, delta: NanoUsd) {
        if self.last.is_some_and(|last| at < last) {
            self.go_back(at);
        }
        for (per, running) in Per::ALL.into_iter().zip(&mut self.running) {
            let start = per.beginning(at);
            // A fast clock may have begun the window before its time. Then the first bill of the window has exactly the
            // window's start as its time.
            let was_begun = at == start || self.latest.is_some_and(|latest| start <= latest);
            running.add(per, at, delta, was_begun.then_some(self.total));
        }
        for since in self.since.iter_mut().flatten() {
            since.add(at, delta);
        }
        self.total = sum(self.total, delta.max(NanoUsd::ZERO));
        self.last = Some(at);
        self.latest = self.latest.max(Some(at));
    }

    /// Handles times that went back after a clock was far ahead. The entries so far then no longer show for certain
    /// which window counts them.
    fn go_back(&mut self, at: Timestamp) {
        for (per, running) in Per::ALL.into_iter().zip(&mut self.running) {
            let start = running.start.min(Some(per.beginning(at)));
            *running = WindowBills {
                start,
                most: self.total,
                given_back: running.given_back,
                ..WindowBills::default()
            };
        }
        for since in self.since.iter_mut().flatten() {
            since.least = NanoUsd::ZERO;
        }
    }

    /// If the known entries rule out the recorded spend, returns the nearest amount that they allow.
    pub(super) fn disproves(&self, window: &Window, known: KnownEntries) -> Option<NanoUsd> {
        let running = &self.running[window.per as usize];
        let last = self.last.unwrap_or(window.start);
        let is_ahead = window.start > last.plus(MOST_CARRIED) || Some(last) < self.latest;
        let ahead = is_ahead.then_some(self.total);
        let (allowed, is_whole) = if is_first(window) {
            let reaches_back = known.begins_at.is_some_and(|at| at.plus(UNSURE) <= window.start);
            let since = self.since[window.per as usize].filter(|since| since.set_at == window.start);
            let allowed = match (since, running.start) {
                (Some(since), _) => since.allowed(ahead),
                (None, None) => NanoUsd::ZERO..=NanoUsd::ZERO,
                // The audit did not know of this bound when it added up the entries.
                (None, Some(_)) => return None,
            };
            (allowed, reaches_back)
        } else {
            (running.allowed(window, ahead), running.turns > 1)
        };
        let proven = if known.complete || is_whole {
            window.used.clamp(*allowed.start(), *allowed.end())
        } else {
            window.used.max(*allowed.start())
        };
        (proven != window.used).then_some(proven)
    }
}

impl BoundSince {
    fn add(&mut self, at: Timestamp, delta: NanoUsd) {
        if at < self.set_at.minus(UNSURE) {
            return;
        }
        if delta < NanoUsd::ZERO {
            self.given_back = sum(self.given_back, NanoUsd::ZERO.left_after(delta));
            return;
        }
        self.most = sum(self.most, delta);
        if at >= self.set_at.plus(UNSURE) {
            self.least = sum(self.least, delta);
        }
    }

    fn allowed(&self, ahead: Option<NanoUsd>) -> RangeInclusive<NanoUsd> {
        self.least.left_after(self.given_back)..=ahead.unwrap_or(self.most)
    }
}

impl WindowBills {
    /// Adds an entry. `earlier` is the sum of all earlier bills, if a window that begins now may count them.
    fn add(&mut self, per: Per, at: Timestamp, delta: NanoUsd, earlier: Option<NanoUsd>) {
        let beginning = per.beginning(at);
        let start = self.start.unwrap_or(beginning).max(beginning);
        if self.start.is_some_and(|before| before < start) {
            let turns = self.turns.saturating_add(1).min(2);
            *self = Self { most: earlier.unwrap_or(self.late), turns, ..Self::default() };
        }
        self.start = Some(start);
        if delta < NanoUsd::ZERO {
            self.given_back = sum(self.given_back, NanoUsd::ZERO.left_after(delta));
            return;
        }
        self.most = sum(self.most, delta);
        if at >= start.plus(UNSURE) {
            self.least = sum(self.least, delta);
        }
        if at >= per.end(start).minus(UNSURE) {
            self.late = sum(self.late, delta);
        }
    }

    /// Returns the range in which the window's spend must be. `ahead` is the sum of all bills if a fast clock may have
    /// started the window, otherwise `None`.
    fn allowed(&self, window: &Window, ahead: Option<NanoUsd>) -> RangeInclusive<NanoUsd> {
        match self.start {
            None => NanoUsd::ZERO..=NanoUsd::ZERO,
            // The window has no entries yet: it started with a hold, or its bound was set at its start.
            Some(start) if start < window.start => NanoUsd::ZERO..=ahead.unwrap_or(self.late),
            Some(_) => self.least.left_after(self.given_back)..=self.most,
        }
    }
}

fn sum(a: NanoUsd, b: NanoUsd) -> NanoUsd {
    NanoUsd::from_nanos(a.nanos().saturating_add(b.nanos()))
}
