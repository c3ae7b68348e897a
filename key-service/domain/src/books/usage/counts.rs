//! Counters and sums. None of them grows above a fixed maximum.

use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{money::NanoUsd, tokens::Usage};

/// Maximum of every counter: up to here, JSON readers that use doubles keep integers exact.
pub const COUNTED: u64 = (1 << 53) - 1;

/// Counters of a day. None exceeds [`COUNTED`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Counts {
    /// Billed generations, including free generations.
    #[n(0)]
    pub requests: u64,
    #[n(1)]
    pub usage: Usage,
    /// Amount charged. Negative on a day when corrections returned more than was billed.
    #[n(2)]
    pub charged: NanoUsd,
    /// Known part of what the generations cost the operator. May be negative, like `charged`.
    #[n(3)]
    pub upstream_cost: NanoUsd,
    /// Amount charged for generations with a known upstream cost. The margin is this amount minus `upstream_cost`.
    #[n(4)]
    pub charged_at_known_cost: NanoUsd,
}

/// Sums over several keys. None exceeds [`COUNTED`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Sums {
    /// Billed generations, including free generations.
    #[n(0)]
    pub requests: u64,
    /// Tokens of prompts and completions.
    #[n(1)]
    pub tokens: u64,
    /// Amount charged. Negative if corrections returned more than was billed.
    #[n(2)]
    pub charged: NanoUsd,
}

/// Sums over several keys, with what the requests cost the operator. No amount exceeds [`COUNTED`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Margin {
    #[n(0)]
    pub sums: Sums,
    /// Known part of what the generations cost the operator. May be negative, like the charges.
    #[n(1)]
    pub upstream_cost: NanoUsd,
    /// Amount charged for generations with a known upstream cost.
    #[n(2)]
    pub charged_at_known_cost: NanoUsd,
}

impl Counts {
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: stopped(self.requests, other.requests),
            usage: self.usage.zip(other.usage, stopped),
            charged: sum(self.charged, other.charged),
            upstream_cost: sum(self.upstream_cost, other.upstream_cost),
            charged_at_known_cost: sum(self.charged_at_known_cost, other.charged_at_known_cost),
        }
    }

    /// Returns the day's margin, as [`Margin::amount`] does.
    pub fn margin(&self) -> Option<NanoUsd> {
        Margin::from(*self).amount()
    }
}

impl From<Counts> for Sums {
    fn from(Counts { requests, usage, charged, .. }: Counts) -> Self {
        Self { requests, tokens: stopped(usage.prompt, usage.completion), charged }
    }
}

impl Sums {
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: stopped(self.requests, other.requests),
            tokens: stopped(self.tokens, other.tokens),
            charged: sum(self.charged, other.charged),
        }
    }

    /// Subtracts other sums. A count that would become negative is zero.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            tokens: self.tokens.saturating_sub(other.tokens),
            charged: difference(self.charged, other.charged),
        }
    }
}

impl From<Counts> for Margin {
    fn from(counts: Counts) -> Self {
        let Counts { upstream_cost, charged_at_known_cost, .. } = counts;
        Self { sums: Sums::from(counts), upstream_cost, charged_at_known_cost }
    }
}

impl Margin {
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            sums: self.sums.plus(other.sums),
            upstream_cost: sum(self.upstream_cost, other.upstream_cost),
            charged_at_known_cost: sum(self.charged_at_known_cost, other.charged_at_known_cost),
        }
    }

    /// Subtracts other sums. A count that would become negative is zero.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self {
            sums: self.sums.less(other.sums),
            upstream_cost: difference(self.upstream_cost, other.upstream_cost),
            charged_at_known_cost: difference(self.charged_at_known_cost, other.charged_at_known_cost),
        }
    }

    /// Returns charges minus upstream costs over the generations with a known upstream cost; `None` without such
    /// generations.
    pub fn amount(&self) -> Option<NanoUsd> {
        let is_known = self.upstream_cost != NanoUsd::ZERO || self.charged_at_known_cost != NanoUsd::ZERO;
        is_known.then(|| difference(self.charged_at_known_cost, self.upstream_cost))
    }
}

pub(crate) fn sum(a: NanoUsd, b: NanoUsd) -> NanoUsd {
    NanoUsd::from_nanos(a.nanos().saturating_add(b.nanos()).min(COUNTED.cast_signed()))
}

pub(crate) fn difference(a: NanoUsd, b: NanoUsd) -> NanoUsd {
    NanoUsd::from_nanos(a.nanos().saturating_sub(b.nanos()))
}

pub(crate) fn stopped(a: u64, b: u64) -> u64 {
    a.saturating_add(b).min(COUNTED)
}
