//! API keys: their list, the page of each, and what owners do with them.

pub(crate) mod first_steps;
pub(crate) mod key;
pub(crate) mod keys;
pub(crate) mod many_keys;
pub(crate) mod place;
pub(crate) mod rotation;
pub(crate) mod search;
