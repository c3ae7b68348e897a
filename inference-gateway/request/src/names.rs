//! Names in a request: of its user, of caches, and those that are repeated to the client.

pub(crate) mod caller;
pub(crate) mod dropped;
pub(crate) mod pseudonym;
