//! Public routes of the gateway.

mod caller;
mod cors;
mod count_tokens;
mod describe;
mod dialect;
mod model_call;
mod model_pages;
mod observe;
mod openapi;
mod passthrough;
mod rate_headers;
mod router;
mod routes;

use std::sync::Arc;

use admission::Caller;
use axum::{extract::Request, http::HeaderName};
use shared::{ids::RequestId, key::Prefix};
use shared_door::serve::ConnectionTrust;
use shared_observe::traces::Span;
use tokio_util::sync::CancellationToken;
use upstreams::OfferedModels;

use crate::generation::Generator;
pub(crate) use passthrough::Management;
pub(crate) use router::routes;

/// Dependencies of the routes, an instance per worker.
pub(crate) struct App {
    pub(crate) generator: Arc<Generator>,
    pub(crate) models: Arc<OfferedModels>,
    pub(crate) prefix: Prefix,
    /// The largest body of a chat request, in bytes.
    pub(crate) max_body: usize,
    /// The management API and the dashboard of the key-services.
    pub(crate) management: Arc<Management>,
    /// The proxy in front of the gateway is trusted to name the client.
    pub(crate) proxy_trusted: bool,
    /// Cancelled when `/health` should say that the gateway stops.
    pub(crate) stopping: CancellationToken,
    /// Cancelled when the gateway begins to drain and accepts no new requests.
    pub(crate) draining: CancellationToken,
}

/// A request, under an id of ours.
pub(crate) struct Call {
    pub(crate) id: RequestId,
    pub(crate) span: Span,
    pub(crate) request: Request,
}

impl Call {
    /// The caller, by the connection of the request.
    fn caller(&self) -> Caller {
        Caller(ConnectionTrust::of(self.request.extensions()))
    }
}

/// Response header with the generation's id, which is also the billing id.
pub(crate) const X_GENERATION_ID: HeaderName = HeaderName::from_static("x-generation-id");
/// Response header with the value that `max_tokens` was lowered to, since more could not be paid.
pub(crate) const X_MAX_TOKENS: HeaderName = HeaderName::from_static("x-max-tokens");
