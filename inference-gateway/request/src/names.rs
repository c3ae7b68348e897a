//! Names in requests: those that clients chose, and those that servers know.

pub(crate) mod caller;
pub(crate) mod dropped;
pub(crate) mod known;
pub(crate) mod pseudonym;
