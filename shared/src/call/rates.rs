//! State of rate bounds, as callers of the model API see it.

use std::time::Duration;

/// State of the rate bounds of a key and its groups after an admission: for each kind, the tightest bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateStatus {
    /// Requests per minute; `None` without such a bound.
    pub requests: Option<RateLimit>,
    /// Tokens per minute; `None` without such a bound.
    pub tokens: Option<RateLimit>,
}

/// The bound of a key or group that leaves no room for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateBound {
    InFlight,
    Requests,
    Tokens,
}

/// Room that the token rates of a key and its groups leave for a prompt. Each number is the tightest bound's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRoom {
    /// Tokens allowed in a minute: a larger prompt never fits.
    pub limit: u64,
    pub remaining: u64,
}

/// State of a rate bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests or tokens allowed in a minute.
    pub limit: u64,
    /// Requests or tokens allowed now.
    pub remaining: u64,
    /// Time until `remaining` is back at `limit`, to the millisecond.
    pub reset: Duration,
}
