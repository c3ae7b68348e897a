//! Names in requests: names that clients choose, and names that servers know.

pub(crate) mod caller;
pub(crate) mod dropped;
pub(crate) mod known;
pub(crate) mod pseudonym;
