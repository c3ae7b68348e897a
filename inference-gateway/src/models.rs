//! The models on offer: the catalogue, and what serves and measures it.

use http::Uri;
use parking_lot::Mutex;
use shared::{
    catalog::Catalog,
    current::Current,
    process::{
        config::ConfigError,
        server_check::{FindingKind, check_servers},
        telemetry::show_catalogue,
    },
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    model_metrics::Metrics,
    upstream::{Pool, Pools},
};

/// The models of a catalogue. A request keeps those with which it began.
pub(crate) struct Models {
    pub(crate) catalog: Catalog,
    /// The upstreams of every model.
    pub(crate) pools: Pools,
    /// The metrics of every model.
    pub(crate) metrics: Metrics,
}

impl Models {
    /// The models of a catalogue; `builtin` is the address of a running built-in model.
    pub(crate) fn of(catalog: Catalog, builtin: Option<&Uri>) -> Result<Self, ConfigError> {
        let (pools, metrics) = (Pool::all(&catalog, builtin)?, Metrics::of(&catalog));
        Ok(Self { catalog, pools, metrics })
    }
}

/// The models on offer right now, replaced whole.
pub struct OfferedModels {
    current: Current<Models>,
    builtin: Option<Uri>,
    /// The check of the servers, which ends with the catalogue.
    checking: Mutex<AbortOnDropHandle<()>>,
}

impl OfferedModels {
    /// Offers the models of this catalogue, within a runtime.
    pub fn new(catalog: Catalog, builtin: Option<Uri>) -> Result<Self, ConfigError> {
        let models = Models::of(catalog, builtin.as_ref())?;
        show_catalogue(&models.catalog);
        let checking = Mutex::new(check(&models.catalog));
        Ok(Self { current: Current::new(models), builtin, checking })
    }

    /// Offers the models of another catalogue from now on.
    pub fn replace(&self, catalog: Catalog) -> Result<(), ConfigError> {
        let models = Models::of(catalog, self.builtin.as_ref())?;
        show_catalogue(&models.catalog);
        *self.checking.lock() = check(&models.catalog);
        self.get().pools.values().for_each(Pool::retire);
        self.current.replace(models);
        Ok(())
    }

    pub(crate) fn get(&self) -> std::sync::Arc<Models> {
        self.current.get()
    }
}

/// Begins to ask the servers of a catalogue what they serve. Nothing waits for the answers: a catalogue that promises more than a
/// server has is the operator's to mend, and serves meanwhile.
fn check(catalog: &Catalog) -> AbortOnDropHandle<()> {
    let catalog = catalog.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        for finding in check_servers(&catalog).await {
            let (model, upstream) = (finding.model, finding.upstream);
            match finding.kind {
                FindingKind::Promise(promise) => {
                    tracing::warn!(
                        model,
                        upstream,
                        promise,
                        "the catalogue promises what a server does not have"
                    );
                }
                FindingKind::NotTold(reason) => {
                    tracing::info!(model, upstream, reason, "a server did not tell what it serves");
                }
            }
        }
    }))
}
