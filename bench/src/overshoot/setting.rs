//! What is the same for all systems: the caps, the streams and the kills.

use std::{net::SocketAddr, time::Duration};

use shared::money::NanoUsd;
use tests::{harness::usd, upstream::Upstream};

/// Caps of the tenants in USD: the smallest is enough for about twenty average streams, and the largest for about a
/// hundred.
const CAPS: [&str; 8] = ["0.002", "0.003", "0.004", "0.005", "0.006", "0.008", "0.01", "0.012"];
/// Number of concurrent streams of all tenants together.
pub(super) const STREAMS: usize = 128;
/// Tokens in each prompt.
pub(super) const PROMPT: u64 = 60;
/// Minimum and maximum number of tokens in an answer; all numbers in that range are equally likely.
pub(super) const COMPLETION: (u64, u64) = (50, 400);
/// The `max_tokens` that each client sends. As in real applications, the answers are shorter than that.
pub(super) const LIMIT: u64 = 512;
pub(super) const PACE_MS: u64 = 10;
/// Time between two kills.
pub(super) const KILL_EVERY: Duration = Duration::from_secs(4);
/// Time after which a run ends, even if some of the caps are not used up.
pub(super) const DEADLINE: Duration = Duration::from_mins(4);
/// Number of replicas of each system.
pub(super) const REPLICAS: usize = 3;

/// A gateway that enforces budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Gateway {
    /// Three gateways and three key-services over one Redis.
    Faregate,
    /// Three LiteLLM proxies over one Redis.
    Litellm,
}

/// What a tenant was served, in nano-USD.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenant {
    pub(super) cap: i64,
    /// Cost of everything that the upstream generated for the tenant.
    pub(super) generated: i64,
    /// The part of that cost that belongs to streams that were cut off.
    pub(super) cut: i64,
}

/// A system under test.
pub(super) struct System {
    pub(super) upstream: Upstream,
    pub(super) addresses: Vec<SocketAddr>,
    /// The plaintext of each tenant's key.
    pub(super) keys: Vec<String>,
}

pub(super) fn caps() -> Vec<NanoUsd> {
    CAPS.iter().map(|cap| usd(cap)).collect()
}
