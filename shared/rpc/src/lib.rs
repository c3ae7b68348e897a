//! The gRPC contract in Rust: generated messages, and the conventions that both ends share.

mod contract;
mod messages;
mod refusal;
mod session_clock;
pub mod spool;
pub mod spool_list;
mod tls;

use std::time::Duration;

use tonic::{Request, Status, metadata::MetadataValue, service::Interceptor};

pub use contract::{
    Answer, Authorize, Call, CallFailure, Capture, Captured, Charge, Extend, Extended, Extension, Grant,
    HoldRef, Identity, KeyService, Release, TakeAnswer, TracedCall, UpstreamCost,
};
pub use messages::Malformed;
pub use session_clock::SessionClock;
use shared_config::internal_token::InternalToken;
use shared_door::{admission::Owner, http::INTERNAL_TOKEN, serve::ConnectionTrust};
pub use tls::client_tls;

/// Messages and stubs generated from `proto/keyservice/v1`, which documents them. They are committed, since generating
/// takes longer than compiling. `make generate` rewrites them.
#[allow(missing_docs, clippy::pedantic, reason = "generated code")]
#[rustfmt::skip]
pub mod v1;

/// Maximum number of calls in a frame: enough for the busiest gateway, and few enough that a frame never delays the
/// next one for long.
pub const MAX_FRAME_CALLS: usize = 512;

/// Time after which the outcome of a call between the services counts as unknown.
pub const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// Adds the internal token to every call.
#[derive(Clone)]
pub struct PresentToken(pub InternalToken);

impl Interceptor for PresentToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let token = MetadataValue::try_from(self.0.header().as_bytes());
        let mut token = token
            .map_err(|_| Status::internal("the internal token has characters that metadata cannot carry"))?;
        token.set_sensitive(true);
        request.metadata_mut().insert(INTERNAL_TOKEN, token);
        Ok(request)
    }
}

/// Refuses every call without the internal token.
#[derive(Clone)]
pub struct RequireToken(pub InternalToken);

impl Interceptor for RequireToken {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let presented = request.metadata().get(INTERNAL_TOKEN).and_then(|value| value.to_str().ok());
        if self.0.accepts(presented) {
            ConnectionTrust::of(request.extensions()).grant(Owner::Service);
            Ok(request)
        } else {
            Err(Status::unauthenticated("the internal token is missing or wrong"))
        }
    }
}

#[cfg(test)]
mod fuzz;
