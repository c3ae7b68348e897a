//! Streams of tenants with small caps through several replicas at once: what a gateway served beyond the caps, and how much of them could
//! be used. The upstream's own count is the truth. The same clients ask every system.

use std::{
    collections::HashMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use shared::money::NanoUsd;
use tests::{
    harness::{FLASH, cost, usd},
    upstream::{End, Upstream},
};

use drive::{Answers, drive};
pub use report::table;

mod drive;
mod faregate;
mod litellm;
mod report;

/// Caps of the tenants in USD: some hundred average streams for the largest, some twenty for the smallest.
const CAPS: [&str; 8] = ["0.002", "0.003", "0.004", "0.005", "0.006", "0.008", "0.01", "0.012"];
/// Streams at once, of all tenants together.
const STREAMS: usize = 128;
/// Tokens of each prompt.
const PROMPT: u64 = 60;
/// Tokens of the answers: each number between these is as likely.
const COMPLETION: (u64, u64) = (50, 400);
/// Tokens that clients ask for at most, as applications do: more than they get.
const LIMIT: u64 = 512;
/// Milliseconds between two tokens.
const PACE_MS: u64 = 10;
/// Time between two kills of a process.
const KILL_EVERY: Duration = Duration::from_secs(4);
/// Time after which a run ends, whatever is left of the caps.
const DEADLINE: Duration = Duration::from_mins(4);
/// Replicas of each system.
const REPLICAS: usize = 3;

/// A gateway that keeps budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Gateway {
    /// Three gateways and three key-services over one Redis.
    Faregate,
    /// Three proxies of LiteLLM over one Redis.
    Litellm,
}

/// One run of one system.
#[derive(Clone, Debug)]
pub struct Outcome {
    gateway: Gateway,
    kills: u32,
    /// By tenant, in nano-USD.
    tenants: Vec<Tenant>,
    answers: Answers,
    lasted: Duration,
}

/// What a tenant was served.
#[derive(Clone, Copy, Debug)]
struct Tenant {
    cap: i64,
    /// All that the upstream generated for it.
    generated: i64,
    /// The part of it in streams that did not come to their end.
    cut: i64,
}

/// What a run is driven against.
struct System {
    upstream: Upstream,
    /// Addresses of the replicas.
    addresses: Vec<SocketAddr>,
    /// A key for each tenant.
    keys: Vec<String>,
}

/// Runs a system once, with kills or without; an error says why it cannot run here.
pub async fn run(gateway: Gateway, with_kills: bool, seed: u64) -> Result<Outcome, String> {
    match gateway {
        Gateway::Faregate => Ok(faregate::run(with_kills, seed).await),
        Gateway::Litellm => litellm::run(with_kills, seed).await,
    }
}

/// The caps of the tenants.
fn caps() -> Vec<NanoUsd> {
    CAPS.iter().map(|cap| usd(cap)).collect()
}

/// Sums what the upstream generated, by tenant.
fn outcome(gateway: Gateway, upstream: &Upstream, kills: u32, answers: Answers, began: Instant) -> Outcome {
    let mut tenants: Vec<Tenant> =
        caps().into_iter().map(|cap| Tenant { cap: cap.nanos(), generated: 0, cut: 0 }).collect();
    let mut by_tenant: HashMap<usize, (i64, i64)> = HashMap::new();
    for count in upstream.counts() {
        let Some(tenant) = drive::tenant_of(&count.tag) else { continue };
        let generated = cost(FLASH, count.served).nanos();
        let whole = count.ended.is_some_and(|(end, _)| end == End::Finished);
        let sums = by_tenant.entry(tenant).or_default();
        sums.0 += generated;
        sums.1 += if whole { 0 } else { generated };
    }
    for (tenant, (generated, cut)) in by_tenant {
        tenants[tenant].generated = generated;
        tenants[tenant].cut = cut;
    }
    Outcome { gateway, kills, tenants, answers, lasted: began.elapsed() }
}

impl Outcome {
    /// Returns whether this is a run of Faregate in which whole answers passed a cap.
    pub fn is_ours_over(&self) -> bool {
        self.gateway == Gateway::Faregate
            && self.tenants.iter().any(|tenant| tenant.generated - tenant.cut > tenant.cap)
    }
}
