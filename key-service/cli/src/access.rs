//! Commands on those who govern: members, operators, and management keys.

pub(crate) mod management_keys;
pub(crate) mod members;
pub(crate) mod operators;
