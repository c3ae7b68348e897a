//! Counts per upstream, from the bills of all accounts.

use std::collections::BTreeMap;

use crate::management::Management;
use domain::upstream_calls::UpstreamCalls;
use key_service_store::store::{Hour, StoreError, UPSTREAM_HOURS};

impl Management {
    /// Returns the counts of bills by model and upstream name, over the last 24 hours rounded up to a full hour.
    /// Key-services add them to the store every ten seconds.
    pub async fn upstream_calls(&self) -> Result<BTreeMap<(String, String), UpstreamCalls>, StoreError> {
        let Hour(now) = Hour::of(self.clock.now());
        self.store.upstream_calls(Hour(now - UPSTREAM_HOURS + 1)).await
    }

    /// Returns the counts of bills by model id, in this hour and the previous one. Every account may see them, because
    /// whether a model answers reveals nothing about the accounts that use it.
    pub async fn models_lately(&self) -> Result<BTreeMap<String, UpstreamCalls>, StoreError> {
        let Hour(now) = Hour::of(self.clock.now());
        let mut models: BTreeMap<String, UpstreamCalls> = BTreeMap::new();
        for ((model, _), calls) in self.store.upstream_calls(Hour(now - 1)).await? {
            let of_model = models.entry(model).or_default();
            *of_model = of_model.plus(calls);
        }
        Ok(models)
    }
}
