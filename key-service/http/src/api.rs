//! The state that all handlers share.

use std::sync::Arc;

use http::Uri;
use shared::clock::Clock;

use key_service_management::Management;

#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) management: Arc<Management>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The address that clients use, if configured.
    pub(crate) public_url: Option<Uri>,
}
