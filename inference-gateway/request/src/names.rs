//! Names in requests: chosen by clients, or known to servers.

pub(crate) mod caller;
pub(crate) mod dropped;
pub(crate) mod known;
pub(crate) mod pseudonym;
