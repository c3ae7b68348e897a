//! Commands that manage access: members, operators and management keys.

pub(crate) mod management_keys;
pub(crate) mod members;
pub(crate) mod operators;
