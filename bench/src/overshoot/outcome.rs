use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tests::{
    harness::{FLASH, cost},
    upstream::{End, Upstream},
};

use crate::overshoot::{
    drive::{self, Answers},
    setting::{Gateway, Tenant, caps},
};

/// One run of one system.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub(super) gateway: Gateway,
    pub(super) kills: u32,
    /// Outcome for each tenant, with amounts in nano-USD.
    pub(super) tenants: Vec<Tenant>,
    pub(super) answers: Answers,
    pub(super) lasted: Duration,
}

/// Adds up what the upstream generated, by tenant.
pub(super) fn outcome(
    gateway: Gateway,
    upstream: &Upstream,
    kills: u32,
    answers: Answers,
    began: Instant,
) -> Outcome {
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
    /// Returns whether this is a run of Faregate in which complete answers exceeded a cap.
    pub fn is_ours_over(&self) -> bool {
        self.gateway == Gateway::Faregate
            && self.tenants.iter().any(|tenant| tenant.generated - tenant.cut > tenant.cap)
    }
}
