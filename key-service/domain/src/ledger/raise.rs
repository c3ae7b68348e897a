//! Raises: amounts that replace limits until an instant.
//!
//! A raise ends by itself. From then on, the limit's own amount applies to holds, extensions, and charges without a
//! hold. A hold that was opened earlier stays open, and can be captured.

use shared::{
    calendar::Per,
    money::NanoUsd,
    time::Timestamp,
    wire::{MAX_RAISE, Raise},
};

use crate::ledger::bounds::{BoundsPatch, Budget};

/// Why a limit cannot be raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRaise {
    /// Index among the limits by window, and the window's length; `None` for the lifetime limit.
    pub window: Option<(usize, Per)>,
    pub fault: RaiseFault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaiseFault {
    /// There is no lifetime limit.
    NoLimit,
    /// The raise is not above the limit's own amount, given here.
    NotAbove(NanoUsd),
    /// The raise has already ended.
    Over,
    /// The raise ends later than [`MAX_RAISE`] allows.
    TooLong,
}

impl BoundsPatch {
    /// Checks the raises that this change would make to `budget`.
    pub fn judge_raises(&self, budget: &Budget, now: Timestamp) -> Result<(), BadRaise> {
        let (limit, raised) = (self.limit.unwrap_or(budget.limit), self.limit_raised.flatten());
        let windows = self.windows.iter().flatten();
        judge_all(limit, raised, windows.map(|limit| (limit.per, limit.amount, limit.raised)), now)
    }

    /// Returns whether the change raises a limit.
    pub fn raises_any(&self) -> bool {
        let mut windows = self.windows.iter().flatten();
        self.limit_raised.flatten().is_some() || windows.any(|limit| limit.raised.is_some())
    }
}

impl Budget {
    /// Checks the raises in a new budget.
    pub fn judge_raises(&self, now: Timestamp) -> Result<(), BadRaise> {
        let raised = self.bounds.as_ref().and_then(|bounds| bounds.limit_raised);
        let windows = self.windows().map(|window| (window.per, window.amount, window.raised));
        judge_all(self.limit, raised, windows, now)
    }
}

fn judge_all(
    limit: Option<NanoUsd>,
    raised: Option<Raise>,
    windows: impl Iterator<Item = (Per, NanoUsd, Option<Raise>)>,
    now: Timestamp,
) -> Result<(), BadRaise> {
    for (at, (per, amount, raised)) in windows.enumerate() {
        let bad = |fault| BadRaise { window: Some((at, per)), fault };
        raised.map_or(Ok(()), |raise| judge(raise, amount, now)).map_err(bad)?;
    }
    let Some(raise) = raised else { return Ok(()) };
    let judged = limit.ok_or(RaiseFault::NoLimit).and_then(|limit| judge(raise, limit, now));
    judged.map_err(|fault| BadRaise { window: None, fault })
}

fn judge(raise: Raise, amount: NanoUsd, now: Timestamp) -> Result<(), RaiseFault> {
    if raise.amount <= amount {
        return Err(RaiseFault::NotAbove(amount));
    }
    if raise.has_ended(now) {
        return Err(RaiseFault::Over);
    }
    if raise.until > now.plus(MAX_RAISE) { Err(RaiseFault::TooLong) } else { Ok(()) }
}
