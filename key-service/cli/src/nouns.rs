//! Commands for keys, groups and webhooks.

pub(crate) mod groups;
pub(crate) mod keys;
pub(crate) mod object;
pub(crate) mod webhooks;
