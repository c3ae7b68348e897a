//! Dependencies of every page.

use std::sync::Arc;

use axum::extract::FromRef;
use key_service_management::Management;
use shared_catalog::Catalog;
use shared_config::current::Current;

use crate::exports::Exports;

/// The dependencies of every page.
#[derive(Clone)]
pub struct App {
    pub management: Arc<Management>,
    /// Models, in the order in which they are offered.
    pub catalog: Arc<Current<Catalog>>,
    /// Clients reach this installation over TLS, by its public address.
    pub behind_tls: bool,
    /// Exports that are under way.
    pub exports: Exports,
}

impl App {
    /// Makes the pages of an installation.
    pub fn new(management: Arc<Management>, catalog: Arc<Current<Catalog>>, behind_tls: bool) -> Self {
        Self { management, catalog, behind_tls, exports: Exports::new() }
    }
}

impl FromRef<App> for Arc<Management> {
    fn from_ref(app: &App) -> Self {
        app.management.clone()
    }
}
