//! What the bills of all accounts tell of upstreams.

use std::collections::BTreeMap;

use crate::management::Management;
use domain::upstream_calls::UpstreamCalls;
use key_service_store::store::{Hour, StoreError, UPSTREAM_HOURS};

impl Management {
    /// Counts of each upstream's bills in the last 24 hours, and since the hour began in which those did, by model
    /// and name. A key-service tells the store every ten seconds.
    pub async fn upstream_calls(&self) -> Result<BTreeMap<(String, String), UpstreamCalls>, StoreError> {
        let Hour(now) = Hour::of(self.clock.now());
        self.store.upstream_calls(Hour(now - UPSTREAM_HOURS + 1)).await
    }
}
