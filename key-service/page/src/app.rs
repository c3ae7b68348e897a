//! State that all pages share.

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
    /// Whether the public address uses TLS.
    pub behind_tls: bool,
    /// Hosts that may serve pages; `None` allows any, when no public address is configured.
    pub hosts: Option<ServedHosts>,
}

#[derive(Clone)]
pub struct App {
    pub management: Arc<Management>,
    /// Models, in the order that pages list them.
    pub catalog: Arc<Current<Catalog>>,
    pub site: Site,
    /// Limits how many exports run at once.
    pub exports: Exports,
}

impl App {
    pub fn new(management: Arc<Management>, catalog: Arc<Current<Catalog>>, site: Site) -> Self {
        Self { management, catalog, site, exports: Exports::new() }
    }
}

impl FromRef<App> for Arc<Management> {
    fn from_ref(app: &App) -> Self {
        app.management.clone()
    }
}
