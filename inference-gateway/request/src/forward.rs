//! The request for upstreams. It is written once; only a small head differs between attempts.

mod body;
mod count;
mod form;
mod params;
mod refusals;
mod refused;

pub use body::Forward;
pub use count::{CountBody, UnwrittenCount};
pub(crate) use form::{Bodies, SCOPE_TOKENS, open_system};
pub use form::{BodyForm, BodyPieces};
pub use params::{ProgressReports, UpstreamParams};
