//! The request for upstreams. It is written once, and sent to any of them after a small head.

mod body;
mod count;
mod form;
mod refused;

pub use body::{Forward, ProgressReports, UpstreamParams};
pub use count::{CountBody, UnwrittenCount};
pub(crate) use form::{Bodies, SCOPE_TOKENS, open_system};
pub use form::{BodyForm, BodyPieces};
