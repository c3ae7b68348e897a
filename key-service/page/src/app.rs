//! Dependencies of every page.

use std::sync::Arc;

use axum::extract::FromRef;
use key_service_management::Management;
use shared::served::ServedHosts;
use shared_catalog::Catalog;
use shared_config::current::Current;

use crate::exports::Exports;

/// How browsers reach this installation.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// Browsers come over TLS, by the public address.
    pub behind_tls: bool,
    /// Hosts at which pages are served; `None` for any host, if no public address is configured.
    pub hosts: Option<ServedHosts>,
}

/// The dependencies of every page.
#[derive(Clone)]
pub struct App {
    pub management: Arc<Management>,
    /// Models, in the order in which they are offered.
    pub catalog: Arc<Current<Catalog>>,
    pub site: Site,
    /// Exports that are under way.
    pub exports: Exports,
}

impl App {
    /// Makes the pages of an installation.
    pub fn new(management: Arc<Management>, catalog: Arc<Current<Catalog>>, site: Site) -> Self {
        Self { management, catalog, site, exports: Exports::new() }
    }
}

impl FromRef<App> for Arc<Management> {
    fn from_ref(app: &App) -> Self {
        app.management.clone()
    }
}
