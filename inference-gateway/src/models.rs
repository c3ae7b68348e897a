//! The models on offer: the catalogue, and what serves and measures it.

use http::Uri;
use shared::{
    catalog::Catalog,
    current::Current,
    process::{config::ConfigError, telemetry::show_catalogue},
};

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
}

impl OfferedModels {
    /// Offers the models of this catalogue.
    pub fn new(catalog: Catalog, builtin: Option<Uri>) -> Result<Self, ConfigError> {
        let models = Models::of(catalog, builtin.as_ref())?;
        show_catalogue(&models.catalog);
        Ok(Self { current: Current::new(models), builtin })
    }

    /// Offers the models of another catalogue from now on.
    pub fn replace(&self, catalog: Catalog) -> Result<(), ConfigError> {
        let models = Models::of(catalog, self.builtin.as_ref())?;
        show_catalogue(&models.catalog);
        self.get().pools.values().for_each(Pool::retire);
        self.current.replace(models);
        Ok(())
    }

    pub(crate) fn get(&self) -> std::sync::Arc<Models> {
        self.current.get()
    }
}
