//! The available models: the catalogue, with its upstreams and metrics.

use std::sync::Arc;

use http::Uri;
use parking_lot::Mutex;
use shared_catalog::Catalog;
use shared_client::server_check::{FindingKind, check_servers};
use shared_config::{ConfigError, current::Current};
use shared_observe::metrics::show_catalogue;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    drained::DrainedAddresses,
    model_metrics::{Metrics, ModelMetrics},
    pool::{Pool, Pools},
    state::UpstreamNow,
};

/// Models of a catalogue. A request keeps the models that were current when it began.
pub struct Models {
    pub catalog: Catalog,
    pools: Pools,
    metrics: Metrics,
}

impl Models {
    /// Makes the models of a catalogue. `builtin` is the address of a running built-in model.
    fn of(catalog: Catalog, builtin: Option<&Uri>, drained: &DrainedAddresses) -> Result<Self, ConfigError> {
        let (pools, metrics) = (Pool::all(&catalog, builtin, drained)?, Metrics::of(&catalog));
        Ok(Self { catalog, pools, metrics })
    }

    /// Returns the upstreams of a model.
    pub fn pool(&self, model: &str) -> Option<&Pool> {
        self.pools.get(model)
    }

    pub fn metrics(&self, model: &str) -> Option<&ModelMetrics> {
        self.metrics.model(model)
    }
}

/// The current models, which are replaced as a whole.
pub struct OfferedModels {
    current: Current<Models>,
    builtin: Option<Uri>,
    /// Addresses that an operator has drained.
    drained: DrainedAddresses,
    /// The running check of the servers. If this is dropped, the check stops. The lock is held while models are
    /// replaced or upstreams drained.
    checking: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl OfferedModels {
    /// Offers the models of this catalogue. Must be called within a runtime.
    pub fn new(catalog: Catalog, builtin: Option<Uri>) -> Result<Self, ConfigError> {
        let offered = Self::unchecked(catalog, builtin)?;
        *offered.checking.lock() = Some(check(&offered.get().catalog));
        Ok(offered)
    }

    /// Offers the models of this catalogue without asking their servers over TCP what they serve.
    pub fn unchecked(catalog: Catalog, builtin: Option<Uri>) -> Result<Self, ConfigError> {
        let drained = DrainedAddresses::default();
        let models = Models::of(catalog, builtin.as_ref(), &drained)?;
        show_catalogue(models.catalog.checksum);
        Ok(Self { current: Current::new(models), builtin, drained, checking: Mutex::new(None) })
    }

    /// Offers the models of another catalogue from now on.
    pub fn replace(&self, catalog: Catalog) -> Result<(), ConfigError> {
        // The lock is held to the end. Otherwise an upstream could be drained in between, and this would affect only
        // the old models.
        let mut checking = self.checking.lock();
        let models = Models::of(catalog, self.builtin.as_ref(), &self.drained)?;
        show_catalogue(models.catalog.checksum);
        *checking = Some(check(&models.catalog));
        self.get().pools.values().for_each(Pool::retire);
        self.current.replace(models);
        Ok(())
    }

    /// Lists the upstreams of all models, each with the id of its model, in the order of the catalogue.
    pub fn upstreams(&self) -> Vec<(String, UpstreamNow)> {
        let models = self.get();
        let of_model = |id: &String| models.pools.get(id).map(|pool| (id.clone(), pool.list()));
        let ids: Vec<String> = models.catalog.models.iter().map(|model| model.id.clone()).collect();
        let listed = ids.iter().filter_map(of_model);
        listed.flat_map(|(id, list)| list.into_iter().map(move |now| (id.clone(), now))).collect()
    }

    /// Drains or restores the upstreams at an address. Returns whether there are any.
    pub fn drain(&self, address: &str, drained: bool) -> bool {
        let _unchanged = self.checking.lock();
        if !self.upstreams().iter().any(|(_, upstream)| upstream.address == address) {
            return false;
        }
        self.drained.set(address, drained);
        self.get().pools.values().for_each(|pool| pool.drain(address, drained));
        true
    }

    /// Returns the models on offer right now.
    pub fn get(&self) -> Arc<Models> {
        self.current.get()
    }
}

/// Starts asking a catalogue's servers what they serve. Nothing waits for the answers. If the catalogue promises more
/// than a server has, the catalogue is used nevertheless, until the operator corrects it.
fn check(catalog: &Catalog) -> AbortOnDropHandle<()> {
    let catalog = catalog.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        for finding in check_servers(&catalog).await {
            let (model, upstream) = (finding.model, finding.upstream);
            match finding.kind {
                FindingKind::Promise(promise) => {
                    tracing::warn!(model, upstream, promise, "the catalogue promises more than a server has");
                }
                FindingKind::NotTold(reason) => {
                    tracing::info!(model, upstream, reason, "a server did not report what it serves");
                }
            }
        }
    }))
}
