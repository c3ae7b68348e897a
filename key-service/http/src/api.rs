//! What every handler has.

use std::sync::Arc;

use shared::clock::Clock;
use shared_catalog::Catalog;
use shared_config::current::Current;

use key_service_management::Management;

/// The dependencies of every handler.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) management: Arc<Management>,
    pub(crate) catalog: Arc<Current<Catalog>>,
    pub(crate) clock: Arc<dyn Clock>,
}
