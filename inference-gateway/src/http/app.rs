//! State shared by all routes, and a routed request.

use std::sync::Arc;

use admission::Caller;
use axum::extract::Request;
use shared::{ids::RequestId, key::Prefix};
use shared_door::serve::ConnectionTrust;
use shared_observe::traces::Span;
use tokio_util::sync::CancellationToken;
use upstreams::OfferedModels;

use super::management::Management;
use crate::{config::PublicOperator, generation::Generator};

/// Dependencies of the routes; one instance per worker.
pub(crate) struct App {
    pub(crate) generator: Arc<Generator>,
    pub(crate) models: Arc<OfferedModels>,
    pub(crate) prefix: Prefix,
    /// The largest body of a chat request, in bytes.
    pub(crate) max_body: usize,
    /// Client for the management API and the dashboard of the key-services.
    pub(crate) management: Arc<Management>,
    /// Whether the gateway believes what a proxy in front of it says about the client.
    pub(crate) proxy_trusted: bool,
    /// What the public address serves to operators.
    pub(crate) public_operator: PublicOperator,
    /// Cancelled when `/health` should report that the gateway is stopping.
    pub(crate) stopping: CancellationToken,
    /// Cancelled when the gateway begins to drain and accepts no new requests.
    pub(crate) draining: CancellationToken,
}

/// A request, with the id that the gateway gave it.
pub(super) struct Call {
    pub(super) id: RequestId,
    pub(super) span: Span,
    pub(super) request: Request,
}

impl Call {
    /// Returns the caller, identified by its connection.
    pub(super) fn caller(&self) -> Caller {
        Caller(ConnectionTrust::of(self.request.extensions()))
    }
}
