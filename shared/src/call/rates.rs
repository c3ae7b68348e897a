//! State of the rate limits, as callers of the model API see it.

use std::time::Duration;

/// State of the rate limits of a key and its groups after a request was admitted. For each kind, it is the state of the
/// limit that leaves least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateStatus {
    /// Requests per minute; `None` if there is no such limit.
    pub requests: Option<RateLimit>,
    /// Tokens per minute; `None` if there is no such limit.
    pub tokens: Option<RateLimit>,
}

/// The kind of limit, of a key or a group, that leaves no room for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateBound {
    InFlight,
    Requests,
    Tokens,
}

/// How many tokens the token rates of a key and its groups leave for a prompt. Each number is that of the tightest
/// limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRoom {
    /// Number of tokens that are allowed in a minute. A larger prompt never fits.
    pub limit: u64,
    pub remaining: u64,
}

/// State of a rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Number of requests or tokens that are allowed in a minute.
    pub limit: u64,
    /// Number of requests or tokens that are allowed now.
    pub remaining: u64,
    /// Time until `remaining` is `limit` again, to the millisecond.
    pub reset: Duration,
}
