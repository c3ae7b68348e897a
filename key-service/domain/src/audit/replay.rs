//! Spend in the windows of a budget, computed from the journal.

use std::{ops::RangeInclusive, time::Duration};

use shared::{calendar::Per, money::NanoUsd, time::Timestamp};

use crate::ledger::Window;

/// Time around the beginning of a window in which a bill may count in either window, since a bound was set by a clock
/// that was ahead or behind.
const UNSURE: Duration = Duration::from_mins(10);

/// The window of each length that runs after the entries so far.
///
/// A window turns with the bills of its budget, and each bill has an entry. So entries tell what was billed in a window,
/// but for two things: the time at which the bound was set, before which nothing counts; and whether money that a late
/// capture gave back had been billed in the same window.
#[derive(Debug)]
pub(super) struct Replay([Running; 4]);

/// Bills in a window that runs.
#[derive(Clone, Copy, Debug, Default)]
struct Running {
    start: Option<Timestamp>,
    /// All bills since `start`, and late bills of the window before.
    most: NanoUsd,
    /// Bills that certainly count.
    least: NanoUsd,
    /// Bills that the next window may count.
    late: NanoUsd,
    /// Given back since `start`, of this or of an earlier window.
    given_back: NanoUsd,
    /// Windows that ended before, up to two.
    turns: u8,
}

impl Replay {
    pub(super) fn new() -> Self {
        Self([Running::default(); 4])
    }

    /// Adds an entry.
    pub(super) fn add(&mut self, at: Timestamp, delta: NanoUsd) {
        for (per, running) in Per::ALL.into_iter().zip(&mut self.0) {
            running.add(per, at, delta);
        }
    }

    /// Nearest spend that the entries allow; `None` where the entries allow the recorded spend. The journal is `complete`
    /// if no entries were dropped.
    pub(super) fn disproves(&self, window: &Window, complete: bool) -> Option<NanoUsd> {
        if window.per.beginning(window.start) != window.start {
            // The bound was set in this very window, at a time that no entry tells.
            return None;
        }
        let running = &self.0[window.per as usize];
        let allowed = running.allowed(window);
        let proven = if complete || running.turns > 1 {
            window.used.clamp(*allowed.start(), *allowed.end())
        } else {
            window.used.max(*allowed.start())
        };
        (proven != window.used).then_some(proven)
    }
}

impl Running {
    fn add(&mut self, per: Per, at: Timestamp, delta: NanoUsd) {
        let beginning = per.beginning(at);
        let start = self.start.unwrap_or(beginning).max(beginning);
        if self.start.is_some_and(|before| before < start) {
            let turns = self.turns.saturating_add(1).min(2);
            *self = Self { most: self.late, turns, ..Self::default() };
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

    fn allowed(&self, window: &Window) -> RangeInclusive<NanoUsd> {
        match self.start {
            None => NanoUsd::ZERO..=NanoUsd::ZERO,
            // The bound was set at the beginning of a window, which has no entries of its own yet.
            Some(start) if start < window.start => NanoUsd::ZERO..=self.late,
            Some(_) => self.least.left_after(self.given_back)..=self.most,
        }
    }
}

fn sum(a: NanoUsd, b: NanoUsd) -> NanoUsd {
    NanoUsd::from_nanos(a.nanos().saturating_add(b.nanos()))
}
