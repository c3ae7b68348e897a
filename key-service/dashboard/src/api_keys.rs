//! API keys: the list, the page of a key, and actions on keys.

mod deed;
pub(crate) mod first_steps;
pub(crate) mod key;
pub(crate) mod keys;
pub(crate) mod many_keys;
pub(crate) mod place;
pub(crate) mod rotation;
pub(crate) mod search;
