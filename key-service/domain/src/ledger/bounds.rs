//! Bounds of a budget: calendar windows, rates ([`Rate`]), requests in flight, models.

use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{
    calendar::Per,
    money::NanoUsd,
    time::Timestamp,
    wire::{Limit, MAX_LIMIT, Raise},
};

use super::rate::{Missing, Rate};

/// The money of a key or group, with its bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Budget {
    /// Maximum that may ever be spent, unless it is raised ([`Budget::limit_at`]); `None` for no limit.
    #[n(0)]
    pub limit: Option<NanoUsd>,
    #[n(1)]
    pub used: NanoUsd,
    #[n(2)]
    pub held: NanoUsd,
    /// Further bounds. Most keys have none, so `None` saves memory.
    #[n(3)]
    pub bounds: Option<Box<Bounds>>,
}

/// Bounds other than the lifetime limit, each with its current state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Bounds {
    /// Temporarily replaces the lifetime limit.
    #[n(6)]
    pub limit_raised: Option<Raise>,
    /// Limits on the spend in calendar windows, at most one per length.
    #[cbor(n(0), decode_with = "shared::stored::whole_value::decode")]
    pub windows: Vec<Window>,
    #[n(1)]
    pub requests_per_minute: Option<Rate>,
    /// Rate limit for the tokens of admitted requests.
    #[n(2)]
    pub tokens_per_minute: Option<Rate>,
    /// Maximum number of concurrent requests.
    #[n(3)]
    pub max_in_flight: Option<u64>,
    /// Number of open holds that were opened while the budget had any further bounds.
    #[n(4)]
    pub in_flight: u64,
    /// Ids of the models that may be used; `None` for all.
    #[n(5)]
    pub models: Option<Vec<String>>,
}

/// A limit on the spend in each calendar window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Window {
    #[n(0)]
    pub per: Per,
    /// Amount that may be spent in a window, unless it is raised ([`Window::amount_at`]).
    #[n(1)]
    pub amount: NanoUsd,
    /// Temporarily replaces the amount ([`Window::amount_at`]).
    #[n(4)]
    pub raised: Option<Raise>,
    /// Beginning of the current window. For the first window, this is when the bound was set, or just after the
    /// account's last bill if that is later.
    #[n(2)]
    pub start: Timestamp,
    #[n(3)]
    pub used: NanoUsd,
}

/// A change to a budget's bounds: outer `None` keeps a bound, inner `None` removes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundsPatch {
    /// The new lifetime limit. It ends the raise of the previous one.
    pub limit: Option<Option<NanoUsd>>,
    pub limit_raised: Option<Option<Raise>>,
    /// All windows, at most one per length, each with its raise. An empty list removes every window. A window whose
    /// length is listed again keeps its spend.
    pub windows: Option<Vec<Limit>>,
    /// The only models that may be used.
    pub models: Option<Option<Vec<String>>>,
    pub requests_per_minute: Option<Option<u64>>,
    pub tokens_per_minute: Option<Option<u64>>,
    pub max_in_flight: Option<Option<u64>>,
}

impl Budget {
    /// Creates an unused budget with these bounds.
    pub fn new(bounds: &BoundsPatch, now: Timestamp) -> Self {
        let mut budget = Self::default();
        budget.update(bounds, now);
        budget
    }

    /// Returns whether four fifths of a limit on money are used.
    pub fn is_nearly_used(&self, now: Timestamp) -> bool {
        self.limit_at(now).is_some_and(|limit| is_nearly_used(limit, self.used))
            || self.windows().any(|window| is_nearly_used(window.amount_at(now), window.at(now).used))
    }

    /// Returns the raise of the lifetime limit, if it has not ended.
    pub fn limit_raised(&self, now: Timestamp) -> Option<Raise> {
        self.bounds.as_ref()?.limit_raised.filter(|raise| !raise.has_ended(now))
    }

    /// Returns the lifetime limit in force at this time.
    pub fn limit_at(&self, now: Timestamp) -> Option<NanoUsd> {
        self.limit.map(|limit| self.limit_raised(now).map_or(limit, |raise| raise.amount))
    }

    /// Returns the amount that every limit on money still allows, after the open holds.
    pub fn left(&self, now: Timestamp) -> NanoUsd {
        let of_limit = self.limit_at(now).map_or(NanoUsd::MAX, |limit| limit.left_after(self.used));
        let of_windows = self.windows().map(|window| window.left(now));
        of_windows.fold(of_limit, NanoUsd::min)
    }

    /// Fails if less than this amount is left. If a window is the reason, the error contains its end.
    pub(super) fn covers(&self, amount: NanoUsd, now: Timestamp) -> Result<(), Option<Timestamp>> {
        if self.limit_at(now).is_some_and(|limit| limit.left_after(self.used) < amount) {
            return Err(None);
        }
        let too_tight = self.windows().filter(|window| window.left(now) < amount);
        too_tight
            .map(|window| window.at(now).resets_at())
            .max()
            .map_or(Ok(()), |resets_at| Err(Some(resets_at)))
    }

    pub fn update(&mut self, patch: &BoundsPatch, now: Timestamp) {
        let mut bounds = self.bounds.take().map_or_else(Bounds::default, |bounds| *bounds);
        if let Some(limit) = patch.limit {
            (self.limit, bounds.limit_raised) = (limit, None);
        }
        bounds.update(patch, now);
        self.bounds = (bounds != Bounds::default()).then(|| Box::new(bounds));
    }

    /// Changes the lifetime limit by an amount, and its raise with it. Returns the new limit; `None` if there is no
    /// limit, or if the limit or its raise would exceed the allowed range.
    pub(super) fn move_limit(&mut self, change: NanoUsd, now: Timestamp) -> Option<NanoUsd> {
        let moved = |amount: NanoUsd| {
            amount.checked_add(change).filter(|moved| (NanoUsd::ZERO..=MAX_LIMIT).contains(moved))
        };
        self.forget_ended_raises(now);
        if let Some(raise) = self.bounds.as_mut().and_then(|bounds| bounds.limit_raised.as_mut()) {
            raise.amount = moved(raise.amount)?;
        }
        self.limit = Some(moved(self.limit?)?);
        self.limit
    }

    /// Sets the start of the windows that were set at `now` to `begin`.
    pub fn begin_windows(&mut self, now: Timestamp, begin: Timestamp) {
        self.windows_mut().filter(|window| window.start == now).for_each(|window| window.start = begin);
    }

    /// Counts one less request in flight. After the last request, removed bounds are forgotten.
    pub(super) fn end_request(&mut self) {
        let Some(bounds) = &mut self.bounds else { return };
        bounds.in_flight = bounds.in_flight.saturating_sub(1);
        if **bounds == Bounds::default() {
            self.bounds = None;
        }
    }

    pub(super) fn bill(&mut self, amount: NanoUsd, now: Timestamp) {
        self.turn(now);
        self.used = plus(self.used, amount);
        for window in self.windows_mut() {
            window.used = plus(window.used, amount);
        }
    }

    /// Takes back an amount that was billed at the earlier time `at`. A window that started later did not count that
    /// bill. For a bill with a future time, it is unknown which windows counted it.
    pub(super) fn unbill(&mut self, amount: NanoUsd, at: Timestamp, now: Timestamp) {
        self.turn(now);
        self.used = self.used.left_after(amount);
        for window in self.windows_mut().filter(|window| window.start <= at && at <= now) {
            window.used = window.used.left_after(amount);
        }
    }

    /// Starts the windows that the calendar has reached, and forgets raises that have ended. A clock that steps back
    /// reverses neither.
    pub(super) fn turn(&mut self, now: Timestamp) {
        for window in self.windows_mut() {
            *window = window.at(now);
        }
        self.forget_ended_raises(now);
    }

    /// Forgets raises that have ended, if the lifetime limit has a raise.
    fn forget_ended_raises(&mut self, now: Timestamp) {
        let Some(bounds) = self.bounds.as_mut().filter(|bounds| bounds.limit_raised.is_some()) else {
            return;
        };
        bounds.end_raises(now);
        if **bounds == Bounds::default() {
            self.bounds = None;
        }
    }

    pub(super) fn windows(&self) -> impl Iterator<Item = &Window> {
        self.bounds.iter().flat_map(|bounds| &bounds.windows)
    }

    fn windows_mut(&mut self) -> impl Iterator<Item = &mut Window> {
        self.bounds.iter_mut().flat_map(|bounds| &mut bounds.windows)
    }
}

impl Bounds {
    fn update(&mut self, patch: &BoundsPatch, now: Timestamp) {
        self.end_raises(now);
        if let Some(windows) = &patch.windows {
            let window = |Limit { amount, per, raised, window: _ }: &Limit| {
                let (amount, raised, per) = (*amount, *raised, *per);
                let same = self.windows.iter().find(|window| window.per == per);
                let new = Window { per, amount, raised, start: now, used: NanoUsd::ZERO };
                same.map_or(new, |same| Window { amount, raised, ..*same })
            };
            self.windows = windows.iter().map(window).collect();
        }
        self.limit_raised = patch.limit_raised.unwrap_or(self.limit_raised);
        if let Some(models) = &patch.models {
            self.models.clone_from(models);
        }
        if let Some(per_minute) = patch.requests_per_minute {
            self.requests_per_minute = Rate::changed(self.requests_per_minute, per_minute, now);
        }
        if let Some(per_minute) = patch.tokens_per_minute {
            self.tokens_per_minute = Rate::changed(self.tokens_per_minute, per_minute, now);
        }
        self.max_in_flight = patch.max_in_flight.unwrap_or(self.max_in_flight);
    }

    fn end_raises(&mut self, now: Timestamp) {
        let of_windows = self.windows.iter_mut().map(|window| &mut window.raised);
        for raised in of_windows.chain([&mut self.limit_raised]) {
            *raised = raised.filter(|raise| !raise.has_ended(now));
        }
    }

    /// Counts a request with this many tokens. If it is `readmitted`, the request rate has already counted it. Returns
    /// how much was missing from the token rate, if there is one.
    pub(super) fn count(&mut self, tokens: u64, readmitted: bool, now: Timestamp) -> Option<Missing> {
        self.in_flight += 1;
        if let Some(rate) = self.requests_per_minute.as_mut().filter(|_| !readmitted) {
            rate.take(1, now);
        }
        self.tokens_per_minute.as_mut().map(|rate| rate.take(tokens, now))
    }

    /// Replaces the tokens that were counted for a request. `then` is what was missing when they were counted.
    pub(super) fn recount(&mut self, counted: u64, then: Option<Missing>, tokens: u64, now: Timestamp) {
        if let Some(rate) = &mut self.tokens_per_minute {
            rate.replace(counted, then, tokens, now);
        }
    }
}

/// Returns whether four fifths of an amount are used.
pub fn is_nearly_used(amount: NanoUsd, used: NanoUsd) -> bool {
    i128::from(used.nanos()) * 5 >= i128::from(amount.nanos()) * 4
}

/// Returns the models that all lists allow, in the order of the first list.
pub fn allowed_models<List: AsRef<[String]>>(lists: &[List]) -> Vec<String> {
    let Some((first, others)) = lists.split_first() else { return Vec::new() };
    let is_allowed = |model: &&String| others.iter().all(|models| models.as_ref().contains(model));
    first.as_ref().iter().filter(is_allowed).cloned().collect()
}

impl Window {
    /// Returns the window as of this time: a new, empty one if the calendar has reached it, and without a raise that
    /// has ended. A clock that steps back stays in the current window.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Self {
        let raised = self.raised.filter(|raise| !raise.has_ended(now));
        let beginning = self.per.beginning(now);
        if beginning > self.start {
            return Self { start: beginning, used: NanoUsd::ZERO, raised, ..self };
        }
        Self { raised, ..self }
    }

    /// Returns the amount in force at this time.
    pub fn amount_at(&self, now: Timestamp) -> NanoUsd {
        self.at(now).raised.map_or(self.amount, |raise| raise.amount)
    }

    /// Returns the unused amount of the window at this time; holds may cover a part of it.
    pub fn left(&self, now: Timestamp) -> NanoUsd {
        self.amount_at(now).left_after(self.at(now).used)
    }

    /// Returns the end of the window, when the amount is available again.
    pub fn resets_at(&self) -> Timestamp {
        self.per.end(self.start)
    }
}

/// Sums here stay within the credit of an account, or within the total ever billed to a key.
#[expect(
    clippy::expect_used,
    reason = "credit is at most 9e15 nano-USD; an i64 holds a thousand such accounts"
)]
pub(super) fn plus(a: NanoUsd, b: NanoUsd) -> NanoUsd {
    a.checked_add(b).expect("amounts of one account fit an i64")
}
