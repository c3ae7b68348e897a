//! Commands for those who manage accounts: members, operators and management keys.

pub(crate) mod management_keys;
pub(crate) mod members;
pub(crate) mod operators;
